//! Cancelled calls: how the callee stops its work.

use std::time::Duration;

use telegrad_rpc::{Options, Result, World, is_cancelled, remote};
use telegrad_testkit::{Board, Cluster, on_cluster, on_every_cluster};

#[remote]
async fn never_ready(board: Board) {
    let _dropped = board.raise_on_drop("dropped");
    board.raise("running");
    std::future::pending::<()>().await;
}

/// Awaits a nested call.
#[remote]
async fn never_ready_through(to: u32, board: Board) -> Result<()> {
    let _dropped = board.raise_on_drop("dropped in between");
    World::current()?.rpc_async(to, never_ready, (board,))?.await
}

#[remote]
fn hold(board: Board) {
    board.raise("running");
    board.wait("go");
}

#[remote]
fn note(board: Board) {
    board.raise("ran");
}

#[remote(inline)]
fn ping() {}

/// Computes until it finds itself cancelled.
#[remote]
fn compute(board: Board) {
    board.raise("running");
    while !is_cancelled() {
        std::thread::yield_now();
    }
    board.raise("saw cancellation");
}

fn one_thread(options: &mut Options) {
    options.num_worker_threads = 1;
}

on_every_cluster! { 2 =>
    a_cancelled_call_in_the_queue_never_runs
    a_cancelled_async_function_is_dropped
    an_async_function_is_dropped_when_its_call_times_out
    a_running_function_sees_its_cancellation
    a_running_function_sees_the_timeout_of_its_call
    a_cancelled_call_cancels_its_nested_calls
    the_shutdown_of_a_caller_cancels_its_calls
}

fn a_cancelled_call_in_the_queue_never_runs(cluster: Cluster) {
    cluster.options(one_thread).run_on_rank_0(|world, board| {
        let first = world.rpc_async(1, hold, (board.clone(),)).unwrap();
        board.wait("running");
        let queued: Vec<_> = (0..10)
            .map(|_| world.rpc_async(1, note, (board.clone(),)).unwrap())
            .collect();
        let kept = world.rpc_async(1, note, (board.clone(),)).unwrap();
        drop(queued);
        // Arrives behind the cancellations, and needs no thread.
        world.rpc_sync(1, ping, ()).unwrap();
        board.raise("go");
        first.wait().unwrap();
        kept.wait().unwrap();
        assert_eq!(board.count("ran"), 1, "the ten cancelled calls do not run");
    });
}

fn a_cancelled_async_function_is_dropped(cluster: Cluster) {
    // One thread is enough: a pending async function occupies none.
    cluster.options(one_thread).run_on_rank_0(|world, board| {
        let calls: Vec<_> = (0..10)
            .map(|_| world.rpc_async(1, never_ready, (board.clone(),)).unwrap())
            .collect();
        board.wait_for("running", 10);
        assert_eq!(board.count("dropped"), 0);
        drop(calls);
        board.wait_for("dropped", 10);
    });
}

fn an_async_function_is_dropped_when_its_call_times_out(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        world
            .with_timeout(Duration::from_millis(50))
            .rpc_sync(1, never_ready, (board.clone(),))
            .unwrap_err();
        board.wait("dropped");
    });
}

fn a_running_function_sees_its_cancellation(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        let call = world.rpc_async(1, compute, (board.clone(),)).unwrap();
        board.wait("running");
        assert_eq!(board.count("saw cancellation"), 0);
        drop(call);
        board.wait("saw cancellation");
    });
}

fn a_running_function_sees_the_timeout_of_its_call(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        // The function may notice the timeout, and return, before the caller times out.
        let _ = world
            .with_timeout(Duration::from_millis(50))
            .rpc_sync(1, compute, (board.clone(),));
        board.wait("saw cancellation");
    });
}

fn a_cancelled_call_cancels_its_nested_calls(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        let call = world
            .rpc_async(1, never_ready_through, (0, board.clone()))
            .unwrap();
        board.wait("running");
        drop(call);
        board.wait("dropped in between");
        board.wait("dropped");
    });
}

fn the_shutdown_of_a_caller_cancels_its_calls(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        if world.rank() == 1 {
            let calls = (
                world.rpc_async(0, never_ready, (board.clone(),)),
                world.rpc_async(0, compute, (board.clone(),)),
            );
            board.wait_for("running", 2);
            world.shutdown_now();
            return drop(calls);
        }
        board.wait("dropped");
        board.wait("saw cancellation");
        let info = world.debug_info();
        assert_eq!(info.calls_out, 0, "{info}");
    });
}

on_cluster! { unix: Cluster::processes(2), tcp: Cluster::processes(2).tcp() =>
    the_death_of_a_caller_cancels_its_calls
}

fn the_death_of_a_caller_cancels_its_calls(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(1).options(one_thread).run(move |world| {
        if world.rank() == 1 {
            let _calls = (
                world.rpc_async(0, never_ready, (board.clone(),)).unwrap(),
                world.rpc_async(0, compute, (board.clone(),)).unwrap(),
                // Queued: the only thread is busy.
                world.rpc_async(0, note, (board.clone(),)).unwrap(),
            );
            return board.wait("never");
        }
        board.wait_for("running", 2);
        board.kill(1);
        board.wait("dropped");
        board.wait("saw cancellation");
        world.rpc_sync(0, note, (board.clone(),)).unwrap();
        assert_eq!(board.count("ran"), 1, "the queued call does not run");
    });
}
