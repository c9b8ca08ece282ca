//! References as arguments and results, between any workers (S27).

use std::collections::HashMap;

use telegrad_rpc::join_all;
use telegrad_testkit::{Faults, on_cluster, on_every_cluster};
use telegrad_wire::Wire;

use super::*;

/// References in every kind of structure.
#[derive(Wire)]
struct Parcel {
    plain: RRef<Counter>,
    list: Vec<RRef<Counter>>,
    maybe: [Option<RRef<Counter>>; 2],
    named: HashMap<String, RRef<Counter>>,
    pair: (u8, Box<RRef<Counter>>),
    wrapped: Wrapped,
}

#[derive(Wire)]
enum Wrapped {
    Inside { deep: Vec<(RRef<Counter>, String)> },
}

impl Parcel {
    /// Distinct values, so that the sum shows which counters are missing.
    fn of(counter: impl Fn(i64) -> RRef<Counter>) -> Self {
        Self {
            plain: counter(1),
            list: vec![counter(10), counter(20)],
            maybe: [None, Some(counter(100))],
            named: HashMap::from([("a".into(), counter(1000)), ("b".into(), counter(2000))]),
            pair: (7, Box::new(counter(10_000))),
            wrapped: Wrapped::Inside {
                deep: vec![(counter(100_000), "text".into())],
            },
        }
    }

    fn sum(&self) -> Result<i64> {
        let Wrapped::Inside { deep } = &self.wrapped;
        let all = self.list.iter().chain(self.maybe.iter().flatten());
        let all = all
            .chain(self.named.values())
            .chain(deep.iter().map(|(one, _)| one));
        all.chain([&self.plain, &self.pair.1])
            .map(|counter| counter.rpc_sync(Counter::get, ()))
            .sum()
    }
}

const SUM: i64 = 113_131;

#[remote]
fn sum(parcel: Parcel) -> Result<i64> {
    parcel.sum()
}

#[remote]
fn pass_back(parcel: Parcel) -> Parcel {
    parcel
}

#[remote]
fn is_here(counter: RRef<Counter>) -> bool {
    counter.is_owner()
}

/// Returns a reference to a value of the worker that runs this.
#[remote]
fn own(value: i64) -> Result<RRef<Counter>> {
    RRef::hold(&World::current()?, Counter::new(value, None)?)
}

/// Returns a reference to a value of a third worker.
#[remote]
fn order(from: u32, value: i64) -> Result<RRef<Counter>> {
    World::current()?.remote(from, Counter::new, (value, None))
}

/// Hands a reference on along a path. The last worker adds to the counter, and the reference returns the same way.
#[remote]
fn relay(mut path: Vec<u32>, counter: RRef<Counter>) -> Result<RRef<Counter>> {
    let Some(next) = path.pop() else {
        counter.rpc_sync(Counter::add, (1,))?;
        return Ok(counter);
    };
    World::current()?.rpc_sync(next, relay, (path, counter))
}

#[remote]
fn both(first: RRef<Counter>, second: RRef<Counter>) -> Result<i64> {
    first.rpc_sync(Counter::add, (1,))?;
    second.rpc_sync(Counter::add, (1,))
}

on_every_cluster! { 3 =>
    references_travel_inside_any_structure
    a_reference_can_be_sent_to_its_owner
    an_owner_can_return_references
    a_reference_can_be_given_to_a_third_worker
    a_reference_can_be_sent_to_the_worker_itself
    a_worker_can_return_references_to_values_of_a_third
    a_reference_travels_any_path_and_back
    a_message_can_carry_a_reference_twice
    a_lender_may_drop_its_reference_at_once
    all_members_can_gather_references
}

// A function that waits for a reference must not block the only thread that its value needs.
on_cluster! { one_thread: Cluster::threads(3).options(|options| options.num_worker_threads = 1) =>
    references_travel_inside_any_structure
    an_owner_can_return_references
    a_reference_can_be_given_to_a_third_worker
    a_worker_can_return_references_to_values_of_a_third
    a_reference_travels_any_path_and_back
    a_message_can_carry_a_reference_twice
    a_lender_may_drop_its_reference_at_once
    all_members_can_gather_references
}

fn references_travel_inside_any_structure(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        for owner in 0..3 {
            let parcel = Parcel::of(|n| world.remote(owner, Counter::new, (n, None)).unwrap());
            for to in [1, 2, 0, 1] {
                let parcel = Parcel::of(|n| world.remote(owner, Counter::new, (n, None)).unwrap());
                assert_eq!(world.rpc_sync(to, sum, (parcel,)).unwrap(), SUM);
            }
            let back = world.rpc_sync(2, pass_back, (parcel,)).unwrap();
            assert_eq!(back.sum().unwrap(), SUM);
        }
    });
}

fn a_reference_can_be_sent_to_its_owner(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let counter = world.remote(1, Counter::new, (0, None)).unwrap();
        assert!(world.rpc_sync(1, is_here, (counter.clone(),)).unwrap());
        assert!(!world.rpc_sync(2, is_here, (counter.clone(),)).unwrap());
        assert_eq!(world.rpc_sync(1, add_to, (counter, 3)).unwrap(), 3);
    });
}

