//! Recorded events as spans of `tracing` (S47).
//!
//! One test, because the interest of a subscriber counts for the whole process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use telegrad_trace::{
    Call, Cause, Clock, Execution, Kind, Origin, Position, Propagate, Recorder, Span, Status, TARGET, here,
    propagate, record_function, scope,
};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Metadata, dispatcher};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// A span as the subscriber saw it.
#[derive(Clone, Debug, Default)]
struct SeenSpan {
    parent: Option<String>,
    fields: BTreeMap<String, String>,
    has_ended: bool,
}

/// Notes all spans, by the names that collectors show.
#[derive(Clone, Default)]
struct Observer(Arc<Mutex<BTreeMap<String, SeenSpan>>>);

/// The field names of the call sites of each span name: those of the probe and those of the span.
static FIELDS: Mutex<BTreeMap<&str, BTreeSet<Vec<&str>>>> = Mutex::new(BTreeMap::new());

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

struct Name(String);

fn name<S: tracing::Subscriber + for<'a> LookupSpan<'a>>(
    id: &Id,
    context: &Context<'_, S>,
) -> Option<String> {
    let span = context.span(id)?;
    span.extensions().get::<Name>().map(|name| name.0.clone())
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Observer {
    fn register_callsite(&self, about: &'static Metadata<'static>) -> Interest {
        if about.target() == TARGET {
            let fields = about.fields().iter().map(|field| field.name());
            let mut all = FIELDS.lock().unwrap();
            all.entry(about.name()).or_default().insert(fields.collect());
        }
        Interest::always()
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().target() == TARGET {
            record_function!("subscriber code");
        }
        let mut seen = SeenSpan::default();
        attributes.record(&mut Fields(&mut seen.fields));
        let own = seen.fields.get("otel.name");
        let own = own.map_or_else(|| attributes.metadata().name().to_owned(), Clone::clone);
        let span = context.span(id).expect("the span is open");
        seen.parent = span.parent().and_then(|parent| name(&parent.id(), &context));
        span.extensions_mut().insert(Name(own.clone()));
        self.0.lock().unwrap().insert(own, seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let name = name(id, &context).expect("the span is known");
        let mut all = self.0.lock().unwrap();
        let seen = all.get_mut(&name).expect("the span is known");
        values.record(&mut Fields(&mut seen.fields));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        if context
            .metadata(&id)
            .is_some_and(|about| about.target() == TARGET)
        {
            record_function!("subscriber code");
        }
        let name = name(&id, &context).expect("the span is known");
        self.0
            .lock()
            .unwrap()
            .get_mut(&name)
            .expect("the span is known")
            .has_ended = true;
    }
}

impl Observer {
    fn dispatch(&self, most: LevelFilter) -> Dispatch {
        Dispatch::new(tracing_subscriber::registry().with(self.clone().with_filter(most)))
    }

    #[track_caller]
    fn span(&self, name: &str) -> SeenSpan {
        let all = self.0.lock().unwrap();
        let seen = all.get(name);
        seen.unwrap_or_else(|| panic!("no {name} in {all:#?}")).clone()
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}

/// Carries a fixed identity.
struct Fixed;

const ORIGIN: Origin = Origin {
    trace: (1, 2),
    span: 3,
    flags: 1,
};

static ADOPTED: Mutex<Vec<Origin>> = Mutex::new(Vec::new());

impl Propagate for Fixed {
    fn origin(&self, span: &tracing::Span) -> Option<Origin> {
        (!span.is_disabled()).then_some(ORIGIN)
    }

    fn adopt(&self, _: &tracing::Span, origin: Origin) {
        ADOPTED.lock().unwrap().push(origin);
    }
}

fn call(callee: u32) -> Kind {
    Kind::Call(Call {
        verb: "rpc_sync".into(),
        callee,
        sent: 0,
        received: 0,
        sent_bytes: 0,
        received_bytes: 0,
        is_shutdown: false,
    })
}

#[test]
fn subscribers_see_the_spans_that_they_are_interested_in() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    recorder.set_worker_names(|rank| Some(format!("worker{rank}")));
    assert!(recorder.here().is_none(), "no subscriber is installed");
    let observer = Observer::default();

    let informed = observer.dispatch(LevelFilter::INFO);
    dispatcher::with_default(&informed, || {
        assert!(recorder.here().is_none(), "the level is too low");
        record_function!("unseen");
    });
    assert_eq!(observer.names(), [""; 0]);
    drop(informed);

    propagate(&Fixed);
    let debugging = observer.dispatch(LevelFilter::DEBUG);
    dispatcher::with_default(&debugging, || {
        let user = tracing::info_span!("user span").entered();
        record_function!("outer");
        let at = recorder.here().expect("the subscriber is interested");
        assert_eq!(at.trace, 0, "the event is shown but not kept");
        let made = Span::new(&recorder, at, "add", call(1));
        assert_eq!(made.origin(), Some(ORIGIN));
        let seen = observer.span("add");
        assert_eq!(seen.parent.as_deref(), Some("outer"));
        assert_eq!(
            (&*seen.fields["from"], &*seen.fields["to"]),
            ("worker0", "worker1")
        );
        assert!(!seen.has_ended);
        made.finish(|event| {
            event.status = Status::TimedOut;
            if let Kind::Call(call) = &mut event.kind {
                call.sent_bytes = 99;
            }
        });
        let seen = observer.span("add");
        assert!(seen.has_ended);
        assert_eq!(
            (
                &*seen.fields["sent_bytes"],
                &*seen.fields["otel.status_description"]
            ),
            ("99", "timed out")
        );
        assert_eq!(made.origin(), None, "the span has ended");

        // An execution is not a child of the current span of the thread.
        let arrived = Position { trace: 0, span: 9 };
        let execution = Execution {
            caller: 1,
            arrived: 0,
            decoded: 0,
            returned: 0,
            replied: 0,
            is_gathering: false,
        };
        let served = Span::pending(
            &recorder,
            arrived,
            "serve",
            Kind::Execution(execution),
            Cause::Remote(Some(ORIGIN)),
        );
        assert!(
            !observer.names().contains(&"serve".to_owned()),
            "the span has not begun"
        );
        served.start();
        assert_eq!(*ADOPTED.lock().unwrap(), [ORIGIN]);
        {
            let _entered = served.enter();
            record_function!("inside");
            let _detail = scope(Kind::Operator, || "matmul".into());
            let here = here();
            let subscriber = dispatcher::get_default(Clone::clone);
            let helper = std::thread::spawn(move || {
                dispatcher::with_default(&subscriber, || {
                    here.run(|| {
                        record_function!("helping");
                    });
                });
            });
            helper.join().unwrap();
        }
        served.finish(|_| ());
        assert_eq!(observer.span("serve").parent, None);
        assert_eq!(observer.span("inside").parent.as_deref(), Some("serve"));
        assert_eq!(observer.span("helping").parent.as_deref(), Some("inside"));
        drop(user);
    });
    assert!(
        !observer.names().contains(&"matmul".to_owned()),
        "operators are shown at level TRACE"
    );
    for name in ["outer", "serve", "inside", "helping", "user span"] {
        let seen = observer.span(name);
        assert!(seen.has_ended, "{name} has not ended");
        assert!(
            !seen.fields.contains_key("otel.status_code"),
            "{name} has not failed"
        );
    }
    assert_eq!(observer.span("outer").parent.as_deref(), Some("user span"));

    let tracing_all = observer.dispatch(LevelFilter::TRACE);
    dispatcher::with_default(&tracing_all, || {
        let failing = scope(Kind::Operator, || "matmul".into());
        failing.fail(|| "shapes differ".into());
    });
    let seen = observer.span("matmul");
    assert_eq!(&*seen.fields["otel.status_description"], "shapes differ");
    assert_eq!(seen.fields["kind"], "operator");

    // A process recording has details that the subscriber does not want.
    let without_details = observer.dispatch(LevelFilter::DEBUG);
    drop(tracing_all);
    dispatcher::with_default(&without_details, || {
        let number = recorder.start_recording(false);
        {
            record_function!("kept and seen");
            let _detail = scope(Kind::Operator, || "only kept".into());
        }
        let kept = recorder.stop_recording(number).events;
        let names: Vec<_> = kept.iter().map(|event| &*event.name).collect();
        assert_eq!(names, ["only kept", "kept and seen"]);
        assert_eq!(kept[0].parent, kept[1].span);
    });
    assert!(observer.span("kept and seen").has_ended);

    let seen = observer.names();
    for name in ["only kept", "subscriber code"] {
        assert!(!seen.contains(&name.to_owned()), "{name} is in {seen:?}");
    }
    let fields = FIELDS.lock().unwrap();
    assert_eq!(
        fields.keys().copied().collect::<Vec<_>>(),
        ["call", "detail", "execution", "scope"]
    );
    for (name, field_lists) in &*fields {
        assert_eq!(field_lists.len(), 1, "{name}");
    }
    drop(fields);

    recorder.close();
    dispatcher::with_default(&without_details, || {
        assert!(recorder.here().is_none(), "a closed recorder records nothing");
    });
    let another = Recorder::new(1, Clock::default(), 0);
    assert!(another.here().is_some(), "a new one knows the interest at once");
}
