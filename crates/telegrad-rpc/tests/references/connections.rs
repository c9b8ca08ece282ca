//! Connections that break between live workers: no reference is lost, and none is left behind (S31).

use fastrand::Rng;
use telegrad_rpc::{Error, RemoteErrorKind, join_all};
use telegrad_testkit::{break_connections, on_cluster};

use super::*;

#[remote]
async fn never_ready(board: Board) {
    board.raise("running");
    std::future::pending::<()>().await;
}

#[remote]
fn pass_back(counters: Vec<RRef<Counter>>) -> Vec<RRef<Counter>> {
    counters
}

on_cluster! { unix: Cluster::processes(2), tcp: Cluster::processes(2).tcp() =>
    references_outlive_the_connection_they_came_over
    handing_over_on_breaking_connections_leaves_no_reference_behind
}

on_cluster! { three: Cluster::processes(3) => handing_over_among_three_workers_leaves_no_reference_behind }

/// Breaks all connections. The failure of a pending call shows that the break has been noticed.
fn break_and_notice(world: &World, board: &Board) {
    let waiting = world.rpc_async(1, never_ready, (board.clone(),)).unwrap();
    assert!(break_connections() > 0);
    let error = waiting.wait().unwrap_err();
    assert!(matches!(error, Error::WorkerLost { .. }), "{error:?}");
}

fn references_outlive_the_connection_they_came_over(cluster: Cluster) {
    let board = cluster.board();
    cluster.options(retry_soon).run(move |world| {
        if world.rank() == 0 {
            use_while_breaking(&world, &board);
            board.raise("body ended");
        }
        board.wait("body ended");
        finish(&world);
    });
}

fn use_while_breaking(world: &World, board: &Board) {
    let there = world.remote(1, Counter::new, (1, Some(board.clone()))).unwrap();
    let here = RRef::hold(world, Counter::new(1, Some(board.clone())).unwrap()).unwrap();
    let slow = world.remote(1, Counter::slowly, (2, board.clone())).unwrap();
    board.wait("making");
    let mut back = vec![there.clone(), here.clone()];
    for _ in 0..5 {
        break_and_notice(world, board);
        for counter in &back {
            assert_eq!(retry(|| counter.rpc_sync(Counter::get, ())), 1);
        }
        assert_eq!(retry(|| world.rpc_sync(1, add_to, (here.clone(), 0))), 1);
        back = retry(|| world.rpc_sync(1, pass_back, (back.clone(),)));
    }
    board.raise("make it");
    assert_eq!(retry(|| slow.rpc_sync(Counter::get, ())), 2);
    assert_eq!(board.count("freed"), 0);
    drop((there, here, back, slow));
    board.wait_for("freed", 3);
}

/// Repeats a call until it succeeds: an unnoticed break fails the first attempt.
#[track_caller]
fn retry<R>(call: impl Fn() -> Result<R>) -> R {
    let started = Instant::now();
    loop {
        match call() {
            Ok(value) => return value,
            Err(error) if started.elapsed() < PATIENCE => assert_broken(&error),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Replaces broken connections, and waits until no reference is left.
fn finish(world: &World) {
    for rank in 0..world.size() as u32 {
        retry(|| world.rpc_sync(rank, ping, ()));
    }
    wait_for_no_references(world);
}

/// Hands references over in every way, while other threads break the connections.
fn hand_over(world: &World, random: &mut Rng, board: &Board) -> Result<()> {
    let owner = random.u32(..world.size() as u32);
    let to = random.u32(..world.size() as u32);
    let made: Result<Vec<_>> = (0..5)
        .map(|n| world.remote(owner, Counter::new, (n, Some(board.clone()))))
        .collect();
    let made = made?;
    let calls: Result<Vec<_>> = made
        .iter()
        .map(|counter| world.rpc_async(to, add_to, (counter.clone(), 1)))
        .collect();
    let back = world.rpc_async(to, pass_back, (made,))?;
    join_all(calls?).wait()?;
    for (n, counter) in back.wait()?.into_iter().enumerate() {
        assert_eq!(counter.rpc_sync(Counter::get, ())?, n as i64 + 1);
    }
    Ok(())
}

fn handing_over_on_breaking_connections_leaves_no_reference_behind(cluster: Cluster) {
    break_while_handing_over(cluster);
}

fn handing_over_among_three_workers_leaves_no_reference_behind(cluster: Cluster) {
    break_while_handing_over(cluster);
}

fn break_while_handing_over(cluster: Cluster) {
    let board = cluster.board();
    cluster.options(retry_soon).run(move |world| {
        let mut random = Rng::with_seed(world.rank().into());
        let mut failed = 0;
        for round in 0..150 {
            if round % 5 == world.rank() {
                // From another thread, so that the break falls into a call.
                std::thread::spawn(break_connections);
            }
            if let Err(error) = hand_over(&world, &mut random, &board) {
                assert_broken(&error);
                failed += 1;
            }
        }
        assert!(failed > 0, "no break has hit a call");
        board.raise("done");
        board.wait_for("done", world.size());
        finish(&world);
    });
}

/// Checks that an error is one of broken connections: calls fail and messages are lost, but no worker counts as lost.
#[track_caller]
fn assert_broken(error: &Error) {
    let remote = error.remote().map(|remote| remote.kind);
    let expected = matches!(
        error,
        Error::WorkerLost { .. } | Error::Unreachable { .. } | Error::ReferenceLost { .. }
    ) || matches!(remote, Some(RemoteErrorKind::NoValue | RemoteErrorKind::Failed));
    assert!(expected, "{error}");
    let text = error.to_string();
    assert!(!text.contains("was lost with its owner"), "{text}");
    assert!(!text.contains("counts this worker as lost"), "{text}");
}

fn retry_soon(options: &mut telegrad_rpc::Options) {
    options.reference_retry = Duration::from_millis(50);
}
