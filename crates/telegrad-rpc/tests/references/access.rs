//! Creation of values, and access to them: fetches, methods, local values (S26).

use std::sync::Arc;

use telegrad_testkit::on_every_cluster;

use super::*;

on_every_cluster! { 2 =>
    a_value_stays_where_it_was_made_and_can_be_fetched
    a_local_value_can_be_kept_and_fetched
    a_value_that_cannot_be_sent_can_be_held_and_called
    methods_run_on_the_owner
    the_result_of_a_method_can_stay_at_the_owner
    a_worker_can_create_values_for_itself
    many_values_of_one_worker_are_distinct
    a_reference_is_confirmed_by_its_owner
    shared_local_values_coexist
    an_exclusive_local_value_excludes_all_others
    shared_methods_run_concurrently
    an_exclusive_method_waits_for_shared_ones
    a_method_that_panics_leaves_the_value_usable
}

fn a_value_stays_where_it_was_made_and_can_be_fetched(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let doubled = world.remote(1, double, (21,)).unwrap();
        assert_eq!((doubled.owner_name(), doubled.owner().rank), ("w1", 1));
        assert!(!doubled.is_owner());
        assert_eq!(doubled.to_here().unwrap(), 42);
        let fetching = doubled.to_here_async().unwrap();
        assert_eq!((fetching.wait().unwrap(), doubled.to_here().unwrap()), (42, 42));
    });
}

#[remote]
fn length(list: RRef<Vec<u8>>) -> Result<usize> {
    Ok(list.to_here()?.len())
}

fn a_local_value_can_be_kept_and_fetched(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let list = RRef::new(&world, vec![1_u8, 2, 3]).unwrap();
        assert_eq!((list.owner_name(), list.is_owner()), ("w0", true));
        assert!(list.confirmed_by_owner());
        assert_eq!(list.to_here().unwrap(), [1, 2, 3]);
        list.local_value_mut().unwrap().push(4);
        assert_eq!(world.rpc_sync(1, length, (list,)).unwrap(), 4);
    });
}

fn a_value_that_cannot_be_sent_can_be_held_and_called(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = Counter::new(1, Some(board.clone())).unwrap();
        let counter = RRef::hold(&world, counter).unwrap();
        assert_eq!(world.rpc_sync(1, add_to, (counter.clone(), 2)).unwrap(), 3);
        assert_eq!(counter.local_value().unwrap().value, 3);
        drop(counter);
        board.wait("freed");
    });
}

fn methods_run_on_the_owner(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let counter = world.remote(1, Counter::new, (5, None)).unwrap();
        assert_eq!(counter.rpc_sync(Counter::add, (2,)).unwrap(), 7);
        let adding = counter.rpc_async(Counter::add, (3,)).unwrap();
        assert_eq!(adding.wait().unwrap(), 10);
        assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 10);
    });
}

fn the_result_of_a_method_can_stay_at_the_owner(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = world.remote(1, Counter::new, (5, Some(board.clone()))).unwrap();
        let kept = counter.remote(Counter::add, (2,)).unwrap();
        assert_eq!(kept.owner_name(), "w1");
        assert_eq!(kept.to_here().unwrap(), 7);
        drop(counter);
        board.wait("freed");
        assert_eq!(kept.to_here().unwrap(), 7, "the result is a separate value");
    });
}

fn a_worker_can_create_values_for_itself(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let counter = world.remote(0, Counter::new, (1, None)).unwrap();
        assert!(counter.is_owner());
        assert_eq!(counter.rpc_sync(Counter::add, (1,)).unwrap(), 2);
        assert_eq!(counter.local_value().unwrap().value, 2);
        assert_eq!(counter.remote(Counter::get, ()).unwrap().to_here().unwrap(), 2);
    });
}

fn many_values_of_one_worker_are_distinct(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let made: Vec<_> = (0..200).map(|n| world.remote(1, double, (n,)).unwrap()).collect();
        for (n, value) in made.iter().enumerate().rev() {
            assert_eq!(value.to_here().unwrap(), 2 * n as i64);
        }
    });
}

fn a_reference_is_confirmed_by_its_owner(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        // Even while its value is still being made.
        let counter = world.remote(1, Counter::slowly, (1, board.clone())).unwrap();
        wait_until(&world, || counter.confirmed_by_owner());
        board.raise("make it");
        assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 1);
    });
}

fn shared_local_values_coexist(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let counter = world.remote(0, Counter::new, (1, None)).unwrap();
        let (first, second) = (counter.local_value().unwrap(), counter.local_value().unwrap());
        assert_eq!((first.value, second.value), (1, 1));
        let hasty = counter.with_timeout(Duration::from_millis(50));
        assert!(hasty.local_value_mut().is_err(), "two shared guards exist");
        drop(first);
        assert!(hasty.local_value_mut().is_err(), "a shared guard exists");
        drop(second);
        hasty.local_value_mut().unwrap().value = 2;
        assert_eq!(counter.local_value().unwrap().value, 2);
    });
}

fn an_exclusive_local_value_excludes_all_others(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let counter = world.remote(0, Counter::new, (1, None)).unwrap();
        let mut alone = counter.local_value_mut().unwrap();
        let hasty = counter.with_timeout(Duration::from_millis(50));
        assert!(hasty.local_value().is_err());
        assert!(hasty.local_value_mut().is_err());
        let adding = world.rpc_async(1, add_to, (counter.clone(), 1)).unwrap();
        assert!(hasty.rpc_sync(Counter::get, ()).is_err());
        assert!(!adding.done());
        alone.value = 10;
        drop(alone);
        assert_eq!(adding.wait().unwrap(), 11);
    });
}

/// S25.
fn shared_methods_run_concurrently(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = world.remote(1, Counter::new, (3, None)).unwrap();
        let staying: Vec<_> = (0..3)
            .map(|_| counter.rpc_async(Counter::stay, (board.clone(),)).unwrap())
            .collect();
        board.wait_for("in use", 3);
        assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 3);
        board.raise("leave");
        for call in staying {
            assert_eq!(call.wait().unwrap(), 3);
        }
    });
}

/// S25.
fn an_exclusive_method_waits_for_shared_ones(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = world.remote(1, Counter::new, (3, None)).unwrap();
        let staying = counter.rpc_async(Counter::stay, (board.clone(),)).unwrap();
        board.wait("in use");
        let adding = counter.rpc_async(Counter::add, (1,)).unwrap();
        // Arrives behind the other request, which is therefore there.
        world.rpc_sync(1, ping, ()).unwrap();
        assert!(!adding.done());
        board.raise("leave");
        assert_eq!(staying.wait().unwrap(), 3, "the value before the addition");
        assert_eq!(adding.wait().unwrap(), 4);
    });
}

struct Touchy(Arc<str>);

#[remote]
impl Touchy {
    fn new() -> Result<Self> {
        Ok(Self("calm".into()))
    }

    fn poke(&mut self) {
        self.0 = "poked".into();
        panic!("ouch");
    }

    fn mood(&self) -> String {
        self.0.to_string()
    }
}

fn a_method_that_panics_leaves_the_value_usable(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let touchy = world.remote(1, Touchy::new, ()).unwrap();
        let error = touchy.rpc_sync(Touchy::poke, ()).unwrap_err();
        let text = "`references::access::Touchy::poke` panicked on worker `w1`: ouch";
        assert_eq!(error.to_string(), text);
        assert_eq!(touchy.rpc_sync(Touchy::mood, ()).unwrap(), "poked");
    });
}
