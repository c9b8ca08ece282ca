//! Time limits: what they say, and how they travel (S15).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use telegrad_rpc::{Error, Options, RRef, Result, World, remote, time_left};
use telegrad_testkit::{Board, Cluster, on_every_cluster};
use telegrad_wire::{Decoder, Encoder, Wire, WireError};

const LIMIT: Duration = Duration::from_millis(100);

#[remote]
async fn forever() {
    std::future::pending::<()>().await;
}

#[remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// Runs to its end whatever happens to its caller.
#[remote]
fn hold(board: Board, x: i64) -> i64 {
    board.raise("running");
    board.wait("go");
    board.raise("finished");
    x
}

#[remote]
fn note(board: Board) {
    board.raise("ran");
}

#[remote(inline)]
fn ping() {}

#[remote]
fn left() -> Option<Duration> {
    time_left()
}

/// The time left here, and in a call from here that asks for an hour.
#[remote]
fn left_through(to: u32) -> Result<(Option<Duration>, Option<Duration>)> {
    let world = World::current()?.with_timeout(Duration::from_secs(3600));
    let here = time_left();
    Ok((here, world.rpc_sync(to, left, ())?))
}

/// Asks for an hour, and says what it got.
#[remote]
fn wait_through(to: u32, board: Board) -> Result<()> {
    let world = World::current()?.with_timeout(Duration::from_secs(3600));
    let error = world.rpc_sync(to, forever, ()).unwrap_err();
    board.post("inner", &format!("{error}"));
    Err(error)
}

#[track_caller]
fn assert_timeout(error: &Error, function: &str, expected: Duration) {
    let Error::Timeout { limit, elapsed, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(*limit, expected);
    assert!(
        *elapsed >= expected && *elapsed < expected + Duration::from_secs(5),
        "{elapsed:?}"
    );
    let text = format!(
        "`timeouts::{function}` on worker `w1` took longer than its limit of {limit:?} ({elapsed:?} elapsed)"
    );
    assert_eq!(error.to_string(), text);
}

fn on_rank_0(cluster: Cluster, body: impl Fn(World, Board) + Send + Sync + 'static) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 0 {
            body(world, board.clone());
        }
    });
}

on_every_cluster! { 2 =>
    a_call_that_takes_too_long_says_what_where_and_how_long
    the_limit_holds_without_anyone_waiting
    the_time_left_travels_along
    both_sides_agree_on_the_end_however_long_encoding_takes
    an_inner_call_ends_with_the_outer_one
    no_limit_is_no_limit
    a_world_may_have_no_limit_by_default
    a_limit_of_zero_fails_at_once
    a_late_reply_is_dropped_and_the_link_goes_on
    a_queued_call_whose_time_ran_out_is_never_run
}

fn a_call_that_takes_too_long_says_what_where_and_how_long(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let limited = world.with_timeout(LIMIT);
        assert_timeout(&limited.rpc_sync(1, forever, ()).unwrap_err(), "forever", LIMIT);
        let mut call = limited.rpc_async(1, forever, ()).unwrap();
        let error = call.wait_timeout(Duration::from_secs(20)).unwrap_err();
        assert_timeout(&error, "forever", LIMIT);
        // Many at once, waited for by a thread each.
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    assert_timeout(&limited.rpc_sync(1, forever, ()).unwrap_err(), "forever", LIMIT)
                });
            }
        });
        assert_eq!(world.rpc_sync(1, add, (1, 2)).unwrap(), 3);
        assert_eq!(world.debug_info().calls_out, 0);
    });
}

