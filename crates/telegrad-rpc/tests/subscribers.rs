//! Subscribers that call other workers, and subscribers that panic: calls do not mind (S58, S62).

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

on_cluster! { unix: Cluster::processes(2).unix() => subscribers_that_call subscribers_that_panic }
on_cluster! { shared: Cluster::processes(2) => subscribers_that_call subscribers_that_panic }
on_cluster! { tcp: Cluster::processes(2).tcp() => subscribers_that_call subscribers_that_panic }

/// What the subscriber of this process does.
static ACT: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);

/// The names of the spans that it has seen.
static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Calls that it has made, calls that it could not wait for, calls of the other one, and those of them that it could not wait for.
static MADE: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicUsize = AtomicUsize::new(0);
static NOTED: AtomicUsize = AtomicUsize::new(0);
static COUNTED: AtomicUsize = AtomicUsize::new(0);

struct Acting;

impl Acting {
    fn act<S: Subscriber + for<'a> LookupSpan<'a>>(id: &Id, context: &Context<'_, S>) {
        if context.metadata(id).is_some_and(|about| about.target() == TARGET) {
            let act = ACT.lock().unwrap_or_else(PoisonError::into_inner);
            act.iter().for_each(|act| act());
        }
    }
}

struct Name;

impl Visit for Name {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "otel.name" {
            SEEN.lock().unwrap().insert(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Acting {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        attributes.record(&mut Name);
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

/// What a subscriber calls.
#[remote]
fn note() -> Result<()> {
    NOTED.fetch_add(1, SeqCst);
    // What it calls in turn is not seen either.
    let world = World::current()?;
    world.rpc_sync(world.rank(), note_further, ())
}

#[remote]
fn note_further() {}

/// What a subscriber would wait for, and is not sent.
#[remote]
fn count() {
    COUNTED.fetch_add(1, SeqCst);
}

#[remote]
fn add(a: u32, b: u32) -> u32 {
    a + b
}

#[remote]
async fn forever() {
    std::future::pending::<()>().await;
}

#[remote]
fn start_calling() -> Result<()> {
    call_from_subscriber(World::current()?)
}

/// From now on the subscriber calls the other worker: it gets away with it at once, or waits, which it must not.
fn call_from_subscriber(world: World) -> Result<()> {
    let other = 1 - world.rank();
    // Without a link the subscriber would have to wait for one.
    world.rpc_sync(other, add, (1, 2))?;
    act(move || {
        let Ok(call) = world.rpc_async(other, note, ()) else {
            return;
        };
        MADE.fetch_add(1, SeqCst);
        call.detach();
        let started = Instant::now();
        let refused = world.rpc_sync(other, count, ());
        if matches!(refused, Err(Error::WaitInInline)) && started.elapsed() < Duration::from_secs(5) {
            REFUSED.fetch_add(1, SeqCst);
        }
    })
}

#[remote]
fn start_panicking() -> Result<()> {
    act(|| panic!("on purpose"))
}

fn act(act: impl Fn() + Send + 'static) -> Result<()> {
    *ACT.lock().unwrap() = Some(Box::new(act));
    let subscriber = tracing_subscriber::registry().with(Acting);
    subscriber.try_init().map_err(Error::other)
}

#[remote]
fn stop() {
    let act = ACT.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(act);
}

/// What was counted, and the names seen.
#[remote]
fn counts() -> ([usize; 4], Vec<String>) {
    let counts = [&MADE, &REFUSED, &NOTED, &COUNTED].map(|count| count.load(SeqCst));
    (counts, SEEN.lock().unwrap().iter().cloned().collect())
}

fn subscribers_that_call(cluster: Cluster) {
    cluster.run(|world| {
        if world.rank() != 0 {
            return;
        }
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
            assert_eq!(counted, 0, "calls that were sent, and then not waited for");
            let is_ours = |name: &String| name.contains("note") || name.ends_with("count");
            assert!(!seen.iter().any(is_ours), "{seen:?}");
            assert!(seen.iter().any(|name| name.ends_with("add")), "{seen:?}");
        }
    });
}

fn subscribers_that_panic(cluster: Cluster) {
    cluster.run(|world| {
        if world.rank() != 0 {
            return;
        }
        world.rpc_sync(1, start_panicking, ()).unwrap();
        start_panicking().unwrap();
        for a in 0..10 {
            assert_eq!(world.rpc_sync(1, add, (a, 2)).unwrap(), a + 2);
        }
        let call = world.rpc_async(1, add, (1, 2)).unwrap();
        assert_eq!(call.then(|sum| Ok(sum? + 1)).wait().unwrap(), 4);
        // Those that end on the thread that looks after limits, too.
        let limited = world.with_timeout(Duration::from_millis(100));
        for _ in 0..2 {
            let error = limited.rpc_async(1, forever, ()).unwrap().wait().unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
        }
        world.rpc_sync(1, stop, ()).unwrap();
        stop();
    });
}
