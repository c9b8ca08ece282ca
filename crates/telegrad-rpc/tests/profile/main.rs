//! What profiles have of calls (S42 to S45).

mod ending;
mod losing;
mod held_up;
mod phases;
mod shapes;
mod waiting;
mod whose;

use std::time::Duration;

use telegrad_profile::{Options, Profile};
use telegrad_rpc::{ProcessProfile, RRef, Result, World, join_all, profile, remote};
use telegrad_testkit::{Board, Cluster, on_every_cluster};
use telegrad_trace::{Clock, Event, Kind, Status, record_function};

/// What a leaf is to do.
const WELL: u32 = 0;
const FAIL: u32 = 1;
const PANIC: u32 = 2;
const SLEEP: u32 = 3;

#[remote]
fn leaf(what: u32, _number: u64) -> Result<u32> {
    record_function!("in the leaf");
    match what {
        FAIL => Err(telegrad_rpc::Error::other("a leaf falls")),
        PANIC => panic!("a leaf panics"),
        SLEEP => {
            std::thread::sleep(Duration::from_millis(1500));
            Ok(SLEEP)
        }
        other => Ok(other),
    }
}

/// Has the next worker do it.
#[remote]
fn relay(what: u32, number: u64) -> Result<u32> {
    let world = World::current()?;
    world.rpc_sync(world.rank() + 1, leaf, (what, number))
}

#[remote]
async fn relay_later(number: u64) -> Result<u32> {
    let world = World::current()?;
    world.rpc_async(world.rank() + 1, leaf, (WELL, number))?.await
}

#[remote]
fn patient(board: Board) {
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
    nested_calls_are_recorded_once_each_under_what_caused_them
    failures_are_recorded_wherever_they_pass
    calls_at_once_from_several_threads_stay_apart
    references_and_their_methods_are_recorded
    what_is_not_waited_for_is_recorded_all_the_same
    a_server_can_record_everything_that_it_does
    clocks_that_differ_are_brought_together
    callbacks_belong_to_the_profile_that_they_were_given_in
    an_async_function_waits_while_it_sleeps
}

/// Runs the body on rank 0.
fn on_first(cluster: Cluster, body: impl Fn(World) + Send + Sync + 'static) {
    cluster.run(move |world| {
        if world.rank() == 0 {
            body(world);
        }
    });
}

/// All but the waiting, whose times are another matter.
fn events(profile: &Profile) -> Vec<&Event> {
    let events = profile.events.iter();
    events
        .filter(|event| !matches!(event.kind, Kind::Wait { .. }))
        .collect()
}

fn of<'a>(events: &[&'a Event], kind: &str, name: &str, parent: u64) -> &'a Event {
    let found: Vec<_> = events
        .iter()
        .filter(|event| event.kind.name() == kind && event.name.ends_with(name) && event.parent == parent)
        .collect();
    assert_eq!(found.len(), 1, "{kind} {name} under {parent} in {events:#?}");
    found[0]
}

/// The chain of one relayed call: as many events as there should be, each on its worker.
fn chain<'a>(events: &[&'a Event], root: u64, relay: &str) -> [&'a Event; 5] {
    let call = of(events, "call", relay, root);
    let relay = of(events, "execution", relay, call.span);
    let nested = of(events, "call", "leaf", relay.span);
    let leaf = of(events, "execution", "leaf", nested.span);
    let inside = of(events, "scope", "in the leaf", leaf.span);
    assert_eq!(
        [call, relay, nested, leaf, inside].map(|event| event.worker),
        [0, 1, 1, 2, 2]
    );
    [call, relay, nested, leaf, inside]
}

fn nested_calls_are_recorded_once_each_under_what_caused_them(cluster: Cluster) {
    on_first(cluster, |world| {
        let options = Options {
            name: "all of it".into(),
            ..Options::default()
        };
        let (value, profile) = profile(&world, options, || {
            let at_once = world.rpc_sync(1, relay, (WELL, 1)).unwrap();
            at_once + world.rpc_sync(1, relay_later, (2,)).unwrap()
        })
        .unwrap();
        assert_eq!(value, 0);
        let events = events(&profile);
        assert_eq!(events.len(), 11, "{events:#?}");
        let root = of(&events, "scope", "all of it", 0);
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
        // Nothing stays behind, and nothing more is recorded.
        world.rpc_sync(1, relay, (WELL, 3)).unwrap();
        assert_no_traces(&world);
    });
}

