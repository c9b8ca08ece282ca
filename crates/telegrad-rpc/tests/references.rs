//! References to values on other workers.

use std::time::Duration;

use telegrad_rpc::{RRef, Result, World, remote};
use telegrad_testkit::{Board, Cluster, on_every_cluster};

#[remote]
fn double(x: i64) -> i64 {
    2 * x
}

struct Counter {
    value: i64,
    _freed: Option<Guard>,
}

struct Guard(Board);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.raise("freed");
    }
}

#[remote]
impl Counter {
    fn new(start: i64, board: Option<Board>) -> Result<Self> {
        Ok(Self {
            value: start,
            _freed: board.map(Guard),
        })
    }

    fn get(&self) -> i64 {
        self.value
    }

    fn add(&mut self, n: i64) -> i64 {
        self.value += n;
        self.value
    }
}

#[remote]
fn add_to(counter: RRef<Counter>, n: i64) -> Result<i64> {
    counter.rpc_sync(Counter::add, (n,))
}

fn on_rank_0(cluster: Cluster, body: impl Fn(World, Board) + Send + Sync + 'static) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 0 {
            body(world, board.clone());
        }
    });
}

on_every_cluster! { 3 =>
    a_value_stays_where_it_was_made_and_can_be_fetched
    methods_run_on_the_owner
    a_reference_can_be_given_to_a_third_worker
}

fn a_value_stays_where_it_was_made_and_can_be_fetched(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let doubled = world.remote(1, double, (21,)).unwrap();
        assert_eq!(doubled.owner_name(), "w1");
        assert!(!doubled.is_owner());
        assert_eq!(doubled.to_here().unwrap(), 42);
        assert_eq!(doubled.to_here().unwrap(), 42);
    });
}

fn methods_run_on_the_owner(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = world.remote(1, Counter::new, (5, Some(board.clone()))).unwrap();
        assert_eq!(counter.rpc_sync(Counter::add, (2,)).unwrap(), 7);
        assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 7);
        let kept = counter.remote(Counter::get, ()).unwrap();
        assert_eq!(kept.to_here().unwrap(), 7);
        drop(counter);
        board.wait("freed");
    });
}

fn a_reference_can_be_given_to_a_third_worker(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = world.remote(1, Counter::new, (0, Some(board.clone()))).unwrap();
        let to = world.rpc_sync(2, add_to, (counter.clone(), 3)).unwrap();
        assert_eq!(to, 3);
        assert_eq!(world.rpc_sync(1, add_to, (counter.clone(), 3)).unwrap(), 6);
        assert_eq!(world.rpc_sync(0, add_to, (counter, 3)).unwrap(), 9);
        board.wait("freed");
        let _ = Duration::ZERO;
    });
}
