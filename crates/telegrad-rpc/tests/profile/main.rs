//! Profiles of calls (S42 to S45).

mod attribution;
mod completion;
mod critical_path;
mod lost_workers;
mod phases;
mod shapes;
mod waiting;

use std::time::Duration;

use telegrad_profile::{Options, Profile};
use telegrad_rpc::{ProcessProfile, RRef, Result, World, join_all, profile, remote};
use telegrad_testkit::{Board, Cluster, on_every_cluster};
use telegrad_trace::{Clock, Event, Kind, Status, record_function};

/// Duration of a slow function: longer than everything else.
const SLOW: Duration = Duration::from_millis(300);

/// The behaviours of a leaf.
const SUCCEED: u32 = 0;
const FAIL: u32 = 1;
const PANIC: u32 = 2;
const SLEEP: u32 = 3;

#[remote]
fn leaf(behaviour: u32, _number: u64) -> Result<u32> {
    record_function!("in the leaf");
    match behaviour {
        FAIL => Err(telegrad_rpc::Error::other("a leaf falls")),
        PANIC => panic!("a leaf panics"),
        SLEEP => {
            std::thread::sleep(Duration::from_millis(1500));
            Ok(SLEEP)
        }
        other => Ok(other),
    }
}

/// Calls `leaf` on the next worker.
#[remote]
fn relay(behaviour: u32, number: u64) -> Result<u32> {
    let world = World::current()?;
    world.rpc_sync(world.rank() + 1, leaf, (behaviour, number))
}

#[remote]
async fn relay_later(number: u64) -> Result<u32> {
    let world = World::current()?;
    world.rpc_async(world.rank() + 1, leaf, (SUCCEED, number))?.await
}

#[remote]
fn hold(board: Board) {
    board.raise("running");
    board.wait("go");
}

struct Counter(u32);

#[remote]
impl Counter {
    fn new(start: u32) -> Result<Self> {
        Ok(Self(start))
    }

    fn add(&mut self, by: u32) -> u32 {
        self.0 += by;
        self.0
    }
}

on_every_cluster! { 3 =>
    nested_calls_are_recorded_once_each_under_their_cause
    a_failure_is_recorded_at_every_call_it_passes
    concurrent_calls_are_recorded_under_their_threads
    references_and_their_methods_are_recorded
    detached_calls_are_recorded
    a_server_can_record_everything_it_does
    events_of_workers_with_different_clocks_are_aligned
    a_callback_belongs_to_the_profile_it_was_registered_in
    a_worker_whose_async_function_awaits_a_call_is_waiting
}

/// Returns all events but waits.
fn events(profile: &Profile) -> Vec<&Event> {
    let events = profile.events.iter();
    events
        .filter(|event| !matches!(event.kind, Kind::Wait { .. }))
        .collect()
}

/// Returns the only event of this kind, name and parent.
#[track_caller]
fn find<'a>(events: &[&'a Event], kind: &str, name: &str, parent: u64) -> &'a Event {
    let found: Vec<_> = events
        .iter()
        .filter(|event| event.kind.name() == kind && event.name.ends_with(name) && event.parent == parent)
        .collect();
    assert_eq!(found.len(), 1, "{kind} {name} under {parent} in {events:#?}");
    found[0]
}

/// Returns the events of one relayed call, and checks that each is on its worker.
#[track_caller]
fn chain<'a>(events: &[&'a Event], root: u64, relay: &str) -> [&'a Event; 5] {
    let call = find(events, "call", relay, root);
    let relay = find(events, "execution", relay, call.span);
    let nested = find(events, "call", "leaf", relay.span);
    let leaf = find(events, "execution", "leaf", nested.span);
    let inside = find(events, "scope", "in the leaf", leaf.span);
    assert_eq!(
        [call, relay, nested, leaf, inside].map(|event| event.worker),
        [0, 1, 1, 2, 2]
    );
    [call, relay, nested, leaf, inside]
}

