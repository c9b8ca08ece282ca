//! Time limits: their errors, and how nested calls inherit them (S15).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use telegrad_rpc::{Error, Options, RRef, Result, World, remote, time_left};
use telegrad_testkit::{Board, Cluster, on_every_cluster};
use telegrad_wire::{Decoder, Encoder, Wire, WireError};

const LIMIT: Duration = Duration::from_millis(100);

#[remote]
async fn never_ready() {
    std::future::pending::<()>().await;
}

#[remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// Runs until the board has the signal `go`, whatever its caller does.
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

/// Returns the time left here, and in a nested call that asks for an hour.
#[remote]
fn left_through(to: u32) -> Result<(Option<Duration>, Option<Duration>)> {
    let world = World::current()?.with_timeout(Duration::from_secs(3600));
    let here = time_left();
    Ok((here, world.rpc_sync(to, left, ())?))
}

/// Makes a nested call with a limit of an hour, and posts its error.
#[remote]
fn wait_through(to: u32, board: Board) -> Result<()> {
    let world = World::current()?.with_timeout(Duration::from_secs(3600));
    let error = world.rpc_sync(to, never_ready, ()).unwrap_err();
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

on_every_cluster! { 2 =>
    a_timeout_names_function_worker_limit_and_elapsed_time
    a_call_times_out_without_a_waiting_thread
    nested_calls_inherit_the_time_left
    both_sides_count_the_limit_from_the_end_of_encoding
    a_nested_call_times_out_with_the_outer_one
    a_limit_of_none_replaces_the_default
    a_default_of_none_is_no_limit
    a_limit_of_zero_fails_at_once
    a_barrier_with_a_limit_of_zero_is_not_entered
    a_late_reply_is_dropped_and_the_link_stays_usable
    a_queued_call_that_timed_out_never_runs
}

fn a_timeout_names_function_worker_limit_and_elapsed_time(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let limited = world.with_timeout(LIMIT);
        assert_timeout(
            &limited.rpc_sync(1, never_ready, ()).unwrap_err(),
            "never_ready",
            LIMIT,
        );
        let mut call = limited.rpc_async(1, never_ready, ()).unwrap();
        let error = call.wait_timeout(Duration::from_secs(20)).unwrap_err();
        assert_timeout(&error, "never_ready", LIMIT);
        // Several at once, with a waiting thread each.
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    assert_timeout(
                        &limited.rpc_sync(1, never_ready, ()).unwrap_err(),
                        "never_ready",
                        LIMIT,
                    )
                });
            }
        });
        assert_eq!(world.rpc_sync(1, add, (1, 2)).unwrap(), 3);
        assert_eq!(world.debug_info().calls_out, 0);
    });
}

fn a_call_times_out_without_a_waiting_thread(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        // The call made last ends first.
        let long = world
            .with_timeout(3 * LIMIT)
            .rpc_async(1, never_ready, ())
            .unwrap();
        let short = world.with_timeout(LIMIT).rpc_async(1, never_ready, ()).unwrap();
        let (first, second) = (board.clone(), board.clone());
        let long = long.then(move |x| {
            first.post("ended", "long");
            x
        });
        let short = short.then(move |x| {
            second.post("ended", "short");
            x
        });
        assert_timeout(&long.wait().unwrap_err(), "never_ready", 3 * LIMIT);
        assert!(short.done());
        assert_timeout(&short.wait().unwrap_err(), "never_ready", LIMIT);
        assert_eq!(board.notes("ended"), ["short", "long"]);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let awaited = runtime.block_on(world.with_timeout(LIMIT).rpc_async(1, never_ready, ()).unwrap());
        assert_timeout(&awaited.unwrap_err(), "never_ready", LIMIT);
    });
}

fn nested_calls_inherit_the_time_left(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let limit = Duration::from_secs(10);
        let (here, further) = world.with_timeout(limit).rpc_sync(1, left_through, (0,)).unwrap();
        let (here, further) = (here.unwrap(), further.unwrap());
        assert!(here <= limit && further <= here, "{here:?} {further:?}");
        assert!(further > Duration::from_secs(1), "{further:?}");
        // The limit of `rpc_async` travels as well.
        let call = world.with_timeout(limit).rpc_async(1, left, ()).unwrap();
        assert!(call.wait().unwrap().unwrap() <= limit);
    });
}

/// A value that takes longer to encode than the limit of its call.
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
async fn never_ready_after(_slow: Arc<Slow>) {
    std::future::pending::<()>().await;
}

fn both_sides_count_the_limit_from_the_end_of_encoding(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let world = world.with_timeout(LIMIT);
        // The callee may get less time than the caller waits, by the time of sending, but not more.
        let left = world.rpc_sync(1, left_after, (Arc::default(),)).unwrap().unwrap();
        assert!(left <= LIMIT, "{left:?}");
        let slow = Arc::new(Slow::default());
        let error = world.rpc_sync(1, never_ready_after, (slow.clone(),)).unwrap_err();
        assert_timeout(&error, "never_ready_after", LIMIT);
        let encoded = slow.encoded.lock().unwrap().expect("the time of encoding");
        assert!(encoded.elapsed() >= LIMIT, "{:?}", encoded.elapsed());
    });
}

