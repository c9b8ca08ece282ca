//! References to and of workers that die or shut down (S31).

use std::sync::{Arc, LazyLock, Mutex};

use telegrad_rpc::extension::LinkLayer;
use telegrad_rpc::{Error, Options, ReferenceState, is_cancelled};
use telegrad_testkit::{FaultInjector, Faults, on_cluster, on_every_cluster};

use super::*;

/// The references that other workers have given to this process.
pub(super) static GIVEN: Mutex<Vec<RRef<Counter>>> = Mutex::new(Vec::new());

#[remote]
fn take(counter: RRef<Counter>) {
    GIVEN.lock().unwrap().push(counter);
}

#[remote]
fn order(from: u32, board: Board) -> Result<RRef<Counter>> {
    World::current()?.remote(from, Counter::new, (5, Some(board)))
}

#[remote]
pub(super) fn give_slow_one(from: u32, to: u32, board: Board) -> Result<()> {
    let world = World::current()?;
    let counter = world.remote(from, Counter::slowly, (5, board))?;
    world.rpc_sync(to, take, (counter.clone(),))?;
    GIVEN.lock().unwrap().push(counter);
    Ok(())
}

/// Runs until it is cancelled.
#[remote]
fn endless(board: Board) -> Result<Counter> {
    board.raise("running");
    while !is_cancelled() {
        std::thread::yield_now();
    }
    board.raise("cancelled");
    Counter::new(0, Some(board))
}

#[remote]
fn begin(from: u32, board: Board) -> Result<()> {
    let counter = World::current()?.remote(from, endless, (board,))?;
    GIVEN.lock().unwrap().push(counter);
    Ok(())
}

on_cluster! { unix: Cluster::processes(3), tcp: Cluster::processes(3).tcp() =>
    the_references_of_a_killed_holder_are_released
    every_use_fails_at_once_after_the_death_of_the_owner
    creations_for_a_killed_worker_alone_are_cancelled
    a_creation_with_another_holder_outlives_a_killed_worker
    a_reference_outlives_the_worker_that_handed_it_on
    a_reference_is_lost_when_its_lender_dies_before_the_owner_knows_of_it
}

/// As [`on_rank_0`], with a worker that may be killed.
pub(super) fn on_rank_0_with_victim(
    cluster: Cluster,
    victim: u32,
    body: impl Fn(World, Board) + Send + Sync + 'static,
) {
    let board = cluster.board();
    cluster.may_die(victim).run(move |world| {
        if world.rank() == 0 {
            body(world.clone(), board.clone());
            board.raise("body ended");
        }
        board.wait("body ended");
        wait_for_no_references(&world);
    });
}

fn the_references_of_a_killed_holder_are_released(cluster: Cluster) {
    on_rank_0_with_victim(cluster, 2, |world, board| {
        let elsewhere = world.remote(1, Counter::new, (0, Some(board.clone()))).unwrap();
        let here = RRef::hold(&world, Counter::new(0, Some(board.clone())).unwrap()).unwrap();
        for counter in [elsewhere, here] {
            world.rpc_sync(2, take, (counter,)).unwrap();
        }
        assert_eq!(board.count("freed"), 0);
        let killed = Instant::now();
        board.kill(2);
        board.wait_for("freed", 2);
        assert!(killed.elapsed() < 2 * SOON, "{:?}", killed.elapsed());
    });
}

#[track_caller]
fn assert_owner_lost(error: &Error) {
    assert!(matches!(error, Error::OwnerLost { .. }), "{error:?}");
    let start = "the `references::Counter` of this reference was lost with its owner, worker `w1`: ";
    assert!(error.to_string().starts_with(start), "{error}");
}

/// Checks that the error says how the connection ended, and that each address of the owner refused a new one.
#[track_caller]
fn assert_says_how(error: &Error) {
    assert_owner_lost(error);
    let Error::OwnerLost { why, .. } = error else {
        unreachable!()
    };
    let mut parts = why.split("; ");
    let (how, tried): (_, Vec<_>) = (parts.next().unwrap_or_default(), parts.collect());
    assert!(!tried.is_empty(), "{why}");
    // Or why a new connection failed, if that was noticed first.
    let expected = [
        "the connection was closed by the other side",
        "the connection failed: ",
        "cannot reach ",
    ];
    assert!(expected.iter().any(|start| how.starts_with(start)), "{why}");
    for tried in tried {
        let refused =
            tried.starts_with("cannot reach ") && tried.ends_with(": Connection refused (os error 111)");
        assert!(refused, "{why}");
    }
}

