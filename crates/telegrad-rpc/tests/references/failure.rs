//! What becomes of references when workers die or leave (S31).

use std::sync::{Arc, LazyLock, Mutex};

use telegrad_rpc::{Error, LinkLayer, Options, ReferenceState, is_cancelled};
use telegrad_testkit::{Chance, Faults, on_cluster, on_every_cluster};

use super::*;

/// What other workers have given to this process.
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

/// Goes on until nobody wants its value.
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

on_cluster! { unix: Cluster::processes(3) =>
    a_killed_holder_lets_go
    a_killed_owner_fails_every_use_at_once
    what_a_killed_worker_was_having_made_is_given_up
    what_a_killed_worker_was_having_made_for_others_too_is_made
    a_reference_outlives_the_worker_that_handed_it_on
    a_reference_whose_giver_dies_too_early_is_lost
}

on_cluster! { tcp: Cluster::processes(3).tcp() =>
    a_killed_holder_lets_go
    a_killed_owner_fails_every_use_at_once
    what_a_killed_worker_was_having_made_is_given_up
    what_a_killed_worker_was_having_made_for_others_too_is_made
    a_reference_outlives_the_worker_that_handed_it_on
    a_reference_whose_giver_dies_too_early_is_lost
}

/// Runs the body on rank 0 while the others are there; rank 2 may be killed.
pub(super) fn on_rank_0_of_mortals(
    cluster: Cluster,
    mortal: u32,
    body: impl Fn(World, Board) + Send + Sync + 'static,
) {
    let board = cluster.board();
    cluster.may_die(mortal).run(move |world| {
        if world.rank() == 0 {
            body(world.clone(), board.clone());
            board.raise("body ended");
        }
        board.wait("body ended");
        wait_for_nothing(&world);
    });
}

