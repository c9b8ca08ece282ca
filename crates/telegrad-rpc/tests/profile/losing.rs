//! Profiles among workers that are lost, stand still, or are busy, and over connections that break (S54).

use telegrad_rpc::ReferenceState;
use telegrad_testkit::{break_connections, on_cluster, stop_process, wait_until};

use super::*;

const SOON: Duration = Duration::from_secs(20);

on_cluster! { unix: Cluster::processes(3) => a_profile_outlives_the_connections_that_it_was_made_over }

on_cluster! { tcp: Cluster::processes(3).tcp() => a_profile_outlives_the_connections_that_it_was_made_over }

fn a_profile_outlives_the_connections_that_it_was_made_over(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() > 0 {
            // Not at the barrier of the shutdown yet, whose connections break.
            return board.wait("over");
        }
        let (made, profile) = profile(&world, Options::default(), || {
            let mut made = 0;
            for number in 0..5 {
                // The break may be noticed only by who calls next.
                let called = || world.rpc_sync(1, relay, (WELL, number));
                made += std::iter::repeat_with(called).take_while(Result::is_err).count() + 1;
                assert!(break_connections() > 0);
            }
            made
        })
        .unwrap();
        assert_eq!(profile.missing, []);
        let events = events(&profile);
        let root = of(&events, "scope", "profile", 0);
        let calls = || events.iter().filter(|event| event.parent == root.span);
        assert_eq!(calls().count(), made);
        let went_well: Vec<_> = calls().filter(|call| call.status.is_ok()).collect();
        assert_eq!(went_well.len(), 5);
        for call in went_well {
            let relay = of(&events, "execution", "relay", call.span);
            let nested = of(&events, "call", "leaf", relay.span);
            of(&events, "execution", "leaf", nested.span);
        }
        assert_no_traces(&world);
        board.raise("over");
    });
}