fn every_use_fails_at_once_after_the_death_of_the_owner(cluster: Cluster) {
    on_rank_0_with_victim(cluster, 1, |world, board| {
        let counter = world.remote(1, Counter::new, (0, None)).unwrap();
        world.rpc_sync(2, take, (counter.clone(),)).unwrap();
        let staying = counter.rpc_async(Counter::stay, (board.clone(),)).unwrap();
        let slow = world.remote(1, Counter::slowly, (0, board.clone())).unwrap();
        let waiting = slow.rpc_async(Counter::get, ()).unwrap();
        let given = world.rpc_async(2, add_to, (slow.clone(), 1)).unwrap();
        board.wait("in use");
        board.wait("making");
        board.kill(1);
        let killed = Instant::now();

        // Pending calls fail as calls to a lost worker, or as uses of a lost value.
        for call in [staying, waiting] {
            let error = call.wait().unwrap_err();
            assert!(
                matches!(error, Error::OwnerLost { .. } | Error::WorkerLost { .. }),
                "{error:?}"
            );
            assert!(error.to_string().contains("worker `w1`"), "{error}");
        }
        let error = given.wait().unwrap_err();
        assert!(error.to_string().contains("worker `w1`"), "{error}");
        assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());

        // Later calls name the lost value and the reason.
        assert_owner_lost(&counter.rpc_sync(Counter::get, ()).unwrap_err());
        assert_owner_lost(&counter.rpc_async(Counter::get, ()).map(drop).unwrap_err());
        assert_owner_lost(&counter.remote(Counter::get, ()).map(drop).unwrap_err());
        assert_owner_lost(&slow.rpc_sync(Counter::get, ()).unwrap_err());
        assert!(killed.elapsed() < 2 * SOON, "{:?}", killed.elapsed());
        wait_until(&world, || {
            let states = world.references().into_iter().map(|info| info.state);
            states.eq([ReferenceState::Lost; 2])
        });
        assert!(!counter.confirmed_by_owner());
        assert_owner_lost(&counter.local_value().map(drop).unwrap_err());
        assert_says_how(&counter.rpc_sync(Counter::get, ()).unwrap_err());

        // A lost reference cannot be sent.
        let error = world.rpc_async(2, take, (counter.clone(),)).unwrap_err();
        let start = "cannot send the arguments of `references::failure::take` to worker `w2`: \
                     a value of type `a reference` cannot be sent: the `references::Counter` of this \
                     reference was lost with its owner, worker `w1`: ";
        assert!(error.to_string().starts_with(start), "{error}");
        // Uses fail in the same way on the worker that had received the reference.
        let error = world.rpc_sync(2, use_given, ()).unwrap_err();
        assert!(
            error.to_string().contains("was lost with its owner, worker `w1`"),
            "{error}"
        );
        assert_eq!(counter.owner_name(), "w1");
    });
}

#[remote]
fn use_given() -> Result<i64> {
    let counter = GIVEN.lock().unwrap().pop().expect("a reference from w2");
    counter.rpc_sync(Counter::get, ())
}

fn creations_for_a_killed_worker_alone_are_cancelled(cluster: Cluster) {
    on_rank_0_with_victim(cluster, 2, |world, board| {
        world.rpc_sync(2, begin, (1, board.clone())).unwrap();
        world.rpc_sync(2, begin, (0, board.clone())).unwrap();
        board.wait_for("running", 2);
        board.kill(2);
        board.wait_for("cancelled", 2);
        // Values that were made nevertheless are freed.
        board.wait_for("freed", 2);
    });
}

fn a_creation_with_another_holder_outlives_a_killed_worker(cluster: Cluster) {
    on_rank_0_with_victim(cluster, 2, |world, board| {
        world.rpc_sync(2, give_slow_one, (1, 0, board.clone())).unwrap();
        board.wait("making");
        board.kill(2);
        let counter = GIVEN.lock().unwrap().pop().expect("a reference from w2");
        let adding = counter.rpc_async(Counter::add, (1,)).unwrap();
        wait_until(&world, || {
            // Until w2 counts as lost for w1 too.
            world.rpc_sync(1, knows_of, ("w2".into(),)).unwrap() == 0
        });
        board.raise("make it");
        assert_eq!(adding.wait().unwrap(), 6);
        drop(counter);
        board.wait("freed");
    });
}

/// Returns how many references to values here the other worker holds, as far as this owner knows.
#[remote]
fn knows_of(worker: String) -> Result<usize> {
    let holders = World::current()?
        .references()
        .into_iter()
        .flat_map(|info| info.holders);
    let held = holders.filter(|(holder, _)| holder.name == worker);
    Ok(held.map(|(_, count)| count).sum())
}

