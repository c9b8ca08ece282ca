//! Making values and using them where they are (S26).

use std::sync::Arc;

use telegrad_testkit::on_every_cluster;

use super::*;

on_every_cluster! { 2 =>
    a_value_stays_where_it_was_made_and_can_be_fetched
    a_value_of_this_worker_can_be_kept_and_fetched
    what_cannot_travel_can_be_held_and_called_on
    methods_run_on_the_owner
    what_a_method_gives_can_stay_there
    a_worker_can_make_values_for_itself
    many_values_of_one_worker_are_told_apart
    a_reference_is_confirmed_by_its_owner
    shared_local_values_are_used_side_by_side
    an_exclusive_local_value_is_alone
    shared_methods_run_side_by_side
    an_exclusive_method_waits_for_those_that_share
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

fn a_value_of_this_worker_can_be_kept_and_fetched(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let list = RRef::new(&world, vec![1_u8, 2, 3]).unwrap();
        assert_eq!((list.owner_name(), list.is_owner()), ("w0", true));
        assert!(list.confirmed_by_owner());
        assert_eq!(list.to_here().unwrap(), [1, 2, 3]);
        list.local_value_mut().unwrap().push(4);
        assert_eq!(world.rpc_sync(1, length, (list,)).unwrap(), 4);
    });
}

fn what_cannot_travel_can_be_held_and_called_on(cluster: Cluster) {
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

fn what_a_method_gives_can_stay_there(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = world.remote(1, Counter::new, (5, Some(board.clone()))).unwrap();
        let kept = counter.remote(Counter::add, (2,)).unwrap();
        assert_eq!(kept.owner_name(), "w1");
        assert_eq!(kept.to_here().unwrap(), 7);
        drop(counter);
        board.wait("freed");
        assert_eq!(kept.to_here().unwrap(), 7, "it is a value of its own");
    });
}

fn a_worker_can_make_values_for_itself(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let counter = world.remote(0, Counter::new, (1, None)).unwrap();
        assert!(counter.is_owner());
        assert_eq!(counter.rpc_sync(Counter::add, (1,)).unwrap(), 2);
        assert_eq!(counter.local_value().unwrap().value, 2);
        assert_eq!(counter.remote(Counter::get, ()).unwrap().to_here().unwrap(), 2);
    });
}

fn many_values_of_one_worker_are_told_apart(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let made: Vec<_> = (0..200).map(|n| world.remote(1, double, (n,)).unwrap()).collect();
        for (n, value) in made.iter().enumerate().rev() {
            assert_eq!(value.to_here().unwrap(), 2 * n as i64);
        }
    });
}

fn a_reference_is_confirmed_by_its_owner(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        // Also while its value is being made.
        let counter = world.remote(1, Counter::slowly, (1, board.clone())).unwrap();
        wait_until(&world, || counter.confirmed_by_owner());
        board.raise("make it");
        assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 1);
    });
}

fn shared_local_values_are_used_side_by_side(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let counter = world.remote(0, Counter::new, (1, None)).unwrap();
        let (first, second) = (counter.local_value().unwrap(), counter.local_value().unwrap());
        assert_eq!((first.value, second.value), (1, 1));
        let hasty = counter.with_timeout(Duration::from_millis(50));
        assert!(hasty.local_value_mut().is_err(), "two others are using it");
        drop(first);
        assert!(hasty.local_value_mut().is_err(), "another is using it");
        drop(second);
        hasty.local_value_mut().unwrap().value = 2;
        assert_eq!(counter.local_value().unwrap().value, 2);
    });
}

fn an_exclusive_local_value_is_alone(cluster: Cluster) {
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
fn shared_methods_run_side_by_side(cluster: Cluster) {
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
fn an_exclusive_method_waits_for_those_that_share(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = world.remote(1, Counter::new, (3, None)).unwrap();
        let staying = counter.rpc_async(Counter::stay, (board.clone(),)).unwrap();
        board.wait("in use");
        let adding = counter.rpc_async(Counter::add, (1,)).unwrap();
        // Behind the other request, so that one has arrived.
        world.rpc_sync(1, ping, ()).unwrap();
        assert!(!adding.done());
        board.raise("leave");
        assert_eq!(staying.wait().unwrap(), 3, "before it was added to");
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
        let text = "`references::using::Touchy::poke` panicked on worker `w1`: ouch";
        assert_eq!(error.to_string(), text);
        assert_eq!(touchy.rpc_sync(Touchy::mood, ()).unwrap(), "poked");
    });
}