fn nested_calls_are_recorded_once_each_under_their_cause(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let options = Options {
            name: "all of it".into(),
            ..Options::default()
        };
        let (value, profile) = profile(&world, options, || {
            let at_once = world.rpc_sync(1, relay, (SUCCEED, 1)).unwrap();
            at_once + world.rpc_sync(1, relay_later, (2,)).unwrap()
        })
        .unwrap();
        assert_eq!(value, 0);
        let events = events(&profile);
        assert_eq!(events.len(), 11, "{events:#?}");
        let root = find(&events, "scope", "all of it", 0);
        for relay in ["::relay", "relay_later"] {
            let [call, relay, nested, leaf, inside] = chain(&events, root.span, relay);
            assert!(call.start <= relay.start && relay.end <= call.end);
            assert!(relay.start <= nested.start && nested.start <= leaf.start && leaf.end <= nested.end);
            assert!(leaf.start <= inside.start && inside.end <= leaf.end);
            let phases = profile.phases(call).unwrap();
            let sum = phases.encode + phases.wire + phases.queue + phases.execute + phases.reply;
            assert_eq!(sum, call.duration(), "{phases:?}");
            assert!(call.as_call().unwrap().sent_bytes > 64 && call.as_call().unwrap().received_bytes >= 64);
        }
        assert_eq!(profile.workers.len(), 3);
        assert_eq!(profile.world, Some(world.status().world));
        assert!(profile.missing.is_empty());
        let averages = profile.key_averages();
        let module = module_path!();
        let name = format!("rpc_sync#{module}::relay(w0 -> w1)");
        let row = averages
            .get(&name)
            .unwrap_or_else(|| panic!("no {name} in\n{averages}"));
        assert_eq!((row.calls, &*row.worker), (1, "w0"));
        let nested = format!("{name}#remote_op: rpc_sync#{module}::leaf(w1 -> w2)#remote_op: in the leaf");
        let row = averages
            .get(&nested)
            .unwrap_or_else(|| panic!("no {nested} in\n{averages}"));
        assert_eq!((row.calls, &*row.worker), (1, "w2"));
        // No trace is left, and later calls are not recorded.
        world.rpc_sync(1, relay, (SUCCEED, 3)).unwrap();
        assert_no_traces(&world);
    });
}

fn a_failure_is_recorded_at_every_call_it_passes(cluster: Cluster) {
    let cluster = cluster.options(|options| options.max_message = 1 << 20);
    cluster.run_on_rank_0(|world, _| {
        for (behaviour, message) in [(FAIL, "a leaf falls"), (PANIC, "a leaf panics")] {
            let (result, profile) = profile(&world, Options::default(), || {
                world
                    .rpc_sync(1, relay, (behaviour, 1))
                    .map_err(|error| error.to_string())
            })
            .unwrap();
            assert!(result.unwrap_err().contains(message));
            let events = events(&profile);
            let root = find(&events, "scope", "profile", 0);
            let chain = chain(&events, root.span, "::relay");
            for event in &chain[..4] {
                let Status::Failed(why) = &event.status else {
                    panic!("{event:?}");
                };
                assert!(why.contains(message), "{why}");
            }
            let averages = profile.key_averages();
            assert_eq!(
                averages.0.iter().map(|row| row.failed).sum::<usize>(),
                if behaviour == FAIL { 4 } else { 5 }
            );
        }
        let (result, profile) = profile(&world, Options::default(), || {
            let hasty = world.with_timeout(Duration::from_millis(500));
            hasty.rpc_sync(2, leaf, (SLEEP, 1))
        })
        .unwrap();
        assert!(result.is_err());
        let events = events(&profile);
        let root = find(&events, "scope", "profile", 0);
        let call = find(&events, "call", "leaf", root.span);
        let leaf = find(&events, "execution", "leaf", call.span);
        assert_eq!([call, leaf].map(|event| &event.status), [&Status::TimedOut; 2]);
        // The function ran longer than its caller waited, and is recorded in full.
        assert!(leaf.duration() > call.duration(), "{call:?} {leaf:?}");
        assert!(find(&events, "scope", "in the leaf", leaf.span).status.is_ok());
        let (result, profile) = profile_call_beyond_limit(&world);
        assert!(result.is_err());
        assert!(
            matches!(&profile.events[1].status, Status::Failed(_)),
            "{profile:?}"
        );
    });
}

/// Profiles a call whose arguments exceed the message limit.
fn profile_call_beyond_limit(world: &World) -> (Result<u32>, Profile) {
    profile(world, Options::default(), || {
        let huge = vec![0_u8; 2 << 20];
        world.rpc_sync(1, take, (huge,))
    })
    .unwrap()
}

#[remote]
fn take(bytes: Vec<u8>) -> u32 {
    bytes.len() as u32
}

