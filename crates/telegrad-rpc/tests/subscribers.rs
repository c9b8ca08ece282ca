//! Subscribers that call other workers, and subscribers that panic: neither affects calls (S58, S62).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use telegrad_rpc::{Error, Result, World, remote};
use telegrad_testkit::{Cluster, on_cluster, wait_until};
use telegrad_trace::TARGET;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

on_cluster! {
    unix: Cluster::processes(2).unix(),
    shared: Cluster::processes(2),
    tcp: Cluster::processes(2).tcp() =>
    subscribers_may_call_but_not_wait
    subscribers_may_panic
}

/// The action of this process's subscriber on every event.
static ACTION: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);

/// The names of the spans that the subscriber has seen.
static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Calls that the subscriber has made, its refused waits, and the calls of `note` and `count` served here.
static CALLS_MADE: AtomicUsize = AtomicUsize::new(0);
static WAITS_REFUSED: AtomicUsize = AtomicUsize::new(0);
static SERVED_NOTES: AtomicUsize = AtomicUsize::new(0);
static SERVED_COUNTS: AtomicUsize = AtomicUsize::new(0);

/// A layer that runs the action.
struct ActionLayer;

impl ActionLayer {
    fn act<S: Subscriber + for<'a> LookupSpan<'a>>(id: &Id, context: &Context<'_, S>) {
        if context.metadata(id).is_some_and(|about| about.target() == TARGET) {
            let act = ACTION.lock().unwrap_or_else(PoisonError::into_inner);
            act.iter().for_each(|act| act());
        }
    }
}

/// Collects the name of a span.
struct NameVisitor;

impl Visit for NameVisitor {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "otel.name" {
            SEEN.lock().unwrap().insert(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ActionLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        attributes.record(&mut NameVisitor);
        Self::act(id, &context);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        Self::act(id, &context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        Self::act(id, &context);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        Self::act(&id, &context);
    }
}

/// Called by a subscriber, which does not wait for it.
#[remote]
fn note() -> Result<()> {
    SERVED_NOTES.fetch_add(1, SeqCst);
    // The subscriber does not see nested calls either.
    let world = World::current()?;
    world.rpc_sync(world.rank(), note_further, ())
}

#[remote]
fn note_further() {}

/// Called by a subscriber that would wait for it, so that it is never sent.
#[remote]
fn count() {
    SERVED_COUNTS.fetch_add(1, SeqCst);
}

#[remote]
fn add(a: u32, b: u32) -> u32 {
    a + b
}

#[remote]
async fn never_ready() {
    std::future::pending::<()>().await;
}

#[remote]
fn start_calling() -> Result<()> {
    call_from_subscriber(World::current()?)
}

/// Makes the subscriber call the other worker: without waiting, and with a wait, which is refused.
fn call_from_subscriber(world: World) -> Result<()> {
    let other = 1 - world.rank();
    // Opens the link, for which the subscriber could not wait.
    world.rpc_sync(other, add, (1, 2))?;
    act(move || {
        let Ok(call) = world.rpc_async(other, note, ()) else {
            return;
        };
        CALLS_MADE.fetch_add(1, SeqCst);
        call.detach();
        let started = Instant::now();
        let refused = world.rpc_sync(other, count, ());
        if matches!(refused, Err(Error::WaitInInline)) && started.elapsed() < Duration::from_secs(5) {
            WAITS_REFUSED.fetch_add(1, SeqCst);
        }
    })
}

#[remote]
fn start_panicking() -> Result<()> {
    act(|| panic!("on purpose"))
}

fn act(act: impl Fn() + Send + 'static) -> Result<()> {
    *ACTION.lock().unwrap() = Some(Box::new(act));
    let subscriber = tracing_subscriber::registry().with(ActionLayer);
    subscriber.try_init().map_err(Error::other)
}

#[remote]
fn stop() {
    let act = ACTION.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(act);
}

/// Returns the counters, and the names of the spans seen.
#[remote]
fn counts() -> ([usize; 4], Vec<String>) {
    let counts = [&CALLS_MADE, &WAITS_REFUSED, &SERVED_NOTES, &SERVED_COUNTS].map(|count| count.load(SeqCst));
    (counts, SEEN.lock().unwrap().iter().cloned().collect())
}

fn subscribers_may_call_but_not_wait(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        world.rpc_sync(1, start_calling, ()).unwrap();
        call_from_subscriber(world.clone()).unwrap();
        for a in 0..10 {
            assert_eq!(world.rpc_sync(1, add, (a, 2)).unwrap(), a + 2);
        }
        world.rpc_sync(1, stop, ()).unwrap();
        stop();
        let ours = || counts();
        let theirs = || world.rpc_sync(1, counts, ()).unwrap();
        wait_until(
            Duration::from_secs(20),
            || {
                let ([our_made, _, our_noted, _], [their_made, _, their_noted, _]) = (ours().0, theirs().0);
                our_noted == their_made && their_noted == our_made
            },
            || format!("{:?} {:?}", ours(), theirs()),
        );
        for ([made, refused, _, counted], seen) in [ours(), theirs()] {
            assert!(made >= 20 && refused == made, "{refused} of {made}");
            assert_eq!(counted, 0, "a call with a refused wait was sent");
            let is_ours = |name: &String| name.contains("note") || name.ends_with("count");
            assert!(!seen.iter().any(is_ours), "{seen:?}");
            assert!(seen.iter().any(|name| name.ends_with("add")), "{seen:?}");
        }
    });
}

fn subscribers_may_panic(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        world.rpc_sync(1, start_panicking, ()).unwrap();
        start_panicking().unwrap();
        for a in 0..10 {
            assert_eq!(world.rpc_sync(1, add, (a, 2)).unwrap(), a + 2);
        }
        let call = world.rpc_async(1, add, (1, 2)).unwrap();
        assert_eq!(call.then(|sum| Ok(sum? + 1)).wait().unwrap(), 4);
        // Also calls that end on the timer thread.
        let limited = world.with_timeout(Duration::from_millis(100));
        for _ in 0..2 {
            let error = limited.rpc_async(1, never_ready, ()).unwrap().wait().unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
        }
        world.rpc_sync(1, stop, ()).unwrap();
        stop();
    });
}