fn a_nested_call_times_out_with_the_outer_one(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
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
        // Less than the outer limit, by the time of the way there.
        let text = "`timeouts::never_ready` on worker `w0` took longer than its limit of 29";
        assert!(
            inner.starts_with(text) || inner.contains("limit of 2") && inner.contains("ms"),
            "{inner}"
        );
    });
}

fn a_limit_of_none_replaces_the_default(cluster: Cluster) {
    let short = |options: &mut Options| options.rpc_timeout = Some(LIMIT);
    let board = cluster.board();
    // The short default applies to every call, those of a shutdown included.
    cluster.options(short).no_shutdown().run(move |world| {
        if world.rank() == 1 {
            return;
        }
        let unlimited = world.with_timeout(None);
        assert_eq!(unlimited.rpc_sync(1, left, ()).unwrap(), None);
        let call = unlimited.rpc_async(1, hold, (board.clone(), 3)).unwrap();
        board.wait("running");
        // Twice the default passes.
        for _ in 0..2 {
            assert_timeout(
                &world.rpc_sync(1, never_ready, ()).unwrap_err(),
                "never_ready",
                LIMIT,
            );
        }
        assert!(!call.done());
        board.raise("go");
        assert_eq!(call.wait().unwrap(), 3);
    });
}

fn a_default_of_none_is_no_limit(cluster: Cluster) {
    let none = |options: &mut Options| options.rpc_timeout = None;
    cluster.options(none).run(|world| {
        if world.rank() == 0 {
            assert_eq!(world.rpc_sync(1, left, ()).unwrap(), None);
            let limited = world.with_timeout(LIMIT);
            let error = limited.rpc_sync(1, never_ready, ()).unwrap_err();
            assert_timeout(&error, "never_ready", LIMIT);
        }
    });
}

fn a_limit_of_zero_fails_at_once(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        let started = Instant::now();
        let hasty = world.with_timeout(Duration::ZERO);
        let error = hasty.rpc_sync(1, note, (board.clone(),)).unwrap_err();
        assert_timeout(&error, "note", Duration::ZERO);
        // The same with a link.
        let value: RRef<i64> = world.remote(1, add, (1, 2)).unwrap();
        assert_eq!(value.to_here().unwrap(), 3);
        for error in [
            hasty.rpc_async(1, note, (board.clone(),)).map(drop).unwrap_err(),
            hasty.remote(1, note, (board.clone(),)).map(drop).unwrap_err(),
            value
                .with_timeout(Duration::ZERO)
                .to_here()
                .map(drop)
                .unwrap_err(),
        ] {
            let is_late = matches!(&error, Error::Timeout { limit, .. } if limit.is_zero());
            assert!(is_late, "{error}");
        }
        assert_eq!(value.with_timeout(None).to_here().unwrap(), 3);
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{:?}",
            started.elapsed()
        );
        // Requests of one link run in order, so an earlier one would have run by now.
        assert_eq!(world.rpc_sync(1, add, (1, 2)).unwrap(), 3);
        assert_eq!(board.count("ran"), 0);
        assert_eq!(world.debug_info().calls_out, 0);
    });
}

/// A gathering is not entered without time left, so that workers stay in step (S8).
fn a_barrier_with_a_limit_of_zero_is_not_entered(cluster: Cluster) {
    cluster.run(|world| {
        if world.rank() == 1 {
            let hasty = world.with_timeout(Duration::ZERO);
            for error in [
                hasty.barrier().unwrap_err(),
                hasty.all_gather(&1_i64).map(drop).unwrap_err(),
            ] {
                let is_late = matches!(&error, Error::Timeout { limit, .. } if limit.is_zero());
                assert!(is_late, "{error}");
            }
        }
        let ranks = world.all_gather(&world.rank()).unwrap();
        assert_eq!(ranks, [0, 1]);
        world.barrier().unwrap();
    });
}

fn a_late_reply_is_dropped_and_the_link_stays_usable(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
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

fn a_queued_call_that_timed_out_never_runs(cluster: Cluster) {
    cluster
        .options(|options| options.num_worker_threads = 1)
        .run_on_rank_0(|world, board| {
            let first = world.rpc_async(1, hold, (board.clone(), 1)).unwrap();
            board.wait("running");
            // Queued: the only thread is busy.
            let error = world
                .with_timeout(LIMIT)
                .rpc_sync(1, note, (board.clone(),))
                .unwrap_err();
            assert_timeout(&error, "note", LIMIT);
            // Arrives behind the cancellation, and needs no thread.
            world.rpc_sync(1, ping, ()).unwrap();
            board.raise("go");
            first.wait().unwrap();
            world.rpc_sync(1, note, (board.clone(),)).unwrap();
            assert_eq!(board.count("ran"), 1, "only the second call runs");
        });
}

#[test]
fn a_call_made_after_the_time_limit_is_not_sent() {
    #[remote]
    fn use_up(board: Board) -> Result<i64> {
        while time_left().is_some_and(|left| !left.is_zero()) {
            std::thread::yield_now();
        }
        let result = World::current()?.rpc_sync(0, add, (1, 1));
        board.post("inner", &result.as_ref().unwrap_err().to_string());
        result
    }
    Cluster::threads(2).run_on_rank_0(|world, board| {
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