fn concurrent_calls_are_recorded_under_their_threads(cluster: Cluster) {
    const THREADS: u64 = 8;
    const EACH: u64 = 8;
    cluster.run_on_rank_0(|world, _| {
        let (_, profile) = profile(&world, Options::default(), || {
            let here = telegrad_trace::here();
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (world, here) = (&world, here.clone());
                    scope.spawn(move || {
                        here.run(|| {
                            record_function!(format!("thread {thread}"));
                            let calls = (0..EACH).map(|number| {
                                let behaviour = if number == 3 { FAIL } else { SUCCEED };
                                world.rpc_async(1, relay, (behaviour, number)).unwrap()
                            });
                            let failed = calls
                                .collect::<Vec<_>>()
                                .into_iter()
                                .filter_map(|call| call.wait().err());
                            assert_eq!(failed.count(), 1);
                        });
                    });
                }
            });
        })
        .unwrap();
        let events = events(&profile);
        assert_eq!(events.len() as u64, 1 + THREADS + THREADS * EACH * 5);
        let mut spans: Vec<u64> = events.iter().map(|event| event.span).collect();
        spans.sort_unstable();
        spans.dedup();
        assert_eq!(spans.len(), events.len(), "span ids are unique");
        let root = find(&events, "scope", "profile", 0);
        for thread in 0..THREADS {
            let scope = find(&events, "scope", &format!("thread {thread}"), root.span);
            let calls: Vec<_> = events.iter().filter(|event| event.parent == scope.span).collect();
            assert_eq!(calls.len() as u64, EACH);
            assert_eq!(calls.iter().filter(|call| !call.status.is_ok()).count(), 1);
            for call in calls {
                assert_eq!((call.worker, call.thread), (0, scope.thread));
                let relay = find(&events, "execution", "::relay", call.span);
                let nested = find(&events, "call", "leaf", relay.span);
                let leaf = find(&events, "execution", "leaf", nested.span);
                assert_eq!([relay, nested, leaf].map(|event| event.worker), [1, 1, 2]);
                assert_eq!(
                    [relay, nested, leaf].map(|event| event.status.is_ok()),
                    [call.status.is_ok(); 3]
                );
            }
        }
    });
}

fn references_and_their_methods_are_recorded(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let (value, profile) = profile(&world, Options::default(), || {
            let counter: RRef<Counter> = world.remote(1, Counter::new, (5,)).unwrap();
            let sum = counter.remote(Counter::add, (2,)).unwrap();
            sum.to_here().unwrap() + counter.rpc_sync(Counter::add, (10,)).unwrap()
        })
        .unwrap();
        assert_eq!(value, 7 + 17);
        let events = events(&profile);
        let root = find(&events, "scope", "profile", 0);
        let verbs: Vec<_> = events
            .iter()
            .filter(|event| event.parent == root.span)
            .map(|event| {
                (
                    &*event.as_call().unwrap().verb,
                    event.name.rsplit("::").next().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            verbs,
            [
                ("remote", "new"),
                ("remote", "add"),
                ("to_here", "fetch"),
                ("rpc_sync", "add")
            ]
        );
        let executed: Vec<_> = events
            .iter()
            .filter(|event| event.as_execution().is_some())
            .collect();
        assert_eq!(executed.len(), 4, "{executed:#?}");
        assert!(
            executed
                .iter()
                .all(|event| event.worker == 1 && event.status.is_ok())
        );
    });
}

fn detached_calls_are_recorded(cluster: Cluster) {
    let board = cluster.board();
    cluster.run_on_rank_0(move |world, _| {
        let options = Options {
            patience: Duration::from_secs(30),
            ..Options::default()
        };
        let waking = board.clone();
        let helper = std::thread::spawn(move || {
            waking.wait("running");
            std::thread::sleep(Duration::from_millis(30));
            waking.raise("go");
        });
        let (_, profile) = profile(&world, options, || {
            world.rpc_async(2, hold, (board.clone(),)).unwrap().detach();
        })
        .unwrap();
        helper.join().unwrap();
        let events = events(&profile);
        let root = find(&events, "scope", "profile", 0);
        let call = find(&events, "call", "hold", root.span);
        let execution = find(&events, "execution", "hold", call.span);
        assert!(execution.status.is_ok() && execution.end > root.end);
    });
}

fn a_server_can_record_everything_it_does(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() != 1 {
            board.wait("recording");
            for number in 0..3 {
                world.rpc_sync(1, leaf, (SUCCEED, number)).unwrap();
            }
            board.raise("called");
            board.wait("over");
            return;
        }
        let outer = ProcessProfile::start(&world).unwrap();
        let inner = ProcessProfile::start(&world).unwrap();
        board.raise("recording");
        board.wait_for("called", 2);
        let inner = inner.finish();
        world.rpc_sync(2, leaf, (SUCCEED, 9)).unwrap();
        let outer = outer.finish();
        board.raise("over");
        for profile in [&inner, &outer] {
            let events = events(profile);
            let served: Vec<_> = events.iter().filter_map(|event| event.as_execution()).collect();
            assert_eq!(served.len(), 6, "{events:#?}");
            assert_eq!(served.iter().filter(|execution| execution.caller == 0).count(), 3);
            assert!(events.iter().all(|event| event.worker == 1));
            let scopes = events.iter().filter(|event| event.kind == Kind::Scope).count();
            assert_eq!(scopes, 6, "only what ran here: {events:#?}");
        }
        let made = |profile: &Profile| {
            events(profile)
                .iter()
                .filter(|event| event.as_call().is_some())
                .count()
        };
        assert_eq!((made(&inner), made(&outer)), (0, 1));
        assert!(outer.key_averages().to_string().contains("(w1 -> w2)"));
    });
}