fn a_reference_outlives_the_worker_that_handed_it_on(cluster: Cluster) {
    on_rank_0_with_victim(cluster, 2, |world, board| {
        for (from, round) in [(1, 1), (0, 2)] {
            board.raise("make it");
            if round == 1 {
                world
                    .rpc_sync(2, give_slow_one, (from, 0, board.clone()))
                    .unwrap();
                board.kill(2);
                wait_until(&world, || {
                    world.rpc_sync(1, knows_of, ("w2".into(),)).unwrap() == 0
                });
            } else {
                // The same without a death.
                let counter = world.rpc_sync(1, order, (from, board.clone())).unwrap();
                GIVEN.lock().unwrap().push(counter);
            }
            let counter = GIVEN.lock().unwrap().pop().expect("a reference from w2");
            assert_eq!(counter.rpc_sync(Counter::add, (1,)).unwrap(), 6);
            assert_eq!(world.rpc_sync(1, add_to, (counter.clone(), 1)).unwrap(), 7);
            assert_eq!(board.count("freed"), round - 1);
            drop(counter);
            board.wait_for("freed", round);
        }
    });
}

/// Loses all messages of rank 0 about references until it is mended.
static LOSS_ON_RANK_0: LazyLock<Arc<FaultInjector>> = LazyLock::new(|| {
    Arc::new(FaultInjector::new(Faults {
        lose: 1.0,
        ..Faults::default()
    }))
});

fn lose_on_rank_0(options: &mut Options) {
    options.reference_retry = Duration::from_millis(20);
    if options.rank == Some(0) {
        options.link_layer = Some(LinkLayer::new(|link| LOSS_ON_RANK_0.around(link)));
    }
}

fn a_reference_is_lost_when_its_lender_dies_before_the_owner_knows_of_it(cluster: Cluster) {
    on_rank_0_with_victim(cluster.options(lose_on_rank_0), 2, |world, board| {
        let counter = world.rpc_sync(2, order, (1, board.clone())).unwrap();
        assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 5);
        assert!(!counter.confirmed_by_owner());
        board.kill(2);
        board.wait("freed");
        // The owner has freed the value, which this worker does not know yet.
        let error = counter.rpc_sync(Counter::get, ()).unwrap_err();
        let text = "worker `w1` has no value for `references::Counter::get`: \
                    it was freed, because all workers that held references to it count as lost here";
        assert_eq!(error.to_string(), text);
        LOSS_ON_RANK_0.repair();
        wait_until(&world, || world.references()[0].state == ReferenceState::Lost);
        let error = counter.rpc_sync(Counter::get, ()).unwrap_err();
        assert!(matches!(error, Error::ReferenceLost { .. }), "{error:?}");
        let text = "worker `w1` has freed the `references::Counter` of this reference: \
                    the worker that passed the reference on was lost before the owner learnt of the new holder";
        assert_eq!(error.to_string(), text);
    });
}

on_every_cluster! { 3 =>
    values_are_lost_when_their_owner_shuts_down
    the_references_of_a_holder_that_shuts_down_are_released
}

fn values_are_lost_when_their_owner_shuts_down(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run_by_hand(move |member| {
        let world = member.init().unwrap();
        match member.rank() {
            0 => {
                let counter = world.remote(1, Counter::new, (0, Some(board.clone()))).unwrap();
                let staying = counter.rpc_async(Counter::stay, (board.clone(),)).unwrap();
                board.wait("in use");
                board.raise("leave now");
                staying.wait().unwrap_err();
                let error = counter.rpc_sync(Counter::get, ()).unwrap_err();
                assert!(matches!(error, Error::OwnerLost { .. }), "{error:?}");
                // That call may have failed before the goodbye was processed.
                wait_until(&world, || world.references()[0].state == ReferenceState::Lost);
                let error = counter.rpc_sync(Counter::get, ()).unwrap_err();
                let text = "the `references::Counter` of this reference was lost with its owner, \
                            worker `w1`: worker `w1` has dropped its world";
                assert_eq!(error.to_string(), text);
                drop(counter);
                wait_for_no_references(&world);
                board.raise("seen");
            }
            1 => {
                board.wait("leave now");
                drop(world);
                board.raise("leave");
            }
            _ => {}
        }
        board.wait("seen");
        member.wait_for_all();
    });
}

fn the_references_of_a_holder_that_shuts_down_are_released(cluster: Cluster) {
    let board = cluster.board();
    cluster.no_shutdown().run_by_hand(move |member| {
        let world = member.init().unwrap();
        if member.rank() == 1 {
            let counters = [0, 2].map(|owner| {
                let counter = world
                    .remote(owner, Counter::new, (0, Some(board.clone())))
                    .unwrap();
                assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 0);
                counter
            });
            assert_eq!(board.count("freed"), 0);
            drop(world);
            // Its references are unusable.
            let error = counters[0].rpc_sync(Counter::get, ()).unwrap_err();
            assert!(matches!(error, Error::ShutDown), "{error:?}");
        }
        board.wait_for("freed", 2);
        if member.rank() == 0 {
            // The drop that raised the last signal may still be running in this process.
            board.raise("all freed");
        }
        member.wait_for_all();
    });
}