fn the_limit_holds_without_anyone_waiting(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        // Of several, the one made last may end first.
        let long = world.with_timeout(3 * LIMIT).rpc_async(1, forever, ()).unwrap();
        let short = world.with_timeout(LIMIT).rpc_async(1, forever, ()).unwrap();
        let (first, second) = (board.clone(), board.clone());
        let long = long.then(move |x| {
            first.post("ended", "long");
            x
        });
        let short = short.then(move |x| {
            second.post("ended", "short");
            x
        });
        assert_timeout(&long.wait().unwrap_err(), "forever", 3 * LIMIT);
        assert!(short.done());
        assert_timeout(&short.wait().unwrap_err(), "forever", LIMIT);
        assert_eq!(board.notes("ended"), ["short", "long"]);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let awaited = runtime.block_on(world.with_timeout(LIMIT).rpc_async(1, forever, ()).unwrap());
        assert_timeout(&awaited.unwrap_err(), "forever", LIMIT);
    });
}

fn the_time_left_travels_along(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let limit = Duration::from_secs(10);
        let (here, further) = world.with_timeout(limit).rpc_sync(1, left_through, (0,)).unwrap();
        let (here, further) = (here.unwrap(), further.unwrap());
        assert!(here <= limit && further <= here, "{here:?} {further:?}");
        assert!(further > Duration::from_secs(1), "{further:?}");
        // An async function's calls inherit it as well.
        let call = world.with_timeout(limit).rpc_async(1, left, ()).unwrap();
        assert!(call.wait().unwrap().unwrap() <= limit);
    });
}

/// Takes longer to encode than a call may take.
#[derive(Default)]
struct Slow {
    encoded: Mutex<Option<Instant>>,
}

impl Wire for Slow {
    fn encode(&self, encoder: &mut Encoder) {
        std::thread::sleep(2 * LIMIT);
        *self.encoded.lock().unwrap() = Some(Instant::now());
        ().encode(encoder);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        <()>::decode(decoder).map(|()| Self::default())
    }
}

#[remote]
fn left_after(_slow: Arc<Slow>) -> Option<Duration> {
    time_left()
}

#[remote]
async fn forever_after(_slow: Arc<Slow>) {
    std::future::pending::<()>().await;
}

fn both_sides_agree_on_the_end_however_long_encoding_takes(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let world = world.with_timeout(LIMIT);
        // The callee may be told less, for what sending takes, but not more than the caller waits.
        let left = world.rpc_sync(1, left_after, (Arc::default(),)).unwrap().unwrap();
        assert!(left <= LIMIT, "{left:?}");
        let slow = Arc::new(Slow::default());
        let error = world.rpc_sync(1, forever_after, (slow.clone(),)).unwrap_err();
        assert_timeout(&error, "forever_after", LIMIT);
        let encoded = slow.encoded.lock().unwrap().expect("it was encoded");
        assert!(encoded.elapsed() >= LIMIT, "{:?}", encoded.elapsed());
    });
}

fn an_inner_call_ends_with_the_outer_one(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let limit = Duration::from_millis(300);
        let started = Instant::now();
        world
            .with_timeout(limit)
            .rpc_sync(1, wait_through, (0, board.clone()))
            .unwrap_err();
        let inner = board.read("inner");
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{:?}",
            started.elapsed()
        );
        // Less than the outer limit: the way there has been taken off.
        let text = "`timeouts::forever` on worker `w0` took longer than its limit of 29";
        assert!(
            inner.starts_with(text) || inner.contains("limit of 2") && inner.contains("ms"),
            "{inner}"
        );
    });
}

fn no_limit_is_no_limit(cluster: Cluster) {
    let short = |options: &mut Options| options.rpc_timeout = Some(LIMIT);
    let board = cluster.board();
    // Every call here is subject to the short default, the shutdown's too.
    cluster.options(short).no_shutdown().run(move |world| {
        if world.rank() == 1 {
            return;
        }
        let unlimited = world.with_timeout(None);
        assert_eq!(unlimited.rpc_sync(1, left, ()).unwrap(), None);
        let call = unlimited.rpc_async(1, hold, (board.clone(), 3)).unwrap();
        board.wait("running");
        // The default's time passes, twice.
        for _ in 0..2 {
            assert_timeout(&world.rpc_sync(1, forever, ()).unwrap_err(), "forever", LIMIT);
        }
        assert!(!call.done());
        board.raise("go");
        assert_eq!(call.wait().unwrap(), 3);
    });
}