fn events_of_workers_with_different_clocks_are_aligned(cluster: Cluster) {
    const HOUR: i64 = 3_600_000_000_000;
    /// How far each worker's clock is ahead.
    const AHEAD: [i64; 3] = [0, 5 * HOUR, -HOUR / 7200];
    let cluster = cluster.options(|options| {
        let rank = options.rank.expect("the cluster has set it") as usize;
        options.clock = Clock::shifted(AHEAD[rank]);
    });
    cluster.run_on_rank_0(|world, _| {
        let (_, profile) = profile(&world, Options::default(), || {
            let calls = (0..20).map(|number| world.rpc_async(1, relay, (SUCCEED, number)));
            join_all(calls.collect::<Result<Vec<_>>>().unwrap())
                .wait()
                .unwrap();
            for number in 0..20 {
                world.rpc_sync(1, relay, (SUCCEED, number)).unwrap();
            }
        })
        .unwrap();
        let events = events(&profile);
        let shortest = |kind: &str| {
            let of_kind = events.iter().filter(|event| event.kind.name() == kind);
            of_kind.map(|event| event.duration()).min().unwrap() as i64
        };
        for worker in &profile.workers {
            let error = worker.ahead - AHEAD[worker.rank as usize];
            // The estimate spans two hops, each with an error of at most half the shortest call.
            assert!(
                error.abs() <= 2 * shortest("call"),
                "{} is off by {error} ns",
                worker.name
            );
        }
        let root = find(&events, "scope", "profile", 0);
        let slack = 4 * shortest("call") as u64;
        for event in &events {
            assert!(
                event.start + slack >= root.start && event.end <= root.end + slack,
                "{event:?} is not within {root:?}"
            );
        }
    });
}

/// Checks that no worker holds traces of any profile.
#[track_caller]
fn assert_no_traces(world: &World) {
    for rank in 0..3 {
        assert_eq!(
            world.rpc_sync(rank, trace_count, ()).unwrap(),
            0,
            "on rank {rank}"
        );
    }
}

fn a_callback_belongs_to_the_profile_it_was_registered_in(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let (value, profile) = profile(&world, Options::default(), || {
            let next = world.clone();
            let first = world.rpc_async(1, leaf, (SUCCEED, 1)).unwrap();
            let second = first.then(move |value| next.rpc_sync(2, leaf, (value?, 2)));
            second.wait()
        })
        .unwrap();
        assert_eq!(value.unwrap(), SUCCEED);
        let events = events(&profile);
        let root = find(&events, "scope", "profile", 0);
        let then = find(&events, "scope", "then", root.span);
        let call = find(&events, "call", "leaf", then.span);
        assert_eq!(find(&events, "execution", "leaf", call.span).worker, 2);
    });
}

fn a_worker_whose_async_function_awaits_a_call_is_waiting(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let (_, profile) = profile(&world, Options::default(), || {
            world.rpc_sync(1, await_sleep, ()).unwrap();
        })
        .unwrap();
        let step = profile.step().unwrap();
        let [first, second, third] = &step.workers[..] else {
            panic!("{step:?}");
        };
        // The third worker sleeps, which counts as busy; the others wait for it.
        for worker in [first, second] {
            assert!(worker.waiting > 9 * worker.busy, "{step}");
        }
        assert!(third.busy > third.waiting, "{step}");
        let critical = step.critical();
        assert!(critical[0].1.ends_with("#remote_op: in the leaf"), "{step}");
    });
}

#[remote]
async fn await_sleep() -> Result<u32> {
    World::current()?.rpc_async(2, leaf, (SLEEP, 1))?.await
}

#[remote]
fn trace_count() -> Result<usize> {
    Ok(World::current()?.debug_info().traces)
}

#[test]
fn recording_a_whole_world_writes_a_file_per_worker() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    Cluster::processes(3)
        .env(telegrad_trace::FOLDER_ENV, &path.display().to_string())
        .run(|world| {
            if world.rank() == 0 {
                record_function!("main");
                world.rpc_sync(1, relay, (SUCCEED, 1)).unwrap();
            }
        });
    let profile = telegrad_profile::read(&[path]).unwrap();
    let names: Vec<_> = profile.workers.iter().map(|worker| &*worker.name).collect();
    assert_eq!(names, ["w0", "w1", "w2"]);
    let events = events(&profile);
    let main = find(&events, "scope", "main", 0);
    chain(&events, main.span, "::relay");
}
