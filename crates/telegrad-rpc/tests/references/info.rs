//! `ReferenceInfo` and the counters of references.

use telegrad_rpc::{ReferenceInfo, ReferenceState};
use telegrad_testkit::{Faults, on_every_cluster, on_threads_and_processes};

use super::*;

#[remote]
fn fail() -> Result<i64, String> {
    Err("no".into())
}

/// Returns the references that this worker knows, as text.
#[remote]
fn known() -> Result<Vec<String>> {
    let references = World::current()?.references();
    Ok(references.iter().map(ToString::to_string).collect())
}

/// Waits until a worker knows exactly these references.
#[track_caller]
fn wait_for_known(world: &World, on: u32, expected: &[&str]) {
    let known = || world.rpc_sync(on, known, ()).unwrap();
    let instead = || format!("{:#?}", known());
    telegrad_testkit::wait_until(PATIENCE, || known() == expected, instead);
}

on_every_cluster! { 3 =>
    owners_and_holders_list_their_references
    owners_show_the_state_of_the_value_and_holders_that_of_the_reference
    references_are_counted
}

fn owners_and_holders_list_their_references(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let counter = world.remote(1, Counter::new, (0, None)).unwrap();
        let second = world.rpc_sync(1, pass_back, (counter.clone(),)).unwrap();
        let keeper = world.rpc_async(2, keep, (counter.clone(), board.clone(), "drop".into()));
        board.wait("kept");
        let expected = ["`references::Counter` on `w1` (ready), held by `w0` 2 times, `w2`"];
        wait_for_known(&world, 1, &expected);
        let expected = ["`references::Counter` on `w1` (confirmed), held by `w0` 2 times"];
        wait_for_known(&world, 0, &expected);
        let expected = ["`references::Counter` on `w1` (confirmed), held by `w2`"];
        wait_for_known(&world, 2, &expected);

        let ReferenceInfo {
            type_name,
            owner,
            holders,
            ..
        } = world.references().swap_remove(0);
        assert_eq!((type_name.as_str(), owner.rank), ("references::Counter", 1));
        assert_eq!(holders, [(world.get_worker_info(0).unwrap(), 2)]);
        drop((counter, second));
        let expected = ["`references::Counter` on `w1` (ready), held by `w2`"];
        wait_for_known(&world, 1, &expected);
        board.raise("drop");
        keeper.unwrap().wait().unwrap();
        wait_for_known(&world, 1, &[]);
    });
}

#[remote]
fn pass_back(counter: RRef<Counter>) -> RRef<Counter> {
    counter
}

fn owners_show_the_state_of_the_value_and_holders_that_of_the_reference(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let slow = world.remote(0, Counter::slowly, (0, board.clone())).unwrap();
        board.wait("making");
        let state = || world.references()[0].state;
        assert_eq!(state(), ReferenceState::Pending);
        board.raise("make it");
        slow.rpc_sync(Counter::get, ()).unwrap();
        assert_eq!(state(), ReferenceState::Ready);
        drop(slow);
        board.wait("freed");
        wait_until(&world, || world.references().is_empty());
        let failed = world.remote(0, fail, ()).unwrap();
        failed.to_here().unwrap_err();
        assert_eq!(state(), ReferenceState::Failed);
        drop(failed);
        let there = world.remote(1, fail, ()).unwrap();
        there.to_here().unwrap_err();
        wait_until(&world, || world.references().len() == 1);
        assert_eq!(
            state(),
            ReferenceState::Confirmed,
            "only the owner knows that its value failed"
        );
    });
}

fn references_are_counted(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        assert_eq!(ReferenceCounts::on(&world), ReferenceCounts::default());
        let here: Vec<_> = (0..3).map(|n| RRef::new(&world, n).unwrap()).collect();
        let there = world.remote(1, double, (1,)).unwrap();
        there.to_here().unwrap();
        let left = ReferenceCounts {
            owned: 3,
            held: 4,
            ..ReferenceCounts::default()
        };
        left.wait(&world);
        let text = world.debug_info().to_string();
        let part = "references: 3 to values here, 4 here, 0 unconfirmed, 0 given, 0 messages";
        assert!(text.contains(part), "{text}");
        drop((here, there));
        wait_for_no_references(&world);
    });
}

on_threads_and_processes! { 3 => unconfirmed_references_are_counted }

fn unconfirmed_references_are_counted(cluster: Cluster) {
    let losing_all = Faults {
        lose: 1.0,
        ..Faults::default()
    };
    let board = cluster.board();
    cluster.faults(losing_all).no_shutdown().run(move |world| {
        if world.rank() > 0 {
            return board.wait("over");
        }
        let counter = world.rpc_sync(1, order, (2,)).unwrap();
        let info = &world.references()[0];
        assert_eq!(
            info.to_string(),
            "`references::Counter` on `w2` (unconfirmed), held by `w0`"
        );
        // The reference is held here, and the message that tells its owner stays unanswered.
        let left = ReferenceCounts {
            held: 1,
            unconfirmed: 1,
            untold: 1,
            ..ReferenceCounts::default()
        };
        left.wait(&world);
        let back = world.rpc_async(2, pass_back, (counter.clone(),)).unwrap();
        wait_until(&world, || ReferenceCounts::on(&world).given == 1);
        assert_eq!(counter.rpc_sync(Counter::get, ()).unwrap(), 0);
        drop(back);
        board.raise("over");
    });
}

#[remote]
fn order(from: u32) -> Result<RRef<Counter>> {
    World::current()?.remote(from, Counter::new, (0, None))
}
