//! Futures of calls: waiting, awaiting, chaining, joining, polling, dropping.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use telegrad_rpc::{Error, Result, RpcFuture, join_all, remote};
use telegrad_testkit::{Board, Cluster, block_on, on_every_cluster, wait_until};

/// Long enough for anything on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

#[remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[remote]
fn fail(why: String) -> Result<i64, String> {
    Err(why)
}

/// Runs until the board has the signal `go`.
#[remote]
fn hold(board: Board, x: i64) -> i64 {
    board.raise("running");
    board.wait("go");
    board.raise("finished");
    x
}

#[remote]
async fn never_ready(board: Board) {
    let _dropped = board.raise_on_drop("dropped");
    board.raise("running");
    std::future::pending::<()>().await;
}

on_every_cluster! { 2 =>
    a_future_can_be_awaited_in_any_executor
    a_future_can_be_awaited_in_tokio
    a_wait_that_times_out_leaves_the_call_running
    a_callback_gets_the_result_and_can_be_chained
    a_callback_gets_the_error_and_can_replace_it
    a_panic_in_a_callback_becomes_an_error
    a_result_arrives_without_a_waiting_thread
    results_are_joined_in_the_order_of_the_calls
    the_first_error_ends_a_join
    a_detached_call_runs_to_its_end
    dropping_a_future_cancels_the_call
    cancelling_a_future_cancels_the_call
    many_futures_are_awaited_at_once
}

fn wait_until_done(call: &RpcFuture<i64>) {
    wait_until(LIMIT, || call.done(), || "the call has no result");
}

fn a_future_can_be_awaited_in_any_executor(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        let sum = block_on(async {
            let first = world.rpc_async(1, add, (1, 2))?.await?;
            world.rpc_async(1, add, (first, 10))?.await
        });
        assert_eq!(sum.unwrap(), 13);
        let error = block_on(world.rpc_async(1, fail, ("no".into(),)).unwrap()).unwrap_err();
        assert_eq!(error.remote().unwrap().message, "no");
        // One that is pending at the first poll, and one that is ready.
        let held = world.rpc_async(1, hold, (board.clone(), 7)).unwrap();
        board.wait("running");
        std::thread::spawn(move || board.raise("go"));
        assert_eq!(block_on(held).unwrap(), 7);
        let ready = world.rpc_async(1, add, (1, 1)).unwrap();
        wait_until_done(&ready);
        assert_eq!(block_on(ready).unwrap(), 2);
    });
}

fn a_future_can_be_awaited_in_tokio(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let sums = runtime.block_on(async {
            let tasks: Vec<_> = (0..50)
                .map(|i| {
                    let world = world.clone();
                    tokio::spawn(async move {
                        let once = world.rpc_async(1, add, (i, 1))?.await?;
                        world.rpc_async(1, add, (once, 1))?.await
                    })
                })
                .collect();
            let mut sums = Vec::new();
            for task in tasks {
                sums.push(task.await.unwrap().unwrap());
            }
            sums
        });
        assert!(sums.into_iter().eq(2..52));
    });
}

fn many_futures_are_awaited_at_once(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let calls: Vec<_> = (0..200)
            .map(|i| world.rpc_async(1, add, (i, i)).unwrap())
            .collect();
        let sums = block_on(join_all(calls)).unwrap();
        assert!(sums.into_iter().eq((0..200).map(|i| 2 * i)));
    });
}

fn a_wait_that_times_out_leaves_the_call_running(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        let mut held = world.rpc_async(1, hold, (board.clone(), 5)).unwrap();
        board.wait("running");
        let started = Instant::now();
        assert_eq!(held.wait_timeout(Duration::from_millis(30)).unwrap(), None);
        assert!(
            started.elapsed() >= Duration::from_millis(30),
            "{:?}",
            started.elapsed()
        );
        assert_eq!(held.wait_timeout(Duration::ZERO).unwrap(), None);
        assert!(!held.done());
        board.raise("go");
        assert_eq!(held.wait_timeout(LIMIT).unwrap(), Some(5));
    });
}

fn a_callback_gets_the_result_and_can_be_chained(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        let again = world.clone();
        let chain = world.rpc_async(1, hold, (board.clone(), 5)).unwrap();
        let chain = chain
            .then(move |x| again.rpc_sync(1, add, (x?, 10)))
            .then(|x| Ok(format!("got {}", x?)));
        assert!(!chain.done());
        board.raise("go");
        assert_eq!(chain.wait().unwrap(), "got 15");

        // On a result that is ready, and awaited.
        let ready = world.rpc_async(1, add, (1, 1)).unwrap();
        wait_until_done(&ready);
        assert_eq!(block_on(ready.then(|x| Ok(x? * 2))).unwrap(), 4);

        // A detached callback still runs.
        let (seen, effect) = (board.clone(), world.rpc_async(1, add, (1, 1)).unwrap());
        effect
            .then(move |x| {
                seen.post("effect", &x?.to_string());
                Ok(())
            })
            .detach();
        assert_eq!(board.read("effect"), "2");
    });
}