fn a_killed_holder_lets_go(cluster: Cluster) {
    on_rank_0_of_mortals(cluster, 2, |world, board| {
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

/// How the connection ended, and that nobody is at any of its addresses any more.
#[track_caller]
fn assert_says_how(error: &Error) {
    assert_owner_lost(error);
    let Error::OwnerLost { why, .. } = error else {
        unreachable!()
    };
    let mut parts = why.split("; ");
    let (how, tried): (_, Vec<_>) = (parts.next().unwrap_or_default(), parts.collect());
    assert!(!tried.is_empty(), "{why}");
    // Or that a new one was not to be had, if that was noticed before.
    let expected = [
        "the connection was closed by the other side",
        "the connection failed: ",
        "cannot reach ",
    ];
    assert!(expected.iter().any(|start| how.starts_with(start)), "{why}");
    for tried in tried {
        let nobody =
            tried.starts_with("cannot reach ") && tried.ends_with(": Connection refused (os error 111)");
        assert!(nobody, "{why}");
    }
}

fn a_killed_owner_fails_every_use_at_once(cluster: Cluster) {
    on_rank_0_of_mortals(cluster, 1, |world, board| {
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

        // Calls under way fail like all calls to that worker, or like those on what is lost with it.
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

        // New ones say what is lost, and why.
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

        // Nobody else is given what is lost.
        let error = world.rpc_async(2, take, (counter.clone(),)).unwrap_err();
        let start = "cannot send the arguments of `references::failure::take` to worker `w2`: \
                     a value of type `a reference` cannot be sent: the `references::Counter` of this \
                     reference was lost with its owner, worker `w1`: ";
        assert!(error.to_string().starts_with(start), "{error}");
        // The same for the one that the reference had been handed on to.
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
    let counter = GIVEN.lock().unwrap().pop().expect("it was given one");
    counter.rpc_sync(Counter::get, ())
}

fn what_a_killed_worker_was_having_made_is_given_up(cluster: Cluster) {
    on_rank_0_of_mortals(cluster, 2, |world, board| {
        world.rpc_sync(2, begin, (1, board.clone())).unwrap();
        world.rpc_sync(2, begin, (0, board.clone())).unwrap();
        board.wait_for("running", 2);
        board.kill(2);
        board.wait_for("cancelled", 2);
        // What was made all the same is freed.
        board.wait_for("freed", 2);
    });
}

fn what_a_killed_worker_was_having_made_for_others_too_is_made(cluster: Cluster) {
    on_rank_0_of_mortals(cluster, 2, |world, board| {
        world.rpc_sync(2, give_slow_one, (1, 0, board.clone())).unwrap();
        board.wait("making");
        board.kill(2);
        let counter = GIVEN.lock().unwrap().pop().expect("it was given one");
        let adding = counter.rpc_async(Counter::add, (1,)).unwrap();
        wait_until(&world, || {
            // It counts as gone for w1, too.
            world.rpc_sync(1, knows_of, ("w2".into(),)).unwrap() == 0
        });
        board.raise("make it");
        assert_eq!(adding.wait().unwrap(), 6);
        drop(counter);
        board.wait("freed");
    });
}

/// How many references to values here a worker has, as far as this one knows.
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
    on_rank_0_of_mortals(cluster, 2, |world, board| {
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
                // Also when nobody is killed.
                let counter = world.rpc_sync(1, order, (from, board.clone())).unwrap();
                GIVEN.lock().unwrap().push(counter);
            }
            let counter = GIVEN.lock().unwrap().pop().expect("it was given one");
            assert_eq!(counter.rpc_sync(Counter::add, (1,)).unwrap(), 6);
            assert_eq!(world.rpc_sync(1, add_to, (counter.clone(), 1)).unwrap(), 7);
            assert_eq!(board.count("freed"), round - 1);
            drop(counter);
            board.wait_for("freed", round);
        }
    });
}

/// What rank 0 says about references is not heard until it is mended.
static MUTE: LazyLock<Arc<Chance>> = LazyLock::new(|| {
    Arc::new(Chance::new(Faults {
        lose: 1.0,
        ..Faults::default()
    }))
});

fn mute_rank_0(options: &mut Options) {
    options.reference_retry = Duration::from_millis(20);
    if options.rank == Some(0) {
        options.link_layer = Some(LinkLayer::new(|link| MUTE.around(link)));
    }
}

fn a_reference_whose_giver_dies_too_early_is_lost(cluster: Cluster) {
    on_rank_0_of_mortals(cluster.options(mute_rank_0), 2, |world, board| {
        let counter = world.rpc_sync(2, order, (1, board.clone())).unwrap();
        assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 5);
        assert!(!counter.confirmed_by_owner());
        board.kill(2);
        board.wait("freed");
        // The owner knows of nobody who refers to it, and here that is not known yet.
        let error = counter.rpc_sync(Counter::get, ()).unwrap_err();
        let text = "worker `w1` has no value for `references::Counter::get`: \
                    it was freed, because all workers that referred to it count as lost here";
        assert_eq!(error.to_string(), text);
        MUTE.repair();
        wait_until(&world, || world.references()[0].state == ReferenceState::Lost);
        let error = counter.rpc_sync(Counter::get, ()).unwrap_err();
        assert!(matches!(error, Error::ReferenceLost { .. }), "{error:?}");
        let text = "worker `w1` has freed the `references::Counter` of this reference: \
                    the worker that passed the reference on was lost before the owner learnt of the new holder";
        assert_eq!(error.to_string(), text);
    });
}

on_every_cluster! { 3 =>
    an_owner_that_leaves_takes_its_values_with_it
    a_holder_that_leaves_lets_go
}

fn an_owner_that_leaves_takes_its_values_with_it(cluster: Cluster) {
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
                // That may have been before its goodbye was taken note of.
                wait_until(&world, || world.references()[0].state == ReferenceState::Lost);
                let error = counter.rpc_sync(Counter::get, ()).unwrap_err();
                let text = "the `references::Counter` of this reference was lost with its owner, \
                            worker `w1`: worker `w1` has dropped its world";
                assert_eq!(error.to_string(), text);
                drop(counter);
                wait_for_nothing(&world);
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

fn a_holder_that_leaves_lets_go(cluster: Cluster) {
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
            // They are of no use any more, and nobody is told.
            let error = counters[0].rpc_sync(Counter::get, ()).unwrap_err();
            assert!(matches!(error, Error::ShutDown), "{error:?}");
        }
        board.wait_for("freed", 2);
        if member.rank() == 0 {
            // It may be the one that has told the board, a moment ago.
            board.raise("freed is all");
        }
        member.wait_for_all();
    });
}
