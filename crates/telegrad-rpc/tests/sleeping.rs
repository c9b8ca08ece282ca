//! Async functions that sleep, with and without a runtime (S16).

use std::future::Future;
use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use telegrad_rpc::{
    Elapsed, Error, Options, RemoteErrorKind, Result, World, join_all, remote, sleep, timeout,
};
use telegrad_testkit::{Board, Cluster, on_cluster, on_every_cluster};

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(1000);

/// Sleeps, and returns how long that took.
#[remote]
async fn nap(time: Duration) -> Duration {
    let start = Instant::now();
    sleep(time).await;
    start.elapsed()
}

#[remote]
async fn sleep_on(board: Board) {
    let _dropped = board.raise_on_drop("dropped");
    board.raise("asleep");
    sleep(LONG).await;
}

#[remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// Awaits futures with a time limit: one that never completes, one that does, one that is late.
#[remote]
async fn limited() -> Result<i64> {
    let never = timeout(SHORT, std::future::pending::<i64>()).await;
    assert_eq!(never, Err(Elapsed { limit: SHORT }));
    let world = World::current()?;
    let sum = timeout(LONG, world.rpc_async(world.rank(), add, (1, 2))?).await??;
    timeout(SHORT, sleep(LONG)).await?;
    Ok(sum)
}

on_every_cluster! { 2 =>
    a_sleep_needs_no_runtime_and_lasts_long_enough
    cancellation_ends_a_sleep
    a_timeout_ends_the_awaited_future
}

on_cluster! { one_process: Cluster::threads(2) => a_function_that_needs_tokio_is_reported }

/// One thread is enough: a sleeping function occupies none.
fn one_thread(options: &mut Options) {
    options.num_worker_threads = 1;
}

fn a_sleep_needs_no_runtime_and_lasts_long_enough(cluster: Cluster) {
    cluster.options(one_thread).run_on_rank_0(|world, board| {
        // Long sleeps delay neither short ones nor calls that do not sleep.
        let long = world.rpc_async(1, sleep_on, (board.clone(),)).unwrap();
        board.wait("asleep");
        let times = [2, 1, 3, 0].map(|times| times * SHORT);
        let naps = times.map(|time| world.rpc_async(1, nap, (time,)).unwrap());
        assert_eq!(world.rpc_sync(1, add, (1, 2)).unwrap(), 3);
        let took = join_all(naps).wait().unwrap();
        for (time, took) in times.into_iter().zip(took) {
            assert!(took >= time, "{took:?} instead of {time:?}");
        }
        let many: Vec<_> = (0..500)
            .map(|_| world.rpc_async(1, nap, (SHORT,)).unwrap())
            .collect();
        join_all(many).wait().unwrap();
        drop(long);
        board.wait("dropped");
    });
}

fn cancellation_ends_a_sleep(cluster: Cluster) {
    cluster.options(one_thread).run_on_rank_0(|world, board| {
        let call = world.rpc_async(1, sleep_on, (board.clone(),)).unwrap();
        board.wait("asleep");
        assert_eq!(board.count("dropped"), 0);
        drop(call);
        board.wait("dropped");
        let brief = world.with_timeout(SHORT);
        let error = brief.rpc_sync(1, sleep_on, (board.clone(),)).unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        board.wait_for("dropped", 2);
    });
}

fn a_timeout_ends_the_awaited_future(cluster: Cluster) {
    cluster.options(one_thread).run_on_rank_0(|world, _| {
        let error = world.rpc_sync(1, limited, ()).unwrap_err();
        let error = error.remote().unwrap();
        assert_eq!(error.kind, RemoteErrorKind::Failed);
        assert_eq!(error.message, "not ready within the limit of 20ms");
    });
}

#[test]
fn a_sleep_of_zero_is_ready_and_one_of_the_maximum_never_is() {
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(pin!(sleep(Duration::ZERO)).poll(&mut cx), Poll::Ready(()));
    assert_eq!(pin!(sleep(Duration::MAX)).poll(&mut cx), Poll::Pending);
    // A future that is ready at once beats a time limit of zero.
    let ready = timeout(Duration::ZERO, std::future::ready(7));
    assert_eq!(pin!(ready).poll(&mut cx), Poll::Ready(Ok(7)));
}

#[remote]
async fn sleep_with_tokio() {
    tokio::time::sleep(SHORT).await;
}

#[remote]
async fn connect_with_tokio() -> Result<()> {
    tokio::net::TcpStream::connect("127.0.0.1:1").await?;
    Ok(())
}

/// A runtime without timers.
static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).build().unwrap()
});

#[remote]
fn enter_without_timers() {
    let _entered = RUNTIME.enter();
    drop(tokio::time::sleep(SHORT));
}

/// Uses tokio as the error text advises.
#[remote]
async fn spawn_with_tokio() -> Result<i64> {
    static WITH_TIMERS: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    });
    let slept = WITH_TIMERS.spawn(async {
        tokio::time::sleep(SHORT).await;
        7
    });
    slept.await.map_err(Error::other)
}

#[remote]
fn panics() {
    panic!("unrelated to tokio");
}

fn a_function_that_needs_tokio_is_reported(cluster: Cluster) {
    cluster.options(one_thread).run_on_rank_0(|world, _| {
        let errors = [
            world.rpc_sync(1, sleep_with_tokio, ()).unwrap_err(),
            world.rpc_sync(1, connect_with_tokio, ()).unwrap_err(),
            world.rpc_sync(1, enter_without_timers, ()).unwrap_err(),
        ];
        for error in errors {
            let error = error.remote().unwrap();
            assert_eq!(error.kind, RemoteErrorKind::Failed, "{error}");
            for part in [
                "outside of a tokio runtime",
                "`telegrad::sleep`",
                "`Handle::spawn`",
            ] {
                assert!(error.message.contains(part), "{error}");
            }
        }
        assert_eq!(world.rpc_sync(1, spawn_with_tokio, ()).unwrap(), 7);
        let error = world.rpc_sync(1, panics, ()).unwrap_err();
        assert_eq!(error.remote().unwrap().kind, RemoteErrorKind::Panicked);
    });
}
