//! What a callee does when nobody wants the result any more.

use std::time::Duration;

use telegrad_rpc::{Options, Result, World, is_cancelled, remote};
use telegrad_testkit::{Board, Cluster, on_cluster, on_every_cluster};

/// Gives a signal when it is dropped.
struct Guard(Board, &'static str);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.raise(self.1);
    }
}

#[remote]
async fn forever(board: Board) {
    let _guard = Guard(board.clone(), "dropped");
    board.raise("running");
    std::future::pending::<()>().await;
}

/// An async function that waits in a call of its own.
#[remote]
async fn forever_through(to: u32, board: Board) -> Result<()> {
    let _guard = Guard(board.clone(), "dropped in between");
    World::current()?.rpc_async(to, forever, (board,))?.await
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

/// A long computation that looks now and then.
#[remote]
fn compute(board: Board) {
    board.raise("running");
    while !is_cancelled() {
        std::thread::yield_now();
    }
    board.raise("saw it");
}

fn one_thread(options: &mut Options) {
    options.num_worker_threads = 1;
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
    queued_work_is_dropped
    async_work_is_dropped
    async_work_is_dropped_when_its_time_is_up
    running_work_sees_it
    running_work_sees_that_its_time_is_up
    a_cancelled_call_cancels_the_calls_it_waits_for
    a_callers_end_cancels_its_calls
}

fn queued_work_is_dropped(cluster: Cluster) {
    on_rank_0(cluster.options(one_thread), |world, board| {
        let first = world.rpc_async(1, hold, (board.clone(),)).unwrap();
        board.wait("running");
        let queued: Vec<_> = (0..10)
            .map(|_| world.rpc_async(1, note, (board.clone(),)).unwrap())
            .collect();
        let kept = world.rpc_async(1, note, (board.clone(),)).unwrap();
        drop(queued);
        // Behind the cancellations, and in no need of the thread.
        world.rpc_sync(1, ping, ()).unwrap();
        board.raise("go");
        first.wait().unwrap();
        kept.wait().unwrap();
        assert_eq!(board.count("ran"), 1, "ten were dropped");
    });
}

fn async_work_is_dropped(cluster: Cluster) {
    // One thread is enough: an async function that waits holds none.
    on_rank_0(cluster.options(one_thread), |world, board| {
        let calls: Vec<_> = (0..10)
            .map(|_| world.rpc_async(1, forever, (board.clone(),)).unwrap())
            .collect();
        board.wait_for("running", 10);
        assert_eq!(board.count("dropped"), 0);
        drop(calls);
        board.wait_for("dropped", 10);
    });
}

fn async_work_is_dropped_when_its_time_is_up(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        world
            .with_timeout(Duration::from_millis(50))
            .rpc_sync(1, forever, (board.clone(),))
            .unwrap_err();
        board.wait("dropped");
    });
}

fn running_work_sees_it(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let call = world.rpc_async(1, compute, (board.clone(),)).unwrap();
        board.wait("running");
        assert_eq!(board.count("saw it"), 0);
        drop(call);
        board.wait("saw it");
    });
}

fn running_work_sees_that_its_time_is_up(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        // It may see that its time is up, and return, before the caller does.
        let _ = world
            .with_timeout(Duration::from_millis(50))
            .rpc_sync(1, compute, (board.clone(),));
        board.wait("saw it");
    });
}

fn a_cancelled_call_cancels_the_calls_it_waits_for(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let call = world.rpc_async(1, forever_through, (0, board.clone())).unwrap();
        board.wait("running");
        drop(call);
        board.wait("dropped in between");
        board.wait("dropped");
    });
}

fn a_callers_end_cancels_its_calls(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        if world.rank() == 1 {
            let calls = (
                world.rpc_async(0, forever, (board.clone(),)),
                world.rpc_async(0, compute, (board.clone(),)),
            );
            board.wait_for("running", 2);
            world.shutdown_now();
            return drop(calls);
        }
        board.wait("dropped");
        board.wait("saw it");
        let info = world.debug_info();
        assert_eq!(info.calls_out, 0, "{info}");
    });
}

on_cluster! { unix: Cluster::processes(2) => a_callers_death_cancels_its_calls }
on_cluster! { tcp: Cluster::processes(2).tcp() => a_callers_death_cancels_its_calls }

fn a_callers_death_cancels_its_calls(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(1).options(one_thread).run(move |world| {
        if world.rank() == 1 {
            let _calls = (
                world.rpc_async(0, forever, (board.clone(),)).unwrap(),
                world.rpc_async(0, compute, (board.clone(),)).unwrap(),
                // Behind the one that runs, on the only thread.
                world.rpc_async(0, note, (board.clone(),)).unwrap(),
            );
            return board.wait("never");
        }
        board.wait_for("running", 2);
        board.kill(1);
        board.wait("dropped");
        board.wait("saw it");
        world.rpc_sync(0, note, (board.clone(),)).unwrap();
        assert_eq!(board.count("ran"), 1, "what queued was dropped");
    });
}
