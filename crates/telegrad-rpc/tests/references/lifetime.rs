//! When values are freed (S28).

use telegrad_rpc::is_cancelled;
use telegrad_testkit::{on_every_cluster, on_threads_and_processes};

use super::*;

on_every_cluster! { 3 =>
    a_value_lives_until_its_last_reference_is_dropped
    a_value_is_freed_soon
    clones_of_a_reference_count_as_one
    a_value_without_references_is_freed_once_it_is_made
    a_reference_in_the_result_of_a_dropped_call_is_dropped
    a_reference_in_the_result_of_a_detached_call_is_dropped
    a_reference_in_a_late_result_is_dropped
    a_reference_in_an_unread_result_is_dropped
    references_in_arguments_of_failed_calls_are_dropped
    freeing_a_value_drops_the_references_it_holds
}

fn a_value_lives_until_its_last_reference_is_dropped(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = world.remote(1, Counter::new, (7, Some(board.clone()))).unwrap();
        let keepers: Vec<_> = [2, 1, 0, 2]
            .into_iter()
            .enumerate()
            .map(|(i, to)| {
                let until = format!("drop {i}");
                world
                    .rpc_async(to, keep, (counter.clone(), board.clone(), until))
                    .unwrap()
            })
            .collect();
        board.wait_for("kept", 4);
        drop(counter);
        for (i, keeper) in keepers.into_iter().enumerate() {
            assert_eq!(board.count("freed"), 0);
            board.raise(&format!("drop {i}"));
            assert_eq!(keeper.wait().unwrap(), 7, "keeper {i}");
        }
        board.wait("freed");
    });
}

fn a_value_is_freed_soon(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        for round in 1..=5 {
            let counter = world.remote(1, Counter::new, (0, Some(board.clone()))).unwrap();
            world.rpc_sync(2, add_to, (counter.clone(), 1)).unwrap();
            let dropped = Instant::now();
            drop(counter);
            board.wait_for("freed", round);
            assert!(dropped.elapsed() < SOON, "{:?}", dropped.elapsed());
        }
    });
}

fn clones_of_a_reference_count_as_one(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = world.remote(1, Counter::new, (0, Some(board.clone()))).unwrap();
        let clones: Vec<_> = (0..100).map(|_| counter.clone()).collect();
        let limited = counter.with_timeout(PATIENCE);
        assert_eq!(world.debug_info().references_held, 1);
        drop((counter, clones));
        assert_eq!(limited.rpc_sync(Counter::get, ()).unwrap(), 0);
        drop(limited);
        board.wait("freed");
    });
}

fn a_value_without_references_is_freed_once_it_is_made(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = world.remote(1, Counter::slowly, (0, board.clone())).unwrap();
        board.wait("making");
        drop(counter);
        board.raise("make it");
        board.wait("freed");
    });
}

#[remote]
fn own(board: Board) -> Result<RRef<Counter>> {
    board.raise("running");
    board.wait("give it");
    RRef::hold(&World::current()?, Counter::new(0, Some(board))?)
}

fn a_reference_in_the_result_of_a_dropped_call_is_dropped(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        for (to, round) in [(1, 1), (0, 2)] {
            let call = world.rpc_async(to, own, (board.clone(),)).unwrap();
            board.wait_for("running", round);
            drop(call);
            board.raise("give it");
            board.wait_for("freed", round);
        }
    });
}

fn a_reference_in_the_result_of_a_detached_call_is_dropped(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        world.rpc_async(1, own, (board.clone(),)).unwrap().detach();
        board.wait("running");
        board.raise("give it");
        board.wait("freed");
    });
}

fn a_reference_in_a_late_result_is_dropped(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let limited = world.with_timeout(Duration::from_millis(50));
        limited.rpc_sync(1, own, (board.clone(),)).unwrap_err();
        board.wait("running");
        board.raise("give it");
        board.wait("freed");
    });
}

/// The result has arrived when the call is dropped, but has not been read.
fn a_reference_in_an_unread_result_is_dropped(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        match world.rank() {
            0 => {
                board.raise("give it");
                let call = world.rpc_async(1, own, (board.clone(),)).unwrap();
                board.wait("sent");
                drop(call);
            }
            1 => {
                // The value is here, and its request has been answered.
                wait_until(&world, || {
                    let info = world.debug_info();
                    info.references_owned == 1 && info.calls_in == 0
                });
                assert_eq!(board.count("freed"), 0);
                board.raise("sent");
            }
            _ => {}
        }
        board.wait("freed");
        wait_for_no_references(&world);
    });
}

#[remote]
fn fail(_counter: RRef<Counter>) -> Result<()> {
    Err(telegrad_rpc::Error::other("not today"))
}

#[remote]
fn fail_hard(_counter: RRef<Counter>) {
    panic!("not today");
}

/// Fails to decode its first argument, so that the second is never decoded.
#[remote]
fn take_mistyped(_first: Disguised, _second: RRef<Counter>) {}

#[remote]
fn run_until_cancelled(_counter: RRef<Counter>, board: Board) {
    board.raise("running");
    while !is_cancelled() {
        std::thread::yield_now();
    }
}

fn references_in_arguments_of_failed_calls_are_dropped(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = || world.remote(1, Counter::new, (0, Some(board.clone()))).unwrap();
        for to in 0..3 {
            world.rpc_sync(to, fail, (counter(),)).unwrap_err();
            world.rpc_sync(to, fail_hard, (counter(),)).unwrap_err();
            world
                .rpc_sync(to, take_mistyped, (Disguised(counter()), counter()))
                .unwrap_err();
            let cancelled = world.rpc_async(to, run_until_cancelled, (counter(), board.clone()));
            board.wait_for("running", to as usize + 1);
            drop(cancelled);
            board.wait_for("freed", 5 * (to as usize + 1));
        }
    });
}

/// A value that holds a reference to another.
struct Node {
    _next: Option<RRef<Node>>,
    _freed: RaiseOnDrop,
}

#[remote]
impl Node {
    fn new(next: Option<RRef<Node>>, board: Board) -> Result<Self> {
        Ok(Self {
            _next: next,
            _freed: board.raise_on_drop("freed"),
        })
    }
}

fn freeing_a_value_drops_the_references_it_holds(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let mut first = None;
        for n in 0..30 {
            first = Some(world.remote(n % 3, Node::new, (first, board.clone())).unwrap());
        }
        assert_eq!(board.count("freed"), 0);
        drop(first);
        board.wait_for("freed", 30);
    });
}

on_threads_and_processes! { 3 => many_calls_leave_no_reference_behind }

fn many_calls_leave_no_reference_behind(cluster: Cluster) {
    cluster.run(|world| {
        for round in 0..20 {
            let made: Vec<_> = (0..3)
                .map(|owner| world.remote(owner, Counter::new, (round, None)).unwrap())
                .collect();
            for counter in &made {
                let to = (world.rank() + 1) % 3;
                assert_eq!(
                    world.rpc_sync(to, add_to, (counter.clone(), 1)).unwrap(),
                    round + 1
                );
            }
        }
        world.barrier().unwrap();
        wait_for_no_references(&world);
    });
}
