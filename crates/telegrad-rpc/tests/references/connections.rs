//! Connections that break between workers that live: no reference is lost, and none is left behind (S31).

use fastrand::Rng;
use telegrad_rpc::{Error, RemoteErrorKind, join_all};
use telegrad_testkit::{break_connections, on_cluster};

use super::*;

#[remote]
async fn forever(board: Board) {
    board.raise("running");
    std::future::pending::<()>().await;
}

#[remote]
fn pass_back(counters: Vec<RRef<Counter>>) -> Vec<RRef<Counter>> {
    counters
}

on_cluster! { unix: Cluster::processes(2) =>
    references_outlive_the_connection_they_came_over
    handing_over_on_breaking_connections_leaves_nothing_behind
}

on_cluster! { tcp: Cluster::processes(2).tcp() =>
    references_outlive_the_connection_they_came_over
    handing_over_on_breaking_connections_leaves_nothing_behind
}

on_cluster! { three: Cluster::processes(3) => references_of_a_third_worker_survive_breaking_connections }

/// A break is noticed when the call that waits for ever has failed.
fn break_noticeably(world: &World, board: &Board) {
    let waiting = world.rpc_async(1, forever, (board.clone(),)).unwrap();
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
        end(&world);
    });
}

fn use_while_breaking(world: &World, board: &Board) {
    let there = world.remote(1, Counter::new, (1, Some(board.clone()))).unwrap();
    let here = RRef::hold(world, Counter::new(1, Some(board.clone())).unwrap()).unwrap();
    let slow = world.remote(1, Counter::slowly, (2, board.clone())).unwrap();
    board.wait("making");
    let mut back = vec![there.clone(), here.clone()];
    for _ in 0..5 {
        break_noticeably(world, board);
        for counter in &back {
            assert_eq!(insist(|| counter.rpc_sync(Counter::get, ())), 1);
        }
        assert_eq!(insist(|| world.rpc_sync(1, add_to, (here.clone(), 0))), 1);
        back = insist(|| world.rpc_sync(1, pass_back, (back.clone(),)));
    }
    board.raise("make it");
    assert_eq!(insist(|| slow.rpc_sync(Counter::get, ())), 2);
    assert_eq!(board.count("freed"), 0);
    drop((there, here, back, slow));
    board.wait_for("freed", 3);
}

/// What a call gives over a connection that is whole: one that has broken unnoticed fails the first call.
#[track_caller]
fn insist<R>(call: impl Fn() -> Result<R>) -> R {
    let started = Instant::now();
    loop {
        match call() {
            Ok(value) => return value,
            Err(error) if started.elapsed() < PATIENCE => assert_broken(&error),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Leaves whole connections behind, and nothing else.
fn end(world: &World) {
    for rank in 0..world.size() as u32 {
        insist(|| world.rpc_sync(rank, ping, ()));
    }
    wait_for_nothing(world);
}

/// Does everything that hands references over, while something else breaks the connections.
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

fn handing_over_on_breaking_connections_leaves_nothing_behind(cluster: Cluster) {
    break_while_handing_over(cluster);
}

fn references_of_a_third_worker_survive_breaking_connections(cluster: Cluster) {
    break_while_handing_over(cluster);
}

fn break_while_handing_over(cluster: Cluster) {
    let board = cluster.board();
    cluster.options(retry_soon).run(move |world| {
        let mut random = Rng::with_seed(world.rank().into());
        let mut failed = 0;
        for round in 0..150 {
            if round % 5 == world.rank() {
                // From beside, so that it falls into the middle of something.
                std::thread::spawn(break_connections);
            }
            if let Err(error) = hand_over(&world, &mut random, &board) {
                assert_broken(&error);
                failed += 1;
            }
        }
        assert!(failed > 0, "nothing was ever in the way of a break");
        board.raise("done");
        board.wait_for("done", world.size());
        end(&world);
    });
}

/// Only what is to be expected when connections break: calls fail, and what was on its way is lost. But
/// nobody is taken for dead.
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
    assert!(!text.contains("counts as gone"), "{text}");
}

fn retry_soon(options: &mut telegrad_rpc::Options) {
    options.reference_retry = Duration::from_millis(50);
}
