//! Subscriber code changes no recording (S58, S62).

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use telegrad_trace::{
    Cause, Clock, Event, Kind, Position, Recorder, Span, Status, TARGET, here, hide, record_function, scope,
};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, dispatcher};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// The callbacks of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    New,
    Enter,
    Record,
    Exit,
    Close,
}

const MOMENTS: [Moment; 5] = [
    Moment::New,
    Moment::Enter,
    Moment::Record,
    Moment::Exit,
    Moment::Close,
];

/// Runs a function in every callback about a recorded span.
struct Acting<F>(F);

impl<F: Fn(Moment)> Acting<F> {
    fn act(&self, id: &Id, moment: Moment, context: &Context<'_, Registry>) {
        if context.metadata(id).is_some_and(|about| about.target() == TARGET) {
            (self.0)(moment);
        }
    }
}

impl<F: Fn(Moment) + 'static> Layer<Registry> for Acting<F> {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, Registry>) {
        self.act(id, Moment::New, &context);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, Registry>) {
        self.act(id, Moment::Enter, &context);
    }

    fn on_record(&self, id: &Id, _: &Record<'_>, context: Context<'_, Registry>) {
        self.act(id, Moment::Record, &context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, Registry>) {
        self.act(id, Moment::Exit, &context);
    }

    fn on_close(&self, id: Id, context: Context<'_, Registry>) {
        self.act(&id, Moment::Close, &context);
    }
}

/// Records some work under a subscriber that runs `act` in every callback.
fn recorded(recorder: &Arc<Recorder>, act: impl Fn(Moment) + Send + Sync + 'static) -> Vec<Event> {
    let subscriber = Dispatch::new(tracing_subscriber::registry().with(Acting(act)));
    let trace = recorder.open(false);
    dispatcher::with_default(&subscriber, || {
        let root = Span::new(recorder, Position { trace, span: 0 }, "root", Kind::Scope);
        {
            let _entered = root.enter();
            record_function!("outer");
            let inner = scope(Kind::Operator, || "inner".into());
            inner.fail(|| "error".into());
            let here = here();
            let work = || {
                here.run(|| {
                    record_function!("helping");
                });
            };
            let helper = || dispatcher::with_default(&subscriber, work);
            std::thread::scope(|scope| scope.spawn(helper).join().unwrap());
        }
        assert_eq!(
            recorder.here().map(|at| at.trace),
            Some(0),
            "the thread has left the trace"
        );
        root.finish(|_| ());
    });
    recorder.collect(trace, 0, true).events
}

#[track_caller]
fn assert_complete(events: &[Event]) {
    let [helping, inner, outer, root] = events else {
        panic!("{events:#?}");
    };
    let names = [inner, helping, outer, root].map(|event| (&*event.name, event.parent));
    let expected = [
        ("inner", outer.span),
        ("helping", inner.span),
        ("outer", root.span),
        ("root", 0),
    ];
    assert_eq!(names, expected);
    assert_eq!(inner.status, Status::Failed("error".into()));
}

#[test]
fn subscriber_code_is_not_recorded() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    for moment in MOMENTS {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let events = recorded(&recorder, move |now| {
            if now == moment {
                counted.fetch_add(1, SeqCst);
                // If this were shown to the subscriber, it would recurse without end.
                record_function!("again");
                drop(hide());
                here().run(|| {
                    record_function!("again");
                });
                record_function!("again");
            }
        });
        assert_complete(&events);
        let expected = match moment {
            Moment::New | Moment::Close => 4,
            // The helper thread enters a span, too.
            Moment::Enter | Moment::Exit => 5,
            Moment::Record => 2,
        };
        assert_eq!(count.load(SeqCst), expected, "{moment:?}");
    }
}

#[test]
fn a_panicking_subscriber_does_not_change_the_recording() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    for moment in MOMENTS {
        let events = recorded(&recorder, move |now| assert_ne!(now, moment, "on purpose"));
        assert_complete(&events);
    }
}

/// The names of spans, each with the name of its parent.
type Spans = Vec<(String, Option<String>)>;

/// Collects the spans that it sees.
#[derive(Clone, Default)]
struct SpanCollector(Arc<Mutex<Spans>>);

impl Layer<Registry> for SpanCollector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, Registry>) {
        let parent = context
            .span(id)
            .and_then(|span| Some(span.parent()?.name().to_owned()));
        let name = attributes.metadata().name().to_owned();
        self.0.lock().unwrap().push((name, parent));
    }
}

#[test]
fn a_callback_is_shown_to_the_subscriber_where_it_was_registered() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let (registering, running) = (SpanCollector::default(), SpanCollector::default());
    let dispatch =
        |collector: &SpanCollector| Dispatch::new(tracing_subscriber::registry().with(collector.clone()));
    let (registered_under, run_under) = (dispatch(&registering), dispatch(&running));
    let then = dispatcher::with_default(&registered_under, || {
        let _giver = tracing::info_span!("giver").entered();
        let at = recorder.here().unwrap();
        Span::pending(&recorder, at, "then", Kind::Scope, Cause::capture())
    });
    dispatcher::with_default(&run_under, || {
        // Its id equals that of `giver` under the other subscriber.
        let _other = tracing::info_span!("other").entered();
        then.start();
        let _entered = then.enter();
    });
    let seen = |collector: &SpanCollector| collector.0.lock().unwrap().clone();
    let expected = [
        ("giver".to_owned(), None),
        ("scope".to_owned(), Some("giver".to_owned())),
    ];
    assert_eq!(seen(&registering), expected);
    assert_eq!(seen(&running), [("other".to_owned(), None)]);
}
