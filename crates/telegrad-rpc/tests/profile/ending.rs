//! That profiles end, everywhere, whatever has become of those who took part (S45, S54).

use super::*;

on_every_cluster! { 3 =>
    nothing_is_left_of_a_profile_that_panicked
    a_profile_without_patience_ends_everywhere_all_the_same
    how_a_value_was_made_is_recorded_before_it_can_be_had
    threads_that_were_told_are_waited_for
}

fn nothing_is_left_of_a_profile_that_panicked(cluster: Cluster) {
    on_first(cluster, |world| {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            profile(&world, Options::default(), || {
                world.rpc_sync(1, relay, (WELL, 1)).unwrap();
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
        assert_no_traces(&world);
    });
}

fn a_profile_without_patience_ends_everywhere_all_the_same(cluster: Cluster) {
    let board = cluster.board();
    on_first(cluster, move |world| {
        let options = Options {
            patience: Duration::ZERO,
            ..Options::default()
        };
        let (_, profile) = profile(&world, options.clone(), || world.rpc_sync(1, relay, (WELL, 1))).unwrap();
        // What is over is there, also of workers that others have called.
        let events = events(&profile);
        let root = of(&events, "scope", "profile", 0);
        chain(&events, root.span, "::relay");
        assert_no_traces(&world);
        // What goes on is not, and does not open it again.
        let (_, profile) = telegrad_rpc::profile(&world, options, || {
            let future = world.rpc_async(1, relay_patiently, (board.clone(),)).unwrap();
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

fn how_a_value_was_made_is_recorded_before_it_can_be_had(cluster: Cluster) {
    on_first(cluster, |world| {
        let options = Options {
            patience: Duration::ZERO,
            ..Options::default()
        };
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

fn threads_that_were_told_are_waited_for(cluster: Cluster) {
    on_first(cluster, |world| {
        for _ in 0..20 {
            let (helper, profile) = profile(&world, Options::default(), || {
                let (here, world) = (telegrad_trace::here(), world.clone());
                std::thread::spawn(move || here.run(|| world.rpc_sync(1, relay, (WELL, 1))))
            })
            .unwrap();
            helper.join().unwrap().unwrap();
            let events = events(&profile);
            let root = of(&events, "scope", "profile", 0);
            chain(&events, root.span, "::relay");
            assert_eq!(profile.missing, []);
        }
        assert_no_traces(&world);
    });
}

/// Has the next worker do something, after a while.
#[remote]
fn relay_patiently(board: Board) -> Result<u32> {
    board.raise("running");
    board.wait("go");
    let world = World::current()?;
    world.rpc_sync(2, leaf, (WELL, 1))
}

#[test]
fn a_worker_that_has_given_a_profile_up_is_missing_from_it() {
    on_first(Cluster::threads(3), |world| {
        let (_, outer) = profile(&world, Options::default(), || {
            world.rpc_sync(2, leaf, (WELL, 1)).unwrap();
            // More than a worker keeps at a time, and all of them later.
            nested_profiles(&world, 65);
            world.rpc_sync(1, leaf, (WELL, 1)).unwrap();
        })
        .unwrap();
        let [(name, why)] = &outer.missing[..] else {
            panic!("{:?}", outer.missing);
        };
        assert!(name == "w2" && why.contains("given up"), "{name}: {why}");
        // What the others have of it is there.
        let events = events(&outer);
        let root = of(&events, "scope", "profile", 0);
        let call = |callee| {
            let mut calls = events.iter().filter(|event| event.parent == root.span);
            calls.find(|event| event.as_call().is_some_and(|call| call.callee == callee))
        };
        assert!(call(2).is_some());
        of(&events, "execution", "leaf", call(1).unwrap().span);
        assert_no_traces(&world);
    });
}

/// Profiles within each other, of calls to the third worker.
fn nested_profiles(world: &World, depth: u32) {
    if depth > 0 {
        let _ = profile(world, Options::default(), || {
            world.rpc_sync(2, leaf, (WELL, 1)).unwrap();
            nested_profiles(world, depth - 1);
        });
    }
}

#[test]
fn a_profile_is_under_what_it_was_taken_in() {
    on_first(Cluster::threads(3), |world| {
        let recording = ProcessProfile::start(&world).unwrap();
        let taken = world.rpc_sync(0, take_a_profile, ()).unwrap();
        let whole = recording.finish();
        let of_whole = events(&whole);
        let call = of(&of_whole, "call", "take_a_profile", 0);
        let execution = of(&of_whole, "execution", "take_a_profile", call.span);
        let root = of(&of_whole, "scope", "profile", execution.span);
        of(&of_whole, "call", "leaf", root.span);
        // The profile itself begins with it.
        assert_eq!(taken, root.span);
    });
}

/// The number of the event that everything of a profile is within.
#[remote]
fn take_a_profile() -> Result<u64> {
    let world = World::current()?;
    let (_, profile) = profile(&world, Options::default(), || world.rpc_sync(1, leaf, (WELL, 1)))?;
    let step = profile.step().map(|step| step.span);
    step.ok_or_else(|| telegrad_rpc::Error::other("there is no step"))
}
