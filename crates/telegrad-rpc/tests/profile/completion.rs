//! Profiles end on every worker, whatever happens to the workers that took part (S45, S54).

use super::*;

on_every_cluster! { 3 =>
    a_profile_that_panicked_leaves_no_traces
    a_profile_with_zero_patience_ends_on_every_worker
    the_creation_of_a_value_is_recorded_before_its_first_use
    a_profile_waits_for_threads_in_its_context
}

fn a_profile_that_panicked_leaves_no_traces(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            profile(&world, Options::default(), || {
                world.rpc_sync(1, relay, (SUCCEED, 1)).unwrap();
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
        assert_no_traces(&world);
    });
}

fn a_profile_with_zero_patience_ends_on_every_worker(cluster: Cluster) {
    let board = cluster.board();
    cluster.run_on_rank_0(move |world, _| {
        let options = Options::default().patience(Duration::ZERO);
        let (_, profile) =
            profile(&world, options.clone(), || world.rpc_sync(1, relay, (SUCCEED, 1))).unwrap();
        // Finished calls are included, also on workers that were called indirectly.
        let events = events(&profile);
        let root = find(&events, "scope", "profile", 0);
        chain(&events, root.span, "::relay");
        assert_no_traces(&world);
        // A call that still runs is not included, and does not reopen the profile.
        let (_, profile) = telegrad_rpc::profile(&world, options, || {
            let future = world.rpc_async(1, relay_after_signal, (board.clone(),)).unwrap();
            board.wait("running");
            future
        })
        .map(|(future, profile)| {
            board.raise("go");
            (future.wait().unwrap(), profile)
        })
        .unwrap();
        assert!(profile.events.iter().all(|event| event.as_execution().is_none()));
        assert_no_traces(&world);
    });
}

fn the_creation_of_a_value_is_recorded_before_its_first_use(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let options = Options::default().patience(Duration::ZERO);
        for _ in 0..50 {
            let (_, profile) = profile(&world, options.clone(), || {
                let counter: RRef<Counter> = world.remote(1, Counter::new, (5,)).unwrap();
                counter.remote(Counter::add, (2,)).unwrap().to_here().unwrap()
            })
            .unwrap();
            let made = |name: &str| {
                let mut executed = profile
                    .events
                    .iter()
                    .filter(|event| event.as_execution().is_some());
                executed.any(|event| event.name.ends_with(name) && event.status.is_ok())
            };
            assert!(made("new") && made("add"), "{:#?}", profile.events);
        }
    });
}

fn a_profile_waits_for_threads_in_its_context(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        for _ in 0..20 {
            let (thread, profile) = profile(&world, Options::default(), || {
                let (here, world) = (telegrad_trace::here(), world.clone());
                std::thread::spawn(move || here.run(|| world.rpc_sync(1, relay, (SUCCEED, 1))))
            })
            .unwrap();
            thread.join().unwrap().unwrap();
            let events = events(&profile);
            let root = find(&events, "scope", "profile", 0);
            chain(&events, root.span, "::relay");
            assert_eq!(profile.missing, []);
        }
        assert_no_traces(&world);
    });
}

/// Calls `leaf` on worker 2 once the board has the signal `go`.
#[remote]
fn relay_after_signal(board: Board) -> Result<u32> {
    board.raise("running");
    board.wait("go");
    let world = World::current()?;
    world.rpc_sync(2, leaf, (SUCCEED, 1))
}

#[test]
fn a_worker_that_discarded_a_profile_is_missing_from_it() {
    Cluster::threads(3).run_on_rank_0(|world, _| {
        let (_, outer) = profile(&world, Options::default(), || {
            world.rpc_sync(2, leaf, (SUCCEED, 1)).unwrap();
            // More traces than a worker holds at a time, all of them newer.
            nested_profiles(&world, 65);
            world.rpc_sync(1, leaf, (SUCCEED, 1)).unwrap();
        })
        .unwrap();
        let [(name, why)] = &outer.missing[..] else {
            panic!("{:?}", outer.missing);
        };
        assert!(name == "w2" && why.contains("too many profiles"), "{name}: {why}");
        // The events of the other workers are included.
        let events = events(&outer);
        let root = find(&events, "scope", "profile", 0);
        let call = |callee| {
            let mut calls = events.iter().filter(|event| event.parent == root.span);
            calls.find(|event| event.as_call().is_some_and(|call| call.callee == callee))
        };
        assert!(call(2).is_some());
        find(&events, "execution", "leaf", call(1).unwrap().span);
        assert_no_traces(&world);
    });
}

/// Takes nested profiles of calls to worker 2.
fn nested_profiles(world: &World, depth: u32) {
    if depth > 0 {
        let _ = profile(world, Options::default(), || {
            world.rpc_sync(2, leaf, (SUCCEED, 1)).unwrap();
            nested_profiles(world, depth - 1);
        });
    }
}

#[test]
fn a_profile_is_nested_in_the_call_that_took_it() {
    Cluster::threads(3).run_on_rank_0(|world, _| {
        let recording = ProcessProfile::start(&world).unwrap();
        let taken = world.rpc_sync(0, take_a_profile, ()).unwrap();
        let whole = recording.finish();
        let of_whole = events(&whole);
        let call = find(&of_whole, "call", "take_a_profile", 0);
        let execution = find(&of_whole, "execution", "take_a_profile", call.span);
        let root = find(&of_whole, "scope", "profile", execution.span);
        find(&of_whole, "call", "leaf", root.span);
        // The same event is the root of the profile.
        assert_eq!(taken, root.span);
    });
}

/// Takes a profile, and returns the span of its root.
#[remote]
fn take_a_profile() -> Result<u64> {
    let world = World::current()?;
    let (_, profile) = profile(&world, Options::default(), || {
        world.rpc_sync(1, leaf, (SUCCEED, 1))
    })?;
    let step = profile.step().map(|step| step.span);
    step.ok_or_else(|| telegrad_rpc::Error::other("there is no step"))
}