fn a_world_may_have_no_limit_by_default(cluster: Cluster) {
    let none = |options: &mut Options| options.rpc_timeout = None;
    cluster.options(none).run(|world| {
        if world.rank() == 0 {
            assert_eq!(world.rpc_sync(1, left, ()).unwrap(), None);
            let limited = world.with_timeout(LIMIT);
            assert_timeout(&limited.rpc_sync(1, forever, ()).unwrap_err(), "forever", LIMIT);
        }
    });
}

fn a_limit_of_zero_fails_at_once(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let started = Instant::now();
        let hasty = world.with_timeout(Duration::ZERO);
        let error = hasty.rpc_sync(1, note, (board.clone(),)).unwrap_err();
        assert_timeout(&error, "note", Duration::ZERO);
        // Also once there is a link.
        let value: RRef<i64> = world.remote(1, add, (1, 2)).unwrap();
        assert_eq!(value.to_here().unwrap(), 3);
        for error in [
            hasty.rpc_async(1, note, (board.clone(),)).map(drop).unwrap_err(),
            hasty.remote(1, note, (board.clone(),)).map(drop).unwrap_err(),
            value.with_timeout(Duration::ZERO).to_here().map(drop).unwrap_err(),
        ] {
            let is_late = matches!(&error, Error::Timeout { limit, .. } if limit.is_zero());
            assert!(is_late, "{error}");
        }
        assert_eq!(value.with_timeout(None).to_here().unwrap(), 3);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        // Nothing of it was sent: a later call on the same link comes after it.
        assert_eq!(world.rpc_sync(1, add, (1, 2)).unwrap(), 3);
        assert_eq!(board.count("ran"), 0);
        assert_eq!(world.debug_info().calls_out, 0);
    });
}

fn a_late_reply_is_dropped_and_the_link_goes_on(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let error = world
            .with_timeout(LIMIT)
            .rpc_sync(1, hold, (board.clone(), 77))
            .unwrap_err();
        assert_timeout(&error, "hold", LIMIT);
        board.raise("go");
        board.wait("finished");
        for i in 0..100 {
            assert_eq!(world.rpc_sync(1, add, (i, 1)).unwrap(), i + 1);
        }
    });
}

fn a_queued_call_whose_time_ran_out_is_never_run(cluster: Cluster) {
    on_rank_0(
        cluster.options(|options| options.num_worker_threads = 1),
        |world, board| {
            let first = world.rpc_async(1, hold, (board.clone(), 1)).unwrap();
            board.wait("running");
            // The only thread is taken, so this one queues.
            let error = world
                .with_timeout(LIMIT)
                .rpc_sync(1, note, (board.clone(),))
                .unwrap_err();
            assert_timeout(&error, "note", LIMIT);
            // Behind the cancellation, and in no need of the thread.
            world.rpc_sync(1, ping, ()).unwrap();
            board.raise("go");
            first.wait().unwrap();
            world.rpc_sync(1, note, (board.clone(),)).unwrap();
            assert_eq!(board.count("ran"), 1, "only the second");
        },
    );
}

#[test]
fn a_call_made_when_the_time_is_up_is_not_sent() {
    #[remote]
    fn use_up(board: Board) -> Result<i64> {
        while time_left().is_some_and(|left| !left.is_zero()) {
            std::thread::yield_now();
        }
        let result = World::current()?.rpc_sync(0, add, (1, 1));
        board.post("inner", &result.as_ref().unwrap_err().to_string());
        result
    }
    on_rank_0(Cluster::threads(2), |world, board| {
        world
            .with_timeout(LIMIT)
            .rpc_sync(1, use_up, (board.clone(),))
            .unwrap_err();
        let text = board.read("inner");
        assert!(
            text.starts_with("`timeouts::add` on worker `w0` took longer than its limit of 0ns"),
            "{text}"
        );
    });
}
