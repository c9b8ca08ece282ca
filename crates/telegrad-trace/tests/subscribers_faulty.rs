//! What subscribers do while they are shown something leaves recordings as they would be without (S45, S47).

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use telegrad_trace::{
    Cause, Clock, Event, Kind, Position, Recorder, Span, Status, TARGET, here, hide, record_function, scope,
};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, dispatcher};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// When a subscriber is called.
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

/// Does something whenever it is called about one of our spans.
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

/// What is recorded of some work while this is called at every moment.
fn recorded(recorder: &Arc<Recorder>, act: impl Fn(Moment) + Send + Sync + 'static) -> Vec<Event> {
    let subscriber = Dispatch::new(tracing_subscriber::registry().with(Acting(act)));
    let trace = recorder.open(false);
    dispatcher::with_default(&subscriber, || {
        let root = Span::new(recorder, Position { trace, span: 0 }, "root", Kind::Scope);
        {
            let _entered = root.enter();
            record_function!("outer");
            let inner = scope(Kind::Operator, || "inner".into());
            inner.fail(|| "why".into());
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
            "the thread is where it was"
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
    assert_eq!(inner.status, Status::Failed("why".into()));
}

#[test]
fn what_subscribers_do_meanwhile_is_not_recorded() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    for moment in MOMENTS {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let events = recorded(&recorder, move |now| {
            if now == moment {
                counted.fetch_add(1, SeqCst);
                // It would be shown this in turn, for ever.
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
            // The helper enters what it helps with, too.
            Moment::Enter | Moment::Exit => 5,
            Moment::Record => 2,
        };
        assert_eq!(count.load(SeqCst), expected, "{moment:?}");
    }
}

#[test]
fn a_subscriber_that_panics_loses_only_what_it_sees_itself() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    for moment in MOMENTS {
        let events = recorded(&recorder, move |now| assert_ne!(now, moment, "on purpose"));
        assert_complete(&events);
    }
}

/// The names of spans, each with that of the one it is under.
type Spans = Vec<(String, Option<String>)>;

/// Notes which spans it sees.
#[derive(Clone, Default)]
struct Noting(Arc<Mutex<Spans>>);

impl Layer<Registry> for Noting {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, Registry>) {
        let parent = context
            .span(id)
            .and_then(|span| Some(span.parent()?.name().to_owned()));
        let name = attributes.metadata().name().to_owned();
        self.0.lock().unwrap().push((name, parent));
    }
}

#[test]
fn a_callback_is_seen_by_the_subscriber_that_it_was_given_under() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let (giving, running) = (Noting::default(), Noting::default());
    let dispatch = |noting: &Noting| Dispatch::new(tracing_subscriber::registry().with(noting.clone()));
    let (given_under, run_under) = (dispatch(&giving), dispatch(&running));
    let then = dispatcher::with_default(&given_under, || {
        let _giver = tracing::info_span!("giver").entered();
        let at = recorder.here().unwrap();
        Span::ahead(&recorder, at, "then", Kind::Scope, Cause::here())
    });
    dispatcher::with_default(&run_under, || {
        // With the same number there, and another name.
        let _other = tracing::info_span!("other").entered();
        then.start();
        let _entered = then.enter();
    });
    let seen = |noting: &Noting| noting.0.lock().unwrap().clone();
    let expected = [
        ("giver".to_owned(), None),
        ("scope".to_owned(), Some("giver".to_owned())),
    ];
    assert_eq!(seen(&giving), expected);
    assert_eq!(seen(&running), [("other".to_owned(), None)]);
}
