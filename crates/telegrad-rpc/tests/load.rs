//! More calls than a worker accepts: callers wait for credit, or fail.

use std::time::Duration;

use telegrad_rpc::{Error, Options, Result, RpcFuture, World, join_all, remote};
use telegrad_testkit::{Board, Cluster, on_every_cluster};

#[remote]
fn hold(board: Board) {
    board.raise("running");
    board.wait("go");
}

#[remote]
fn length(bytes: Vec<u8>) -> usize {
    bytes.len()
}

#[remote]
fn bounce(depth: u32, peer: u32, bytes: Vec<u8>) -> Result<u32> {
    let world = World::current()?;
    if depth == 0 {
        return Ok(0);
    }
    Ok(1 + world.rpc_sync(peer, bounce, (depth - 1, world.rank(), bytes))?)
}

/// A window for a few requests, and one thread to run them.
fn small_window(options: &mut Options) {
    options.window = 64 << 10;
    options.num_worker_threads = 1;
}

/// The arguments of a request of 8 kB.
fn argument() -> (Vec<u8>,) {
    (vec![1; 8000],)
}

/// Occupies the only thread of rank 1.
fn occupy(world: &World, board: &Board) -> RpcFuture<()> {
    let held = world.rpc_async(1, hold, (board.clone(),)).unwrap();
    board.wait("running");
    held
}

/// Makes calls to rank 1 until its window is full. Returns the calls, and the error of the last attempt.
fn fill_window(world: &World) -> (Vec<RpcFuture<usize>>, Error) {
    let mut calls = Vec::new();
    loop {
        match world.no_wait().rpc_async(1, length, argument()) {
            Ok(call) => calls.push(call),
            Err(error) => return (calls, error),
        }
        assert!(calls.len() < 100, "the window never fills");
    }
}

on_every_cluster! { 2 =>
    callers_of_a_full_callee_wait_and_all_calls_complete
    a_call_that_may_not_wait_for_credit_fails
    a_caller_waits_for_credit_no_longer_than_its_limit
    nested_calls_through_a_full_window_complete
    a_request_larger_than_the_window_is_served
    many_callers_of_one_worker_all_complete
}

fn callers_of_a_full_callee_wait_and_all_calls_complete(cluster: Cluster) {
    let board = cluster.board();
    cluster.options(small_window).run(move |world| {
        if world.rank() == 1 {
            return board.wait("over");
        }
        let held = occupy(&world, &board);
        let (filling, posted) = (world.clone(), board.clone());
        let filler = std::thread::spawn(move || {
            let calls: Vec<_> = (0..100)
                .map(|_| {
                    let call = filling.rpc_async(1, length, argument()).unwrap();
                    posted.raise("made");
                    call
                })
                .collect();
            join_all(calls).wait().unwrap()
        });
        // The window is full once a call that does not wait fails.
        while world
            .no_wait()
            .rpc_async(1, length, argument())
            .map(|call| call.detach())
            .is_ok()
        {
            std::thread::yield_now();
        }
        let made = board.count("made");
        assert!(made < 20, "{made} calls of 8 kB fit into 64 kB");
        assert!(!held.done());
        board.raise("go");
        assert_eq!(filler.join().unwrap(), [8000; 100]);
        held.wait().unwrap();
        board.raise("over");
    });
}

fn a_call_that_may_not_wait_for_credit_fails(cluster: Cluster) {
    let board = cluster.board();
    cluster.options(small_window).run(move |world| {
        if world.rank() == 1 {
            return board.wait("over");
        }
        let held = occupy(&world, &board);
        let (calls, error) = fill_window(&world);
        assert!(matches!(error, Error::Overloaded { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "worker `w1` has no credit for another request of `load::length`: wait for replies first"
        );
        assert!(calls.len() >= 4, "{} calls of 8 kB fit into 64 kB", calls.len());
        board.raise("go");
        held.wait().unwrap();
        let all = calls.len();
        assert_eq!(join_all(calls).wait().unwrap(), vec![8000; all]);
        assert_eq!(
            world.no_wait().rpc_sync(1, length, argument()).unwrap(),
            8000,
            "the credit is back"
        );
        board.raise("over");
    });
}

fn a_caller_waits_for_credit_no_longer_than_its_limit(cluster: Cluster) {
    let board = cluster.board();
    cluster.options(small_window).run(move |world| {
        if world.rank() == 1 {
            return board.wait("over");
        }
        let held = occupy(&world, &board);
        let (calls, _) = fill_window(&world);
        for _ in 0..10 {
            let limited = world.with_timeout(Duration::from_millis(20));
            let error = limited.rpc_async(1, length, argument()).unwrap_err();
            let start = "`load::length` on worker `w1` took longer than its limit of 20ms";
            assert!(error.to_string().starts_with(start), "{error}");
        }
        // The calls were not sent, so they expect no reply.
        assert_eq!(world.debug_info().calls_given_up, 0);
        board.raise("go");
        held.wait().unwrap();
        join_all(calls).wait().unwrap();
        board.raise("over");
    });
}

fn nested_calls_through_a_full_window_complete(cluster: Cluster) {
    let tiny = |options: &mut Options| {
        options.window = 4096;
        options.num_worker_threads = 1;
    };
    cluster.options(tiny).run(|world| {
        let peer = 1 - world.rank();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let depth = world.rpc_sync(peer, bounce, (6, world.rank(), vec![0; 3000]));
                    assert_eq!(depth.unwrap(), 6);
                });
            }
        });
    });
}

fn a_request_larger_than_the_window_is_served(cluster: Cluster) {
    cluster.options(small_window).run(|world| {
        let peer = 1 - world.rank();
        let calls: Vec<_> = (0..4)
            .map(|_| world.rpc_async(peer, length, (vec![0; 1 << 20],)).unwrap())
            .collect();
        assert_eq!(join_all(calls).wait().unwrap(), [1 << 20; 4]);
    });
}

fn many_callers_of_one_worker_all_complete(cluster: Cluster) {
    cluster.options(small_window).run(|world| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for size in (0..20).map(|i| i * 5000) {
                        assert_eq!(world.rpc_sync(1, length, (vec![0; size],)).unwrap(), size);
                    }
                });
            }
        });
    });
}
