//! Profiles of workers that are lost, stopped or busy, and over connections that break (S54).

use telegrad_rpc::ReferenceState;
use telegrad_testkit::{break_connections, on_cluster, stop_process, wait_until};

use super::*;

/// Long enough for anything on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

on_cluster! { unix: Cluster::processes(3), tcp: Cluster::processes(3).tcp() =>
    a_profile_survives_broken_connections
}

fn a_profile_survives_broken_connections(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() > 0 {
            // Not in the shutdown yet, whose connections would break too.
            return board.wait("over");
        }
        let (made, profile) = profile(&world, Options::default(), || {
            let mut made = 0;
            for number in 0..5 {
                // The break may be noticed only by the next call.
                let called = || world.rpc_sync(1, relay, (SUCCEED, number));
                made += std::iter::repeat_with(called).take_while(Result::is_err).count() + 1;
                assert!(break_connections() > 0);
            }
            made
        })
        .unwrap();
        assert_eq!(profile.missing, []);
        let events = events(&profile);
        let root = find(&events, "scope", "profile", 0);
        let calls = || events.iter().filter(|event| event.parent == root.span);
        assert_eq!(calls().count(), made);
        let succeeded: Vec<_> = calls().filter(|call| call.status.is_ok()).collect();
        assert_eq!(succeeded.len(), 5);
        for call in succeeded {
            let relay = find(&events, "execution", "relay", call.span);
            let nested = find(&events, "call", "leaf", relay.span);
            find(&events, "execution", "leaf", nested.span);
        }
        assert_no_traces(&world);
        board.raise("over");
    });
}

/// Profiles two relayed calls from rank 0, with the death of `lost` in between. Checks that only `lost` is missing.
fn profile_with_loss(workers: usize, lost: u32, check: impl Fn(&World, &Profile) + Send + Sync + 'static) {
    let cluster = Cluster::processes(workers).may_die(lost).no_shutdown();
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() > 0 {
            return board.wait("over");
        }
        let (_, profile) = profile(&world, Options::default(), || {
            world.rpc_sync(1, relay, (SUCCEED, 1)).unwrap();
            board.kill(lost);
            world.rpc_sync(1, relay, (SUCCEED, 2)).unwrap_err();
        })
        .unwrap();
        let [(name, why)] = &profile.missing[..] else {
            panic!("{:?}", profile.missing);
        };
        assert_eq!(*name, format!("w{lost}"));
        assert!(why.contains(name), "{why}");
        check(&world, &profile);
        board.raise("over");
    });
}

#[test]
fn events_behind_a_lost_worker_are_included() {
    profile_with_loss(4, 1, |world, profile| {
        let leaf = |event: &&&Event| event.as_execution().is_some() && event.worker == 2;
        assert_eq!(events(profile).iter().filter(leaf).count(), 1);
        // A worker that took no part is not included.
        assert!(profile.workers.iter().all(|worker| worker.rank < 3));
        assert_eq!(world.rpc_sync(2, trace_count, ()).unwrap(), 0);
    });
}

#[test]
fn a_lost_worker_is_missing_from_the_profile() {
    profile_with_loss(3, 2, |_, profile| {
        let events = events(profile);
        assert!(events.iter().all(|event| event.worker < 2));
        // The calls to it are included, the second one as failed.
        let calls = events.iter().filter(|event| event.name.ends_with("leaf"));
        let succeeded: Vec<_> = calls.map(|call| call.status.is_ok()).collect();
        assert_eq!(succeeded, [true, false]);
    });
}

#[test]
fn traces_of_a_lost_worker_are_dropped() {
    assert_traces_dropped_after(&[0]);
}

#[test]
fn traces_are_dropped_when_the_workers_on_the_way_are_lost_too() {
    assert_traces_dropped_after(&[0, 1]);
}

/// Rank 0 profiles a call to rank 2 by way of rank 1. After the deaths of `killed`, the survivors must drop their traces.
fn assert_traces_dropped_after(killed: &'static [u32]) {
    let cluster = Cluster::processes(4).no_shutdown();
    let cluster = killed
        .iter()
        .fold(cluster, |cluster, rank| cluster.may_die(*rank));
    let board = cluster.board();
    cluster.run(move |world| match world.rank() {
        0 => {
            let _ = profile(&world, Options::default(), || {
                world.rpc_sync(1, relay, (SUCCEED, 1)).unwrap();
                board.raise("profiling");
                board.wait("never");
            });
        }
        3 => {
            board.wait("profiling");
            let kept = |rank| world.rpc_sync(rank, trace_count, ()).unwrap();
            assert_eq!([kept(1), kept(2)], [1, 1]);
            killed.iter().for_each(|rank| board.kill(*rank));
            for rank in (1..3).filter(|rank| !killed.contains(rank)) {
                wait_until(
                    LIMIT,
                    || kept(rank) == 0,
                    || format!("rank {rank} still holds the trace"),
                );
            }
            board.raise("over");
        }
        _ => board.wait("over"),
    });
}