/// What the first of some workers finds that profiles a relayed call, and a second one for which `lost` is gone, which is
/// all that is missing.
fn when_lost(workers: usize, lost: u32, check: impl Fn(&World, &Profile) + Send + Sync + 'static) {
    let cluster = Cluster::processes(workers).may_die(lost).no_shutdown();
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() > 0 {
            return board.wait("over");
        }
        let (_, profile) = profile(&world, Options::default(), || {
            world.rpc_sync(1, relay, (WELL, 1)).unwrap();
            board.kill(lost);
            world.rpc_sync(1, relay, (WELL, 2)).unwrap_err();
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
fn what_was_done_behind_a_worker_that_is_gone_is_there_all_the_same() {
    when_lost(4, 1, |world, profile| {
        let leaf = |event: &&&Event| event.as_execution().is_some() && event.worker == 2;
        assert_eq!(events(profile).iter().filter(leaf).count(), 1);
        // Who had nothing to do with it is not in it.
        assert!(profile.workers.iter().all(|worker| worker.rank < 3));
        assert_eq!(world.rpc_sync(2, traces_kept, ()).unwrap(), 0);
    });
}

#[test]
fn a_worker_that_is_gone_is_missing_from_the_profile() {
    when_lost(3, 2, |_, profile| {
        let events = events(profile);
        assert!(events.iter().all(|event| event.worker < 2));
        // The calls that were to reach it are there, the second one with why it did not.
        let calls = events.iter().filter(|event| event.name.ends_with("leaf"));
        let went_well: Vec<_> = calls.map(|call| call.status.is_ok()).collect();
        assert_eq!(went_well, [true, false]);
    });
}

#[test]
fn nothing_is_kept_for_a_worker_that_is_gone() {
    nothing_is_kept_when_these_are_gone(&[0]);
}

#[test]
fn nothing_is_kept_when_nobody_is_left_to_tell() {
    nothing_is_kept_when_these_are_gone(&[0, 1]);
}

/// The first worker profiles, and calls the third through the second.
fn nothing_is_kept_when_these_are_gone(gone: &'static [u32]) {
    let cluster = Cluster::processes(4).no_shutdown();
    let cluster = gone.iter().fold(cluster, |cluster, rank| cluster.may_die(*rank));
    let board = cluster.board();
    cluster.run(move |world| match world.rank() {
        0 => {
            let _ = profile(&world, Options::default(), || {
                world.rpc_sync(1, relay, (WELL, 1)).unwrap();
                board.raise("profiling");
                board.wait("never");
            });
        }
        3 => {
            board.wait("profiling");
            let kept = |rank| world.rpc_sync(rank, traces_kept, ()).unwrap();
            assert_eq!([kept(1), kept(2)], [1, 1]);
            gone.iter().for_each(|rank| board.kill(*rank));
            for rank in (1..3).filter(|rank| !gone.contains(rank)) {
                wait_until(SOON, || kept(rank) == 0, || format!("rank {rank} keeps it"));
            }
            board.raise("over");
        }
        _ => board.wait("over"),
    });
}

#[test]
fn a_worker_on_the_way_that_is_gone_ends_no_profile() {
    let cluster = Cluster::processes(3).may_die(1).no_shutdown();
    let board = cluster.board();
    cluster.run(move |world| match world.rank() {
        0 => {
            let (_, profile) = profile(&world, Options::default(), || {
                world.rpc_sync(1, relay, (WELL, 1)).unwrap();
                board.wait("held");
                board.kill(1);
                // It asks, and hears that it is to go on.
                board.wait("asked");
                world.rpc_sync(2, leaf, (WELL, 2)).unwrap();
            })
            .unwrap();
            let leaf = |event: &&&Event| event.as_execution().is_some() && event.worker == 2;
            assert_eq!(events(&profile).iter().filter(leaf).count(), 2);
            board.raise("over");
        }
        2 => {
            // A reference, so that it says when the worker counts as gone.
            let counter: RRef<Counter> = world.remote(1, Counter::new, (0,)).unwrap();
            counter.rpc_sync(Counter::add, (1,)).unwrap();
            board.raise("held");
            let is_lost = || world.references()[0].state == ReferenceState::Lost;
            wait_until(SOON, is_lost, || "it is still there");
            // A forgotten profile would be forgotten soon.
            for _ in 0..200 {
                assert_eq!(world.rpc_sync(0, traces_kept, ()).unwrap(), 1);
                assert_eq!(world.debug_info().traces, 1);
            }
            board.raise("asked");
            board.wait("over");
        }
        _ => board.wait("over"),
    });
}

#[test]
fn workers_that_stand_still_are_missing_and_hold_up_nobody() {
    let cluster = Cluster::processes(5);
    on_first(cluster, |world| {
        let options = Options {
            patience: Duration::from_millis(300),
            ..Options::default()
        };
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

/// The processes of these workers.
#[remote]
fn processes_of(workers: Vec<u32>) -> Result<Vec<u32>> {
    let world = World::current()?;
    let ask = |rank: &u32| world.rpc_sync(*rank, process, ());
    workers.iter().map(ask).collect()
}

/// Functions take all threads, and what there is to tell takes more than one answer.
#[test]
fn a_worker_that_is_busy_tells_what_it_has() {
    let cluster = Cluster::processes(2).options(|options| options.num_worker_threads = 1);
    let board = cluster.board();
    on_first(cluster, move |world| {
        const MANY: usize = 3000;
        let others = world.rpc_async(1, patient, (board.clone(),)).unwrap();
        let options = Options {
            patience: Duration::ZERO,
            ..Options::default()
        };
        let (busy, profile) = profile(&world, options, || {
            board.wait("running");
            board.raise("go");
            others.wait().unwrap();
            assert_eq!(world.rpc_sync(1, record_many, (MANY,)).unwrap(), MANY);
            let busy = world.rpc_async(1, patient_again, (board.clone(),)).unwrap();
            board.wait("running again");
            busy
        })
        .unwrap();
        board.raise("go again");
        busy.wait().unwrap();
        // The function that had not returned is all that is not there.
        let missing: Vec<_> = profile
            .missing
            .iter()
            .map(|(name, why)| (&**name, &**why))
            .collect();
        let still = "something still went on there when the patience was at an end";
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
fn patient_again(board: Board) {
    board.raise("running again");
    board.wait("go again");
}