fn failures_are_recorded_wherever_they_pass(cluster: Cluster) {
    let cluster = cluster.options(|options| options.max_message = 1 << 20);
    on_first(cluster, |world| {
        for (what, said) in [(FAIL, "a leaf falls"), (PANIC, "a leaf panics")] {
            let (result, profile) = profile(&world, Options::default(), || {
                world
                    .rpc_sync(1, relay, (what, 1))
                    .map_err(|error| error.to_string())
            })
            .unwrap();
            assert!(result.unwrap_err().contains(said));
            let events = events(&profile);
            let root = of(&events, "scope", "profile", 0);
            let chain = chain(&events, root.span, "::relay");
            for event in &chain[..4] {
                let Status::Failed(why) = &event.status else {
                    panic!("{event:?}");
                };
                assert!(why.contains(said), "{why}");
            }
            let averages = profile.key_averages();
            assert_eq!(
                averages.0.iter().map(|row| row.failed).sum::<usize>(),
                if what == FAIL { 4 } else { 5 }
            );
        }
        let (result, profile) = profile(&world, Options::default(), || {
            let hasty = world.with_timeout(Duration::from_millis(500));
            hasty.rpc_sync(2, leaf, (SLEEP, 1))
        })
        .unwrap();
        assert!(result.is_err());
        let events = events(&profile);
        let root = of(&events, "scope", "profile", 0);
        let call = of(&events, "call", "leaf", root.span);
        let leaf = of(&events, "execution", "leaf", call.span);
        assert_eq!([call, leaf].map(|event| &event.status), [&Status::TimedOut; 2]);
        // It went on for longer than its caller waited, and is there with all of its time.
        assert!(leaf.duration() > call.duration(), "{call:?} {leaf:?}");
        assert!(of(&events, "scope", "in the leaf", leaf.span).status.is_ok());
        let (result, profile) = profile_of_nobody(&world);
        assert!(result.is_err());
        assert!(
            matches!(&profile.events[1].status, Status::Failed(_)),
            "{profile:?}"
        );
    });
}

