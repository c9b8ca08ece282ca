//! Workers that die, connections that break, peers that leave.

use std::time::{Duration, Instant};

use telegrad_rpc::{Error, RemoteErrorKind, Result, RpcFuture, World, remote};
use telegrad_testkit::{Board, Cluster, break_connections, on_cluster, on_every_cluster};
use telegrad_wire::{Buffer, DType, RawTensor, TensorMeta};

/// Every call that waits on a dead worker has failed by then.
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

fn tensor(bytes: usize) -> RawTensor {
    let meta = TensorMeta {
        dtype: DType::U8,
        shape: vec![bytes],
    };
    RawTensor::new(meta, Buffer::from_vec(vec![7_u8; bytes])).unwrap()
}

#[track_caller]
fn assert_lost(error: &Error, worker: &str, function: &str) {
    assert!(matches!(error, Error::WorkerLost { .. }), "{error:?}");
    let start = format!("worker `{worker}` was lost during the call of `failure::{function}`: ");
    assert!(error.to_string().starts_with(&start), "{error}");
}

on_cluster! { unix: Cluster::processes(3) =>
    calls_to_a_killed_worker_fail_at_once_and_the_others_go_on
    a_worker_killed_in_the_middle_of_large_transfers_fails_them
    a_death_further_down_names_the_dead_worker
    a_barrier_fails_at_once_when_a_member_is_killed
    a_barrier_fails_at_once_when_a_member_is_killed_in_it
}

on_cluster! { tcp: Cluster::processes(3).tcp() =>
    calls_to_a_killed_worker_fail_at_once_and_the_others_go_on
    a_worker_killed_in_the_middle_of_large_transfers_fails_them
    a_death_further_down_names_the_dead_worker
    a_barrier_fails_at_once_when_a_member_is_killed
    a_barrier_fails_at_once_when_a_member_is_killed_in_it
}

fn calls_to_a_killed_worker_fail_at_once_and_the_others_go_on(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(1).run(move |world| {
        if world.rank() == 1 {
            return board.wait("never");
        }
        // Waiting in every way there is: nobody yet, a thread of its own each, a callback.
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

        // It stays dead, and says so at once; the others go on.
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

fn a_worker_killed_in_the_middle_of_large_transfers_fails_them(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(1).run(move |world| {
        if world.rank() == 1 {
            return board.wait("never");
        }
        let large = tensor(8 << 20);
        let mut sent = 0;
        let error = loop {
            match world.rpc_sync(1, sink, (large.clone(),)) {
                Ok(bytes) => assert_eq!(bytes, 8 << 20),
                Err(error) => break error,
            }
            sent += 1;
            if world.rank() == 0 && sent == 3 {
                // From beside, so that it falls into a transfer.
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

fn a_death_further_down_names_the_dead_worker(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(2).run(move |world| {
        if world.rank() > 0 {
            return board.wait(if world.rank() == 1 { "over" } else { "never" });
        }
        let call = world.rpc_async(1, through, (2, board.clone())).unwrap();
        board.wait("running");
        board.kill(2);
        let error = call.wait().unwrap_err();
        let remote = error.remote().expect("it happened on w1");
        assert_eq!((remote.kind, remote.worker()), (RemoteErrorKind::Failed, "w1"));
        let lost = "worker `w2` was lost during the call of `failure::forever`";
        assert!(remote.message.starts_with(lost), "{error}");
        board.raise("over");
    });
}

fn a_barrier_fails_at_once_when_a_member_is_killed(cluster: Cluster) {
    let board = cluster.board();
    cluster.may_die(2).run(move |world| {
        // Rank 0 learns of deaths from those that have called it.
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
                // Comes after the other call.
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
    a_peer_that_shuts_down_ends_the_calls_to_it
    a_peer_that_leaves_can_be_told_from_one_that_dies
}

fn a_peer_that_shuts_down_ends_the_calls_to_it(cluster: Cluster) {
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

fn a_peer_that_leaves_can_be_told_from_one_that_dies(cluster: Cluster) {
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

on_cluster! { broken_unix: Cluster::processes(2) =>
    a_broken_connection_is_made_anew_by_the_next_call
    calls_on_a_broken_connection_fail_at_once
}

on_cluster! { broken_tcp: Cluster::processes(2).tcp() =>
    a_broken_connection_is_made_anew_by_the_next_call
    calls_on_a_broken_connection_fail_at_once
}

fn a_broken_connection_is_made_anew_by_the_next_call(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 1 {
            return board.wait("over");
        }
        for round in 1..=5 {
            assert_eq!(world.rpc_sync(1, name, ()).unwrap(), "w1");
            assert_eq!(world.rpc_sync(1, sink, (tensor(200_000),)).unwrap(), 200_000);
            // A call that waits is how to know that the break has been noticed.
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
