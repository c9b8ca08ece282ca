//! Workers that die, connections that break, peers that shut down.

use std::time::{Duration, Instant};

use telegrad_rpc::{Error, RemoteErrorKind, Result, RpcFuture, World, remote};
use telegrad_testkit::{Board, Cluster, break_connections, byte_tensor, on_cluster, on_every_cluster};
use telegrad_wire::RawTensor;

/// The time within which every call to a dead worker fails.
const SOON: Duration = Duration::from_secs(1);

#[remote]
fn name() -> Result<String> {
    Ok(World::current()?.name().into())
}

#[remote]
async fn forever(board: Board) {
    board.raise("running");
    std::future::pending::<()>().await;
}

#[remote]
fn block(board: Board) {
    board.raise("running");
    board.wait("never");
}

#[remote]
fn through(to: u32, board: Board) -> Result<()> {
    World::current()?.rpc_sync(to, forever, (board,))
}

#[remote]
fn sink(tensor: RawTensor) -> u64 {
    tensor.bytes().len() as u64
}

#[track_caller]
fn assert_lost(error: &Error, worker: &str, function: &str) {
    assert!(matches!(error, Error::WorkerLost { .. }), "{error:?}");
    let start = format!("worker `{worker}` was lost during the call of `failure::{function}`: ");
    assert!(error.to_string().starts_with(&start), "{error}");
}

on_cluster! { unix: Cluster::processes(3), tcp: Cluster::processes(3).tcp() =>
    calls_to_a_killed_worker_fail_at_once_and_other_workers_still_serve
    large_transfers_fail_when_their_worker_is_killed
    an_error_of_a_nested_call_names_the_dead_worker
    a_barrier_fails_at_once_after_the_death_of_a_member
    a_barrier_fails_at_once_when_a_member_is_killed_in_it
}

fn calls_to_a_killed_worker_fail_at_once_and_other_workers_still_serve(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(1).run(move |world| {
        if world.rank() == 1 {
            return board.wait("never");
        }
        // All ways to wait: futures that no thread waits for yet, a callback, a thread each.
        let calls: Vec<_> = (0..10)
            .map(|_| world.rpc_async(1, forever, (board.clone(),)).unwrap())
            .collect();
        let blocked: Vec<_> = (0..4)
            .map(|_| world.rpc_async(1, block, (board.clone(),)).unwrap())
            .collect();
        let callback = world.rpc_async(1, forever, (board.clone(),)).unwrap();
        let callback: RpcFuture<()> = callback.then(|result| {
            assert_lost(&result.unwrap_err(), "w1", "forever");
            Ok(())
        });
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let (world, board) = (world.clone(), board.clone());
                std::thread::spawn(move || (world.rpc_sync(1, forever, (board,)), Instant::now()))
            })
            .collect();
        board.wait_for("running", 2 * (10 + 4 + 1 + 4));
        if world.rank() == 0 {
            board.kill(1);
            board.raise("killed");
        }
        board.wait("killed");
        let killed = Instant::now();
        for call in calls {
            assert_lost(&call.wait().unwrap_err(), "w1", "forever");
        }
        for call in blocked {
            assert_lost(&call.wait().unwrap_err(), "w1", "block");
        }
        callback.wait().unwrap();
        for thread in waiting {
            let (result, ended) = thread.join().unwrap();
            assert_lost(&result.unwrap_err(), "w1", "forever");
            assert!(
                ended.saturating_duration_since(killed) < SOON,
                "{:?}",
                ended - killed
            );
        }
        assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());

        // Later calls fail at once too; the other workers still serve.
        let error = world.rpc_sync("w1", name, ()).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert!(
            error.to_string().starts_with("cannot connect to worker `w1`: "),
            "{error}"
        );
        assert!(killed.elapsed() < 2 * SOON, "{:?}", killed.elapsed());
        let other = 2 - world.rank();
        assert_eq!(world.rpc_sync(other, name, ()).unwrap(), format!("w{other}"));
    });
}

fn large_transfers_fail_when_their_worker_is_killed(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(1).run(move |world| {
        if world.rank() == 1 {
            return board.wait("never");
        }
        let large = byte_tensor(vec![7; 8 << 20]);
        let mut sent = 0;
        let error = loop {
            match world.rpc_sync(1, sink, (large.clone(),)) {
                Ok(bytes) => assert_eq!(bytes, 8 << 20),
                Err(error) => break error,
            }
            sent += 1;
            if world.rank() == 0 && sent == 3 {
                // From another thread, so that the kill falls into a transfer.
                let board = board.clone();
                std::thread::spawn(move || board.kill(1));
            }
        };
        let text = error.to_string();
        let expected = [
            "worker `w1` was lost during the call of `failure::sink`",
            "cannot connect to worker `w1`",
        ];
        assert!(
            expected.iter().any(|expected| text.starts_with(expected)),
            "{text}"
        );
        let other = 2 - world.rank();
        assert_eq!(world.rpc_sync(other, sink, (large,)).unwrap(), 8 << 20);
    });
}