#[test]
fn the_loss_of_a_worker_on_the_way_does_not_end_a_profile() {
    let cluster = Cluster::processes(3).may_die(1).no_shutdown();
    let board = cluster.board();
    cluster.run(move |world| match world.rank() {
        0 => {
            let (_, profile) = profile(&world, Options::default(), || {
                world.rpc_sync(1, relay, (SUCCEED, 1)).unwrap();
                board.wait("held");
                board.kill(1);
                // Rank 2 asks for the state of the trace, and learns that it is still open.
                board.wait("asked");
                world.rpc_sync(2, leaf, (SUCCEED, 2)).unwrap();
            })
            .unwrap();
            let leaf = |event: &&&Event| event.as_execution().is_some() && event.worker == 2;
            assert_eq!(events(&profile).iter().filter(leaf).count(), 2);
            board.raise("over");
        }
        2 => {
            // The state of this reference shows when w1 counts as lost.
            let counter: RRef<Counter> = world.remote(1, Counter::new, (0,)).unwrap();
            counter.rpc_sync(Counter::add, (1,)).unwrap();
            board.raise("held");
            let is_lost = || world.references()[0].state == ReferenceState::Lost;
            wait_until(LIMIT, is_lost, || "w1 is not lost yet");
            // If the loss ended the profile, the trace would be dropped soon.
            for _ in 0..200 {
                assert_eq!(world.rpc_sync(0, trace_count, ()).unwrap(), 1);
                assert_eq!(world.debug_info().traces, 1);
            }
            board.raise("asked");
            board.wait("over");
        }
        _ => board.wait("over"),
    });
}

#[test]
fn stopped_workers_are_missing_and_delay_no_profile() {
    let cluster = Cluster::processes(5);
    cluster.run_on_rank_0(|world, _| {
        let options = Options::default().patience(Duration::from_millis(300));
        let (stopped, profile) = profile(&world, options, || {
            let processes = world.rpc_sync(1, processes_of, (vec![2, 3, 4],)).unwrap();
            processes.into_iter().map(stop_process).collect::<Vec<_>>()
        })
        .unwrap();
        drop(stopped);
        let missing: Vec<_> = profile.missing.iter().map(|(name, _)| &**name).collect();
        assert_eq!(missing, ["w2", "w3", "w4"]);
        let executed = |event: &&Event| event.as_execution().is_some() && event.worker == 1;
        assert_eq!(profile.events.iter().filter(executed).count(), 1);
    });
}

#[remote]
fn process() -> u32 {
    std::process::id()
}

/// Returns the process ids of these workers.
#[remote]
fn processes_of(workers: Vec<u32>) -> Result<Vec<u32>> {
    let world = World::current()?;
    let ask = |rank: &u32| world.rpc_sync(*rank, process, ());
    workers.iter().map(ask).collect()
}

/// Functions occupy all threads, and the events fill more than one reply.
#[test]
fn a_busy_worker_sends_its_finished_events() {
    let cluster = Cluster::processes(2).options(|options| options.num_worker_threads = 1);
    let board = cluster.board();
    cluster.run_on_rank_0(move |world, _| {
        const MANY: usize = 3000;
        let others = world.rpc_async(1, hold, (board.clone(),)).unwrap();
        let options = Options::default().patience(Duration::ZERO);
        let (busy, profile) = profile(&world, options, || {
            board.wait("running");
            board.raise("go");
            others.wait().unwrap();
            assert_eq!(world.rpc_sync(1, record_many, (MANY,)).unwrap(), MANY);
            let busy = world.rpc_async(1, hold_again, (board.clone(),)).unwrap();
            board.wait("running again");
            busy
        })
        .unwrap();
        board.raise("go again");
        busy.wait().unwrap();
        // Only the function that has not returned is missing.
        let missing: Vec<_> = profile
            .missing
            .iter()
            .map(|(name, why)| (&**name, &**why))
            .collect();
        let still = "1 span was still open there when the profile's `patience` ended";
        assert_eq!(missing, [("w0", still), ("w1", still)]);
        let recorded = profile.events.iter().filter(|event| event.name == "one of many");
        assert_eq!(recorded.count(), MANY);
    });
}

#[remote]
fn record_many(count: usize) -> usize {
    for _ in 0..count {
        record_function!("one of many");
    }
    count
}

#[remote]
fn hold_again(board: Board) {
    board.raise("running again");
    board.wait("go again");
}