fn an_owner_can_return_references(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let counter = world.rpc_sync(1, own, (5,)).unwrap();
        assert_eq!(counter.owner_name(), "w1");
        assert!(
            counter.confirmed_by_owner(),
            "a reference from its owner is confirmed"
        );
        assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 5);
        let here = RRef::hold(&world, Counter::new(1, None).unwrap()).unwrap();
        assert_eq!(world.rpc_sync(2, add_to, (here.clone(), 1)).unwrap(), 2);
        assert_eq!(here.local_value().unwrap().value, 2);
    });
}

fn a_reference_can_be_given_to_a_third_worker(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = world.remote(1, Counter::new, (0, Some(board.clone()))).unwrap();
        assert_eq!(world.rpc_sync(2, add_to, (counter.clone(), 3)).unwrap(), 3);
        assert_eq!(world.rpc_sync(2, add_to, (counter, 3)).unwrap(), 6);
        board.wait("freed");
    });
}

fn a_reference_can_be_sent_to_the_worker_itself(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let there = world.remote(1, Counter::new, (0, None)).unwrap();
        assert_eq!(world.rpc_sync(0, add_to, (there, 3)).unwrap(), 3);
        let here = world.remote(0, Counter::new, (0, None)).unwrap();
        assert!(world.rpc_sync(0, is_here, (here.clone(),)).unwrap());
        assert_eq!(world.rpc_sync(0, add_to, (here, 3)).unwrap(), 3);
    });
}

fn a_worker_can_return_references_to_values_of_a_third(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let counter = world.rpc_sync(1, order, (2, 5)).unwrap();
        assert_eq!(counter.owner_name(), "w2");
        assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 5);
        wait_until(&world, || counter.confirmed_by_owner());
        let mine = world.rpc_sync(1, order, (0, 6)).unwrap();
        assert_eq!(mine.local_value().unwrap().value, 6);
    });
}

fn a_reference_travels_any_path_and_back(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        for owner in 0..3 {
            let counter = world.remote(owner, Counter::new, (0, None)).unwrap();
            let paths = [
                vec![1],
                vec![1, 2],
                vec![0, 0],
                vec![2, 1, 0, 1, 2],
                vec![1, 1, 2, 2, 0, 0],
            ];
            let ways = paths.len() as i64;
            for path in paths {
                let back = world.rpc_sync(1, relay, (path, counter.clone())).unwrap();
                assert_eq!(back.owner_name(), counter.owner_name());
            }
            assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), ways);
        }
    });
}

fn a_message_can_carry_a_reference_twice(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        for (owner, to) in [(1, 2), (1, 1), (0, 1), (1, 0)] {
            let counter = world.remote(owner, Counter::new, (0, Some(board.clone())));
            let counter = counter.unwrap();
            assert_eq!(world.rpc_sync(to, both, (counter.clone(), counter)).unwrap(), 2);
        }
        board.wait_for("freed", 4);
    });
}

fn a_lender_may_drop_its_reference_at_once(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let calls: Vec<_> = (0..50)
            .map(|n| {
                // The value may not exist yet when its reference is given away and dropped.
                let counter = world.remote(1, Counter::new, (n, Some(board.clone()))).unwrap();
                world.rpc_async(2, add_to, (counter, 1)).unwrap()
            })
            .collect();
        assert!(join_all(calls).wait().unwrap().into_iter().eq(1..=50));
        board.wait_for("freed", 50);
    });
}

fn all_members_can_gather_references(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        let mine = RRef::hold(&world, Counter::new(0, Some(board.clone())).unwrap()).unwrap();
        let all = world.all_gather(&mine).unwrap();
        let owners: Vec<_> = all.iter().map(|counter| counter.owner().rank).collect();
        assert_eq!(owners, [0, 1, 2]);
        for counter in &all {
            counter.rpc_sync(Counter::add, (1,)).unwrap();
        }
        world.barrier().unwrap();
        assert_eq!(mine.local_value().unwrap().value, 3);
        drop((mine, all));
        board.wait_for("freed", 3);
        wait_for_no_references(&world);
    });
}

#[remote]
fn are_confirmed(counters: Vec<RRef<Counter>>) -> bool {
    counters.iter().all(RRef::confirmed_by_owner)
}

// Messages about references are delayed, so that most references arrive before their owners know of it.
on_cluster! {
    slow_threads: Cluster::threads(3).faults(slow_network()),
    slow_processes: Cluster::processes(3).faults(slow_network()) =>
    a_function_starts_when_the_references_in_its_arguments_are_confirmed
}

fn slow_network() -> Faults {
    Faults {
        delay: 1.0,
        ..Faults::default()
    }
}

fn a_function_starts_when_the_references_in_its_arguments_are_confirmed(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        for _ in 0..10 {
            let counters: Vec<_> = (0..3)
                .map(|owner| world.remote(owner, Counter::new, (0, None)).unwrap())
                .collect();
            assert!(world.rpc_sync(2, are_confirmed, (counters,)).unwrap());
        }
        // References in results are not waited for.
        let counters: Vec<_> = (0..10)
            .map(|_| world.rpc_sync(1, order, (2, 0)).unwrap())
            .collect();
        assert!(!counters.iter().all(RRef::confirmed_by_owner));
        wait_until(&world, || counters.iter().all(RRef::confirmed_by_owner));
    });
}