fn an_error_of_a_nested_call_names_the_dead_worker(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(2).run(move |world| {
        if world.rank() > 0 {
            return board.wait(if world.rank() == 1 { "over" } else { "never" });
        }
        let call = world.rpc_async(1, through, (2, board.clone())).unwrap();
        board.wait("running");
        board.kill(2);
        let error = call.wait().unwrap_err();
        let remote = error.remote().expect("an error of w1");
        assert_eq!((remote.kind, remote.worker()), (RemoteErrorKind::Failed, "w1"));
        let lost = "worker `w2` was lost during the call of `failure::forever`";
        assert!(remote.message.starts_with(lost), "{error}");
        board.raise("over");
    });
}

fn a_barrier_fails_at_once_after_the_death_of_a_member(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(2).run(move |world| {
        // Rank 0 notices the death of a worker by the connection over which that worker called.
        world.barrier().unwrap();
        board.raise("met");
        board.wait_for("met", 3);
        match world.rank() {
            0 => board.kill(2),
            1 => {}
            _ => return board.wait("never"),
        }
        let started = Instant::now();
        let error = world.barrier().unwrap_err().to_string();
        assert!(error.contains("worker `w2` (rank 2) was lost"), "{error}");
        assert!(started.elapsed() < 2 * SOON, "{:?}", started.elapsed());
    });
}

fn a_barrier_fails_at_once_when_a_member_is_killed_in_it(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(2).run(move |world| {
        match world.rank() {
            0 => {
                board.wait("inside");
                board.kill(2);
            }
            1 => board.wait("failed"),
            _ => {
                let waiting = world.clone();
                std::thread::spawn(move || waiting.barrier());
                while world.debug_info().calls_out == 0 {
                    std::thread::yield_now();
                }
                // Arrives after the call of the barrier.
                world.rpc_sync(0, name, ()).unwrap();
                board.raise("inside");
                return board.wait("never");
            }
        }
        let error = world.barrier().unwrap_err().to_string();
        assert!(error.contains("worker `w2` (rank 2) was lost"), "{error}");
        board.raise("failed");
    });
}

on_every_cluster! { 2 =>
    the_shutdown_of_a_peer_fails_the_calls_to_it
    dropping_the_world_of_a_peer_fails_the_calls_to_it
}

fn the_shutdown_of_a_peer_fails_the_calls_to_it(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run(move |world| {
        if world.rank() == 1 {
            board.wait_for("running", 2);
            return world.shutdown_now();
        }
        let calls = [
            world.rpc_async(1, forever, (board.clone(),)),
            world.rpc_async(1, forever, (board.clone(),)),
        ];
        for call in calls {
            let error = call.unwrap().wait().unwrap_err();
            assert_lost(&error, "w1", "forever");
            assert!(
                error.to_string().ends_with(": worker `w1` has shut down"),
                "{error}"
            );
        }
        let error = world.rpc_sync(1, name, ()).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert_eq!(world.rpc_sync(0, name, ()).unwrap(), "w0");
    });
}

fn dropping_the_world_of_a_peer_fails_the_calls_to_it(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run_by_hand(move |member| {
        let world = member.init().unwrap();
        if member.rank() == 1 {
            board.wait("running");
            drop(world);
        } else {
            let error = world.rpc_sync(1, forever, (board.clone(),)).unwrap_err();
            assert_lost(&error, "w1", "forever");
        }
        member.wait_for_all();
    });
}

on_cluster! { broken_unix: Cluster::processes(2), broken_tcp: Cluster::processes(2).tcp() =>
    the_next_call_replaces_a_broken_connection
    calls_on_a_broken_connection_fail_at_once
}

fn the_next_call_replaces_a_broken_connection(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 1 {
            return board.wait("over");
        }
        for round in 1..=5 {
            assert_eq!(world.rpc_sync(1, name, ()).unwrap(), "w1");
            assert_eq!(
                world.rpc_sync(1, sink, (byte_tensor(vec![7; 200_000]),)).unwrap(),
                200_000
            );
            // The failure of a pending call shows that the break has been noticed.
            let waiting = world.rpc_async(1, forever, (board.clone(),)).unwrap();
            assert!(break_connections() > 0, "round {round}");
            assert_lost(&waiting.wait().unwrap_err(), "w1", "forever");
        }
        assert_eq!(world.rpc_sync(1, name, ()).unwrap(), "w1");
        board.raise("over");
    });
}

fn calls_on_a_broken_connection_fail_at_once(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 1 {
            return board.wait("over");
        }
        let call = world.rpc_async(1, forever, (board.clone(),)).unwrap();
        board.wait("running");
        let broken = Instant::now();
        assert!(break_connections() > 0);
        assert_lost(&call.wait().unwrap_err(), "w1", "forever");
        assert!(broken.elapsed() < SOON, "{:?}", broken.elapsed());
        assert_eq!(world.rpc_sync(1, name, ()).unwrap(), "w1");
        board.raise("over");
    });
}
