//! Uses of a reference before its value exists (S29).

use telegrad_rpc::{RemoteErrorKind, join_all};
use telegrad_testkit::{on_cluster, on_every_cluster, on_threads_and_processes};

use super::*;

on_every_cluster! { 3 =>
    a_pending_value_can_be_called_and_passed_on
    the_pending_result_of_a_method_can_be_called
    a_chain_of_methods_is_requested_without_waiting
    the_first_failure_of_a_chain_of_methods_appears_at_its_end
}

fn a_pending_value_can_be_called_and_passed_on(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = world.remote(1, Counter::slowly, (1, board.clone())).unwrap();
        board.wait("making");
        let mut calls = vec![
            counter.rpc_async(Counter::add, (10,)).unwrap(),
            world.rpc_async(0, add_to, (counter.clone(), 100)).unwrap(),
            world.rpc_async(1, add_to, (counter.clone(), 1000)).unwrap(),
            world.rpc_async(2, add_to, (counter.clone(), 10_000)).unwrap(),
        ];
        for call in &mut calls {
            assert_eq!(call.wait_timeout(Duration::from_millis(20)).unwrap(), None);
        }
        board.raise("make it");
        join_all(calls).wait().unwrap();
        assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 11_111);
    });
}

fn the_pending_result_of_a_method_can_be_called(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = world.remote(1, Counter::slowly, (1, board.clone())).unwrap();
        let second = counter.remote(Counter::twin, ()).unwrap();
        let third = second.remote(Counter::twin, ()).unwrap();
        let adding = third.rpc_async(Counter::add, (1,)).unwrap();
        assert!(!adding.done());
        board.raise("make it");
        assert_eq!(adding.wait().unwrap(), 2);
        assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 1);
    });
}

/// The length of a chain of methods, each called on the result of the one before.
const DEPTH: i64 = 5;

fn chain_of_methods(first: &RRef<Counter>) -> Vec<RRef<Counter>> {
    let mut chain = vec![first.clone()];
    for _ in 0..DEPTH {
        let last = &chain[chain.len() - 1];
        chain.push(last.remote(Counter::successor, ()).unwrap());
    }
    chain
}

fn a_chain_of_methods_is_requested_without_waiting(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let first = world.remote(1, Counter::slowly, (1, board.clone())).unwrap();
        board.wait("making");
        // The whole chain is requested before the first value exists.
        let chain = chain_of_methods(&first);
        let mut last = chain[DEPTH as usize].rpc_async(Counter::get, ()).unwrap();
        assert_eq!(last.wait_timeout(Duration::from_millis(20)).unwrap(), None);
        board.raise("make it");
        assert_eq!(last.wait().unwrap(), 1 + DEPTH);
        // Each result is a separate value, which lives as long as its reference.
        drop(first);
        for (n, counter) in chain.iter().enumerate() {
            assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 1 + n as i64);
        }
    });
}

#[remote]
fn slow_failure(board: Board) -> Result<Counter, String> {
    board.raise("making");
    board.wait("make it");
    Err("there is nothing to begin with".into())
}

fn the_first_failure_of_a_chain_of_methods_appears_at_its_end(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let first = world.remote(1, slow_failure, (board.clone(),)).unwrap();
        board.wait("making");
        let chain = chain_of_methods(&first);
        let last = chain[DEPTH as usize].rpc_async(Counter::get, ()).unwrap();
        assert!(!last.done());
        board.raise("make it");
        let text =
            "`references::pipelining::slow_failure` failed on worker `w1`: there is nothing to begin with";
        assert_eq!(last.wait().unwrap_err().to_string(), text);
        for counter in chain {
            let error = counter.rpc_sync(Counter::get, ()).unwrap_err();
            assert_eq!(error.to_string(), text);
            assert_eq!(error.remote().unwrap().kind, RemoteErrorKind::Failed);
        }
    });
}

#[remote]
impl Counter {
    fn successor(&self) -> Result<Counter> {
        Counter::new(self.value + 1, None)
    }

    fn twin(&self) -> Result<Counter> {
        Counter::new(self.value, None)
    }
}

/// Makes a value slowly, without occupying a thread.
#[remote]
async fn later(board: Board) -> Result<Counter> {
    let world = World::current()?;
    world.rpc_async(0, hold, (board,))?.await?;
    Counter::new(0, None)
}

#[remote]
fn hold(board: Board) {
    board.raise("held");
    board.wait("go");
}

on_threads_and_processes! { 2 => calls_that_wait_for_a_value_occupy_no_thread }

fn calls_that_wait_for_a_value_occupy_no_thread(cluster: Cluster) {
    on_rank_0(cluster.options(one_thread_on_w1), |world, board| {
        let counter = world.remote(1, later, (board.clone(),)).unwrap();
        board.wait("held");
        let calls: Vec<_> = (0..200)
            .map(|_| counter.rpc_async(Counter::add, (1,)).unwrap())
            .collect();
        let given: Vec<_> = (0..20)
            .map(|_| world.rpc_async(0, add_to, (counter.clone(), 1)).unwrap())
            .collect();
        // This call needs the only thread.
        assert_eq!(world.rpc_sync(1, double, (4,)).unwrap(), 8);
        assert!(calls.iter().all(|call| !call.done()));
        board.raise("go");
        join_all(calls).wait().unwrap();
        join_all(given).wait().unwrap();
        assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 220);
    });
}

fn one_thread_on_w1(options: &mut telegrad_rpc::Options) {
    if options.rank == Some(1) {
        options.num_worker_threads = 1;
    }
}

#[remote]
fn first(board: Board) -> i64 {
    board.raise("running");
    board.wait("go");
    1
}

#[remote]
fn first_fails(board: Board) -> Result<i64, String> {
    board.raise("running");
    board.wait("go");
    Err("there is nothing to begin with".into())
}

#[remote]
fn next(before: RRef<i64>) -> Result<i64> {
    Ok(before.to_here()? + 1)
}

on_cluster! { threads_in_a_chain: Cluster::threads(5), processes_in_a_chain: Cluster::processes(5) =>
    a_chain_of_dependent_calls_is_requested_without_waiting
    the_first_failure_of_a_chain_appears_at_its_end
}

fn a_chain_of_dependent_calls_is_requested_without_waiting(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let mut last = world.remote(1, first, (board.clone(),)).unwrap();
        for to in [2, 3, 4, 0] {
            last = world.remote(to, next, (last,)).unwrap();
        }
        board.wait("running");
        let mut fetching = last.to_here_async().unwrap();
        assert_eq!(fetching.wait_timeout(Duration::from_millis(20)).unwrap(), None);
        board.raise("go");
        assert_eq!(fetching.wait().unwrap(), 5);
    });
}

fn the_first_failure_of_a_chain_appears_at_its_end(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let mut last = world.remote(1, first_fails, (board.clone(),)).unwrap();
        for to in [2, 3, 4, 0] {
            last = world.remote(to, next, (last,)).unwrap();
        }
        board.raise("go");
        let error = last.to_here().unwrap_err();
        let remote = error.remote().expect("an error of w1");
        assert_eq!((remote.kind, remote.worker()), (RemoteErrorKind::Failed, "w1"));
        assert_eq!(remote.function(), "references::pipelining::first_fails");
        let workers: Vec<_> = remote.chain.iter().map(|hop| hop.worker.as_str()).collect();
        assert_eq!(workers, ["w0", "w4", "w3", "w2", "w1"]);
        let text = error.to_string();
        assert!(text.ends_with(": there is nothing to begin with"), "{text}");
    });
}
