//! What subscribers of `tracing` see of what is recorded.
//!
//! One test, because what one subscriber wants is recorded for the whole process.

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

/// What is known of a span.
#[derive(Clone, Debug, Default)]
struct Seen {
    parent: Option<String>,
    fields: BTreeMap<String, String>,
    has_ended: bool,
}

/// Sees spans, by the names that collectors would have for them.
#[derive(Clone, Default)]
struct Watching(Arc<Mutex<BTreeMap<String, Seen>>>);

/// The fields of spans, by their names: as asked for, and as they come.
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

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Watching {
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
            record_function!("what a subscriber does");
        }
        let mut seen = Seen::default();
        attributes.record(&mut Fields(&mut seen.fields));
        let own = seen.fields.get("otel.name");
        let own = own.map_or_else(|| attributes.metadata().name().to_owned(), Clone::clone);
        let span = context.span(id).expect("it is there");
        seen.parent = span.parent().and_then(|parent| name(&parent.id(), &context));
        span.extensions_mut().insert(Name(own.clone()));
        self.0.lock().unwrap().insert(own, seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let name = name(id, &context).expect("it has been seen");
        let mut all = self.0.lock().unwrap();
        let seen = all.get_mut(&name).expect("it has been seen");
        values.record(&mut Fields(&mut seen.fields));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        if context
            .metadata(&id)
            .is_some_and(|about| about.target() == TARGET)
        {
            record_function!("what a subscriber does");
        }
        let name = name(&id, &context).expect("it has been seen");
        self.0
            .lock()
            .unwrap()
            .get_mut(&name)
            .expect("it has been seen")
            .has_ended = true;
    }
}

impl Watching {
    fn dispatch(&self, most: LevelFilter) -> Dispatch {
        Dispatch::new(tracing_subscriber::registry().with(self.clone().with_filter(most)))
    }

    #[track_caller]
    fn of(&self, name: &str) -> Seen {
        let all = self.0.lock().unwrap();
        let seen = all.get(name);
        seen.unwrap_or_else(|| panic!("no {name} in {all:#?}")).clone()
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}

/// Carries a number that it has been given.
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
fn subscribers_see_what_goes_on_as_far_as_they_want() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    recorder.name_by(|rank| Some(format!("worker{rank}")));
    assert!(recorder.here().is_none(), "there is nobody");
    let watching = Watching::default();

    let informed = watching.dispatch(LevelFilter::INFO);
    dispatcher::with_default(&informed, || {
        assert!(recorder.here().is_none(), "nobody wants it");
        record_function!("unseen");
    });
    assert_eq!(watching.names(), [""; 0]);
    drop(informed);

    propagate(&Fixed);
    let debugging = watching.dispatch(LevelFilter::DEBUG);
    dispatcher::with_default(&debugging, || {
        let user = tracing::info_span!("of the user").entered();
        record_function!("outer");
        let at = recorder.here().expect("it is wanted");
        assert_eq!(at.trace, 0, "and kept nowhere");
        let made = Span::new(&recorder, at, "add", call(1));
        assert_eq!(made.origin(), Some(ORIGIN));
        let seen = watching.of("add");
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
        let seen = watching.of("add");
        assert!(seen.has_ended);
        assert_eq!(
            (
                &*seen.fields["sent_bytes"],
                &*seen.fields["otel.status_description"]
            ),
            ("99", "timed out")
        );
        assert_eq!(made.origin(), None, "it is over");

        // What another worker asked for is not under what this thread does meanwhile.
        let arrived = Position { trace: 0, span: 9 };
        let execution = Execution {
            caller: 1,
            arrived: 0,
            decoded: 0,
            returned: 0,
            replied: 0,
            is_gathering: false,
        };
        let served = Span::ahead(
            &recorder,
            arrived,
            "serve",
            Kind::Execution(execution),
            Cause::Elsewhere(Some(ORIGIN)),
        );
        assert!(
            !watching.names().contains(&"serve".to_owned()),
            "it has yet to begin"
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
        assert_eq!(watching.of("serve").parent, None);
        assert_eq!(watching.of("inside").parent.as_deref(), Some("serve"));
        assert_eq!(watching.of("helping").parent.as_deref(), Some("inside"));
        drop(user);
    });
    assert!(
        !watching.names().contains(&"matmul".to_owned()),
        "that is too much"
    );
    for name in ["outer", "serve", "inside", "helping", "of the user"] {
        let seen = watching.of(name);
        assert!(seen.has_ended, "{name} goes on");
        assert!(
            !seen.fields.contains_key("otel.status_code"),
            "{name} has not failed"
        );
    }
    assert_eq!(watching.of("outer").parent.as_deref(), Some("of the user"));

    let tracing_all = watching.dispatch(LevelFilter::TRACE);
    dispatcher::with_default(&tracing_all, || {
        let failing = scope(Kind::Operator, || "matmul".into());
        failing.fail(|| "shapes differ".into());
    });
    let seen = watching.of("matmul");
    assert_eq!(&*seen.fields["otel.status_description"], "shapes differ");
    assert_eq!(seen.fields["kind"], "operator");

    // A recording of the process has all of it, whoever else is there.
    let quiet = watching.dispatch(LevelFilter::DEBUG);
    drop(tracing_all);
    dispatcher::with_default(&quiet, || {
        let number = recorder.watch(false);
        {
            record_function!("kept and seen");
            let _detail = scope(Kind::Operator, || "only kept".into());
        }
        let kept = recorder.unwatch(number).events;
        let names: Vec<_> = kept.iter().map(|event| &*event.name).collect();
        assert_eq!(names, ["only kept", "kept and seen"]);
        assert_eq!(kept[0].parent, kept[1].span);
    });
    assert!(watching.of("kept and seen").has_ended);

    let seen = watching.names();
    for name in ["only kept", "what a subscriber does"] {
        assert!(!seen.contains(&name.to_owned()), "{name} is in {seen:?}");
    }
    let fields = FIELDS.lock().unwrap();
    assert_eq!(
        fields.keys().copied().collect::<Vec<_>>(),
        ["call", "detail", "execution", "scope"]
    );
    for (name, as_asked_and_as_come) in &*fields {
        assert_eq!(as_asked_and_as_come.len(), 1, "{name}");
    }
    drop(fields);

    recorder.close();
    dispatcher::with_default(&quiet, || {
        assert!(
            recorder.here().is_none(),
            "a worker that has ended records nothing"
        );
    });
    let another = Recorder::new(1, Clock::default(), 0);
    assert!(another.here().is_some(), "a new one does at once");
}
