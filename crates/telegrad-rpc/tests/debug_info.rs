//! The counters of `DebugInfo`.

use std::time::{Duration, Instant};

use telegrad_rpc::{DebugInfo, Options, Result, World, remote};
use telegrad_testkit::{Board, Cluster, on_every_cluster};

#[remote]
fn hold(board: Board) {
    board.raise("running");
    board.wait("go");
}

#[remote]
fn hold_through(to: u32, board: Board) -> Result<()> {
    World::current()?.rpc_sync(to, hold, (board,))
}

#[remote]
fn length(bytes: Vec<u8>) -> usize {
    bytes.len()
}

/// Waits until the counters are as expected, and returns them.
#[track_caller]
fn wait_for(world: &World, expected: impl Fn(&DebugInfo) -> bool) -> DebugInfo {
    let started = Instant::now();
    loop {
        let info = world.debug_info();
        if expected(&info) {
            return info;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{info:#?}");
        std::thread::yield_now();
    }
}

on_every_cluster! { 2 =>
    pending_calls_are_counted_on_both_sides
    functions_blocked_in_a_nested_call_are_counted
    bytes_are_counted_in_both_directions
}

fn pending_calls_are_counted_on_both_sides(cluster: Cluster) {
    let board = cluster.board();
    let one_thread = |options: &mut Options| options.num_worker_threads = 1;
    cluster.options(one_thread).run(move |world| {
        let idle = world.debug_info();
        assert_eq!(
            (idle.calls_out, idle.calls_in, idle.queued, idle.running),
            (0, 0, 0, 0),
            "{idle:#?}"
        );
        board.raise("looked");
        board.wait_for("looked", 2);
        if world.rank() == 1 {
            let info = wait_for(&world, |info| {
                info.calls_in == 5 && info.queued == 4 && info.links_in == 1
            });
            assert_eq!(
                (info.running, info.blocked, info.calls_out),
                (1, 0, 0),
                "{info:#?}"
            );
            assert!(info.threads >= 1, "{info:#?}");
            board.raise("seen");
            board.raise("go");
            wait_for(&world, |info| {
                info.calls_in == 0 && info.calls_served == 5 && info.queued == 0
            });
            return board.wait("over");
        }
        let calls: Vec<_> = (0..5)
            .map(|_| world.rpc_async(1, hold, (board.clone(),)).unwrap())
            .collect();
        let info = world.debug_info();
        assert_eq!((info.calls_out, info.calls_made), (5, 5), "{info:#?}");
        let text = info.to_string();
        assert!(
            text.starts_with("calls: 5 out, 0 given up, 0 in (5 made, 0 served); functions: 0 running"),
            "{text}"
        );
        board.wait("seen");
        for call in calls {
            call.wait().unwrap();
        }
        assert_eq!(world.debug_info().calls_out, 0);
        board.raise("over");
    });
}

fn functions_blocked_in_a_nested_call_are_counted(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 1 {
            let info = wait_for(&world, |info| info.blocked == 1 && info.calls_out == 1);
            assert_eq!(
                (info.running, info.calls_in, info.calls_out),
                (0, 1, 1),
                "{info:#?}"
            );
            return board.raise("go");
        }
        world.rpc_sync(1, hold_through, (0, board.clone())).unwrap();
    });
}

fn bytes_are_counted_in_both_directions(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 1 {
            return board.wait("over");
        }
        let before = world.debug_info();
        for _ in 0..3 {
            assert_eq!(world.rpc_sync(1, length, (vec![0; 100_000],)).unwrap(), 100_000);
        }
        let after = world.debug_info();
        let (sent, received) = (
            after.bytes_out - before.bytes_out,
            after.bytes_in - before.bytes_in,
        );
        assert!((300_000..302_000).contains(&sent), "{sent}");
        assert!((3..2_000).contains(&received), "{received}");
        board.raise("over");
    });
}
