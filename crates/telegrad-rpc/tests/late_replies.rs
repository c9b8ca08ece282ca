//! Replies after the time limit of their call are dropped, whichever side is slow (S15).
//!
//! A test binary of its own, because it blocks the timer thread, of which a process has one.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use telegrad_net::{Closed, Flush, Identity, Link, Outgoing, SendError, Waiting};
use telegrad_rpc::extension::LinkLayer;
use telegrad_rpc::{Error, Options, RRef, Result, World, remote};
use telegrad_testkit::{Cluster, LayeredLink, on_cluster, wait_until};
use telegrad_wire::FrameKind;

const LIMIT: Duration = Duration::from_millis(50);
/// Long enough for anything on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gate that blocks threads while it is closed.
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    const fn new() -> Self {
        Self(Mutex::new(true), Condvar::new())
    }

    fn set(&self, is_open: bool) {
        *self.0.lock().unwrap() = is_open;
        self.1.notify_all();
    }

    fn pass(&self) {
        let gate = self.0.lock().unwrap();
        let passed = self.1.wait_timeout_while(gate, PATIENCE, |is_open| !*is_open);
        assert!(!passed.unwrap().1.timed_out());
    }
}

/// Blocks the timer thread, which ends calls at their time limits.
static TIMER: Gate = Gate::new();
/// Blocks the replies of rank 1.
static REPLIES: Gate = Gate::new();
/// Held by the running test: the gates belong to the process.
static TURN: Mutex<()> = Mutex::new(());

/// A caller's link on a machine so busy that no thread runs at a deadline.
struct Starved(Arc<dyn Link>);

impl Link for Starved {
    fn peer(&self) -> &Identity {
        self.0.peer()
    }

    fn send(&self, message: Outgoing, flush: Flush, deadline: Option<Instant>) -> Result<(), SendError> {
        self.0.send(message, flush, deadline)
    }

    fn flush(&self) {
        self.0.flush();
    }

    fn wait_for_credit(&self, deadline: Option<Instant>) -> Result<bool, Closed> {
        self.0.wait_for_credit(deadline)
    }

    fn wait(&self, waiting: &dyn Waiting, _: Option<Instant>) {
        self.0.wait(waiting, Some(Instant::now() + PATIENCE));
    }

    fn poll(&self) {
        TIMER.pass();
        self.0.poll();
    }

    fn interrupt(&self) {
        self.0.interrupt();
    }

    fn watch(&self, on: bool) {
        self.0.watch(on);
    }

    fn close(&self, why: &str) {
        self.0.close(why);
    }

    fn closed(&self) -> Option<Closed> {
        self.0.closed()
    }
}

fn starve(options: &mut Options) {
    options.link_layer = Some(if options.rank == Some(0) {
        LinkLayer::new(|link| Arc::new(Starved(link)))
    } else {
        LinkLayer::new(|link| {
            LayeredLink::around(link, |link, message, flush, deadline| {
                if message.header.kind == FrameKind::Reply {
                    REPLIES.pass();
                }
                link.send(message, flush, deadline)
            })
        })
    });
}

#[remote]
fn five() -> i64 {
    5
}

#[remote]
fn refer() -> Result<RRef<i64>> {
    RRef::new(&World::current()?, 7)
}

on_cluster! { mem: Cluster::threads(2), tcp: Cluster::threads(2).tcp() =>
    a_late_reply_is_a_timeout
    the_references_in_a_late_reply_are_released
}
on_cluster! { unwatched_tcp: Cluster::threads(2).tcp() => a_reply_is_read_in_time_without_a_waiting_thread }

/// Makes a call whose reply arrives long after its time limit, but before any thread has ended the call.
#[track_caller]
fn late<T>(call: impl FnOnce() -> Result<T>) {
    TIMER.set(false);
    REPLIES.set(false);
    let started = Instant::now();
    let opener = std::thread::spawn(move || {
        while started.elapsed() < 3 * LIMIT {
            std::thread::sleep(LIMIT);
        }
        REPLIES.set(true);
    });
    let result = call();
    opener.join().unwrap();
    TIMER.set(true);
    match result {
        Err(Error::Timeout { limit, elapsed, .. }) => {
            assert_eq!(limit, LIMIT);
            assert!(elapsed >= LIMIT, "{elapsed:?}");
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("a late reply was accepted"),
    }
}

fn a_late_reply_is_a_timeout(cluster: Cluster) {
    let _turn = TURN.lock().unwrap();
    cluster.options(starve).run_on_rank_0(|world, _| {
        assert_eq!(world.rpc_sync(1, five, ()).unwrap(), 5);
        let value = world.remote(1, five, ()).unwrap();
        assert_eq!(value.to_here().unwrap(), 5);
        let limited = world.with_timeout(LIMIT);
        late(|| limited.rpc_sync(1, five, ()));
        late(|| limited.rpc_async(1, five, ())?.wait());
        late(|| limited.rpc_async(1, five, ())?.then(|result| result).wait());
        late(|| value.with_timeout(LIMIT).to_here());
        // Without a time limit, no reply is late.
        let patient = world.with_timeout(None);
        assert_eq!(patient.rpc_sync(1, five, ()).unwrap(), 5);
    });
}

fn the_references_in_a_late_reply_are_released(cluster: Cluster) {
    let _turn = TURN.lock().unwrap();
    cluster.options(starve).run(|world| {
        if world.rank() == 0 {
            assert_eq!(world.rpc_sync(1, refer, ()).unwrap().to_here().unwrap(), 7);
            late(|| world.with_timeout(LIMIT).rpc_sync(1, refer, ()));
        }
        let is_empty = || world.references().is_empty();
        wait_until(PATIENCE, is_empty, || format!("{:#?}", world.references()));
    });
}

/// The timer thread polls for replies before the time limit.
fn a_reply_is_read_in_time_without_a_waiting_thread(cluster: Cluster) {
    let _turn = TURN.lock().unwrap();
    cluster.run_on_rank_0(|world, _| {
        let limit = Duration::from_secs(2);
        let future = world.with_timeout(limit).rpc_async(1, five, ()).unwrap();
        std::thread::sleep(limit + LIMIT);
        assert_eq!(future.wait().unwrap(), 5);
    });
}