/// A call that cannot even be made.
fn profile_of_nobody(world: &World) -> (Result<u32>, Profile) {
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

fn calls_at_once_from_several_threads_stay_apart(cluster: Cluster) {
    const THREADS: u64 = 8;
    const EACH: u64 = 8;
    on_first(cluster, |world| {
        let (_, profile) = profile(&world, Options::default(), || {
            let here = telegrad_trace::here();
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (world, here) = (&world, here.clone());
                    scope.spawn(move || {
                        here.run(|| {
                            record_function!(format!("thread {thread}"));
                            let calls = (0..EACH).map(|number| {
                                let what = if number == 3 { FAIL } else { WELL };
                                world.rpc_async(1, relay, (what, number)).unwrap()
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
        assert_eq!(spans.len(), events.len(), "each has a number of its own");
        let root = of(&events, "scope", "profile", 0);
        for thread in 0..THREADS {
            let scope = of(&events, "scope", &format!("thread {thread}"), root.span);
            let calls: Vec<_> = events.iter().filter(|event| event.parent == scope.span).collect();
            assert_eq!(calls.len() as u64, EACH);
            assert_eq!(calls.iter().filter(|call| !call.status.is_ok()).count(), 1);
            for call in calls {
                assert_eq!((call.worker, call.thread), (0, scope.thread));
                let relay = of(&events, "execution", "::relay", call.span);
                let nested = of(&events, "call", "leaf", relay.span);
                let leaf = of(&events, "execution", "leaf", nested.span);
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
    on_first(cluster, |world| {
        let (value, profile) = profile(&world, Options::default(), || {
            let counter: RRef<Counter> = world.remote(1, Counter::new, (5,)).unwrap();
            let sum = counter.remote(Counter::add, (2,)).unwrap();
            sum.to_here().unwrap() + counter.rpc_sync(Counter::add, (10,)).unwrap()
        })
        .unwrap();
        assert_eq!(value, 7 + 17);
        let events = events(&profile);
        let root = of(&events, "scope", "profile", 0);
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

fn what_is_not_waited_for_is_recorded_all_the_same(cluster: Cluster) {
    let board = cluster.board();
    on_first(cluster, move |world| {
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
            world.rpc_async(2, patient, (board.clone(),)).unwrap().detach();
        })
        .unwrap();
        helper.join().unwrap();
        let events = events(&profile);
        let root = of(&events, "scope", "profile", 0);
        let call = of(&events, "call", "patient", root.span);
        let execution = of(&events, "execution", "patient", call.span);
        assert!(execution.status.is_ok() && execution.end > root.end);
    });
}

fn a_server_can_record_everything_that_it_does(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() != 1 {
            board.wait("recording");
            for number in 0..3 {
                world.rpc_sync(1, leaf, (WELL, number)).unwrap();
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
        world.rpc_sync(2, leaf, (WELL, 9)).unwrap();
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

fn clocks_that_differ_are_brought_together(cluster: Cluster) {
    const HOUR: i64 = 3_600_000_000_000;
    /// By how much each worker's clock is ahead.
    const AHEAD: [i64; 3] = [0, 5 * HOUR, -HOUR / 7200];
    let cluster = cluster.options(|options| {
        let rank = options.rank.expect("the cluster has set it") as usize;
        options.clock = Clock::shifted(AHEAD[rank]);
    });
    on_first(cluster, |world| {
        let (_, profile) = profile(&world, Options::default(), || {
            let calls = (0..20).map(|number| world.rpc_async(1, relay, (WELL, number)));
            join_all(calls.collect::<Result<Vec<_>>>().unwrap())
                .wait()
                .unwrap();
            for number in 0..20 {
                world.rpc_sync(1, relay, (WELL, number)).unwrap();
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
            // Two hops, each known to half of what the shortest call took.
            assert!(
                error.abs() <= 2 * shortest("call"),
                "{} is off by {error} ns",
                worker.name
            );
        }
        let root = of(&events, "scope", "profile", 0);
        let slack = 4 * shortest("call") as u64;
        for event in &events {
            assert!(
                event.start + slack >= root.start && event.end <= root.end + slack,
                "{event:?} is not within {root:?}"
            );
        }
    });
}

/// That no worker keeps anything of any profile.
fn assert_no_traces(world: &World) {
    for rank in 0..3 {
        assert_eq!(
            world.rpc_sync(rank, traces_kept, ()).unwrap(),
            0,
            "on rank {rank}"
        );
    }
}

fn callbacks_belong_to_the_profile_that_they_were_given_in(cluster: Cluster) {
    on_first(cluster, |world| {
        let (value, profile) = profile(&world, Options::default(), || {
            let next = world.clone();
            let first = world.rpc_async(1, leaf, (WELL, 1)).unwrap();
            let second = first.then(move |value| next.rpc_sync(2, leaf, (value?, 2)));
            second.wait()
        })
        .unwrap();
        assert_eq!(value.unwrap(), WELL);
        let events = events(&profile);
        let root = of(&events, "scope", "profile", 0);
        let then = of(&events, "scope", "then", root.span);
        let call = of(&events, "call", "leaf", then.span);
        assert_eq!(of(&events, "execution", "leaf", call.span).worker, 2);
    });
}

fn an_async_function_waits_while_it_sleeps(cluster: Cluster) {
    on_first(cluster, |world| {
        let (_, profile) = profile(&world, Options::default(), || {
            world.rpc_sync(1, await_sleep, ()).unwrap();
        })
        .unwrap();
        let step = profile.step().unwrap();
        let [first, second, third] = &step.workers[..] else {
            panic!("{step:?}");
        };
        // The third one is asleep, which counts as work; the others wait for it.
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
fn traces_kept() -> Result<usize> {
    Ok(World::current()?.debug_info().traces)
}

#[test]
fn a_world_that_is_recorded_as_a_whole_leaves_a_file_for_each_worker() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    Cluster::processes(3)
        .env(telegrad_trace::FOLDER_ENV, &path.display().to_string())
        .run(|world| {
            if world.rank() == 0 {
                record_function!("main");
                world.rpc_sync(1, relay, (WELL, 1)).unwrap();
            }
        });
    let profile = telegrad_profile::read(&[path]).unwrap();
    let names: Vec<_> = profile.workers.iter().map(|worker| &*worker.name).collect();
    assert_eq!(names, ["w0", "w1", "w2"]);
    let events = events(&profile);
    let main = of(&events, "scope", "main", 0);
    chain(&events, main.span, "::relay");
}