fn a_callback_gets_the_error_and_can_replace_it(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let call = || world.rpc_async(1, fail, ("no".into(),)).unwrap();
        assert_eq!(call().then(|x| x.or(Ok(42))).wait().unwrap(), 42);
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let error = call()
            .then(|x| x)
            .then(move |x| {
                counted.fetch_add(1, SeqCst);
                x
            })
            .wait()
            .unwrap_err();
        assert_eq!(error.remote().unwrap().message, "no");
        assert_eq!(runs.load(SeqCst), 1);
        let error = call()
            .then(|_| Err::<(), _>(Error::other("another")))
            .wait()
            .unwrap_err();
        assert_eq!(error.to_string(), "another");
    });
}

fn a_panic_in_a_callback_becomes_an_error(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let future: RpcFuture<i64> = world
            .rpc_async(1, add, (1, 1))
            .unwrap()
            .then(|x| panic!("not {}", x.unwrap()));
        let error = future.then(|x| x).wait().unwrap_err();
        assert_eq!(error.to_string(), "the callback panicked: not 2");
        assert_eq!(
            world
                .rpc_async(1, add, (1, 1))
                .unwrap()
                .then(|x| x)
                .wait()
                .unwrap(),
            2,
            "later calls succeed"
        );
    });
}

fn a_result_arrives_without_a_waiting_thread(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        let held = world.rpc_async(1, hold, (board.clone(), 1)).unwrap();
        board.wait("running");
        assert!(!held.done());
        board.raise("go");
        wait_until_done(&held);
        assert!(held.done(), "a result stays ready");
        assert_eq!(held.wait().unwrap(), 1);
    });
}

fn results_are_joined_in_the_order_of_the_calls(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        // The first ends last.
        let mut calls = vec![world.rpc_async(1, hold, (board.clone(), -1)).unwrap()];
        calls.extend((0..10).map(|i| world.rpc_async(1, add, (i, 0)).unwrap()));
        board.wait("running");
        std::thread::spawn(move || board.raise("go"));
        assert!(join_all(calls).wait().unwrap().into_iter().eq(-1..10));
        assert_eq!(
            join_all(Vec::<RpcFuture<i64>>::new()).wait().unwrap(),
            Vec::<i64>::new(),
            "nothing is joined at once"
        );
        let none = block_on(join_all(Vec::<RpcFuture<i64>>::new())).unwrap();
        assert_eq!(none, Vec::<i64>::new());
    });
}

fn the_first_error_ends_a_join(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let call = |i: i64| match i % 2 {
            0 => world.rpc_async(1, add, (i, 0)).unwrap(),
            _ => world.rpc_async(1, fail, (format!("no {i}"),)).unwrap(),
        };
        let message = |error: Error| error.remote().unwrap().message.clone();
        assert_eq!(message(join_all((0..4).map(call)).wait().unwrap_err()), "no 1");
        assert!(message(block_on(join_all((0..4).map(call))).unwrap_err()).starts_with("no "));
        let each = join_all((0..4).map(call))
            .wait_each()
            .into_iter()
            .map(|x| x.map_err(message));
        let expected = [Ok(0), Err("no 1".into()), Ok(2), Err("no 3".into())];
        assert!(each.eq(expected));
    });
}

fn a_detached_call_runs_to_its_end(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        world.rpc_async(1, hold, (board.clone(), 1)).unwrap().detach();
        board.wait("running");
        assert_eq!(world.debug_info().calls_out, 1);
        board.raise("go");
        board.wait("finished");
        let is_answered = || world.debug_info().calls_out == 0;
        wait_until(LIMIT, is_answered, || "the reply was never received");
    });
}

fn dropping_a_future_cancels_the_call(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        let call = world.rpc_async(1, never_ready, (board.clone(),)).unwrap();
        board.wait("running");
        assert_eq!(board.count("dropped"), 0);
        drop(call);
        board.wait("dropped");
        assert_eq!(world.debug_info().calls_out, 0);
        // Dropping several cancels them too, and so does dropping a future that was polled.
        let calls: Vec<_> = (0..5)
            .map(|_| world.rpc_async(1, never_ready, (board.clone(),)).unwrap())
            .collect();
        board.wait_for("running", 6);
        drop(join_all(calls));
        board.wait_for("dropped", 6);
        let mut polled = world.rpc_async(1, never_ready, (board.clone(),)).unwrap();
        assert!(
            pin!(&mut polled)
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        board.wait_for("running", 7);
        drop(polled);
        board.wait_for("dropped", 7);
    });
}

fn cancelling_a_future_cancels_the_call(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        let call = world.rpc_async(1, never_ready, (board.clone(),)).unwrap();
        board.wait("running");
        call.cancel();
        board.wait("dropped");
    });
}
