//! Whatever a thread waits for, it does not work meanwhile (S51).

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use telegrad_rpc::RpcFuture;
use telegrad_testkit::{on_threads_and_processes, wait_until};

use super::*;

on_threads_and_processes! { 3 =>
    who_waits_for_a_callback_waits
    a_call_from_before_the_profile_is_waited_for_in_it
    who_waits_for_a_value_of_its_own_waits
    who_waits_for_room_waits
    an_async_function_says_what_it_has_waited_for
    a_path_goes_through_a_barrier_to_who_came_last
}

/// How long what is waited for takes: longer than everything else.
const SLOW: Duration = Duration::from_millis(300);

#[remote]
fn nap() -> u32 {
    std::thread::sleep(SLOW);
    5
}

#[remote]
fn nap_with(_: Vec<u8>) -> u32 {
    0
}

/// The only wait of this name, which is for most of the time.
#[track_caller]
fn wait<'a>(profile: &'a Profile, name: &str) -> (&'a Event, u64) {
    let waits: Vec<_> = profile
        .events
        .iter()
        .filter_map(|event| match event.kind {
            Kind::Wait { call } if event.worker == 0 && event.name.contains(name) => Some((event, call)),
            _ => None,
        })
        .collect();
    let [wait] = &waits[..] else {
        panic!("{name} in {:#?}", profile.events);
    };
    let step = profile.step().unwrap();
    let usage = &step.workers[0];
    assert!(usage.waiting > usage.busy, "{step}");
    *wait
}

fn who_waits_for_a_callback_waits(cluster: Cluster) {
    on_first(cluster, |world| {
        let (value, profile) = profile(&world, Options::default(), || {
            world
                .rpc_async(1, nap, ())
                .unwrap()
                .then(|value| Ok(value? + 1))
                .wait()
        })
        .unwrap();
        assert_eq!(value.unwrap(), 6);
        let (_, call) = wait(&profile, "wait for then");
        let events = events(&profile);
        let root = of(&events, "scope", "profile", 0);
        assert_eq!(call, of(&events, "scope", "then", root.span).span);
    });
}

fn a_call_from_before_the_profile_is_waited_for_in_it(cluster: Cluster) {
    on_first(cluster, |world| {
        let call: RpcFuture<u32> = world.rpc_async(1, nap, ()).unwrap();
        let (_, profile) = profile(&world, Options::default(), || call.wait().unwrap()).unwrap();
        let (event, call) = wait(&profile, "nap");
        assert_eq!((call, events(&profile).len()), (0, 1), "{event:?}");
    });
}

struct Late(u32);

#[remote]
impl Late {
    fn new() -> Result<Self> {
        Ok(Self(nap()))
    }
}

fn who_waits_for_a_value_of_its_own_waits(cluster: Cluster) {
    on_first(cluster, |world| {
        let late: RRef<Late> = world.remote(0, Late::new, ()).unwrap();
        let (value, profile) = profile(&world, Options::default(), || late.local_value().unwrap().0).unwrap();
        assert_eq!(value, 5);
        wait(&profile, "wait in local_value");
    });
}

fn who_waits_for_room_waits(cluster: Cluster) {
    let cluster = cluster.options(|options| {
        options.window = 64 << 10;
        options.num_worker_threads = 1;
    });
    on_first(cluster, |world| {
        let (_, profile) = profile(&world, Options::default(), || {
            let mut calls = vec![world.rpc_async(1, nap, ()).unwrap()];
            // More than there is room for while that goes on.
            for _ in 0..20 {
                calls.push(world.rpc_async(1, nap_with, (vec![1; 8000],)).unwrap());
            }
            join_all(calls).wait().unwrap();
        })
        .unwrap();
        let waits = profile
            .events
            .iter()
            .filter(|event| event.name == "wait for room at w1");
        let calls = waits.filter_map(|event| match event.kind {
            Kind::Wait { call } => profile.events.iter().find(|other| other.span == call),
            _ => None,
        });
        let calls: Vec<_> = calls.collect();
        assert!(!calls.is_empty(), "{:#?}", profile.events);
        assert!(calls.iter().all(|call| call.name.ends_with("nap_with")));
    });
}

#[remote]
async fn nap_at(to: u32) -> Result<u32> {
    World::current()?.rpc_async(to, nap, ())?.await
}

fn an_async_function_says_what_it_has_waited_for(cluster: Cluster) {
    on_first(cluster, |world| {
        let (value, profile) =
            profile(&world, Options::default(), || world.rpc_sync(1, nap_at, (2,))).unwrap();
        assert_eq!(value.unwrap(), 5);
        let events = events(&profile);
        let root = of(&events, "scope", "profile", 0);
        let outer = of(&events, "call", "nap_at", root.span);
        let execution = of(&events, "execution", "nap_at", outer.span);
        let inner = of(&events, "call", "nap", execution.span);
        let waits = profile
            .events
            .iter()
            .filter(|event| event.parent == execution.span);
        let waits: Vec<_> = waits.map(|event| &event.kind).collect();
        assert!(waits.contains(&&Kind::Wait { call: inner.span }), "{waits:?}");
    });
}

/// Which of the others have been to the barrier.
static MET: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Comes to a barrier, sooner or later.
#[remote]
fn meet(after: Duration) -> Result<()> {
    std::thread::sleep(after);
    let world = World::current()?;
    world.barrier()?;
    MET[world.rank() as usize].store(true, SeqCst);
    Ok(())
}

fn a_path_goes_through_a_barrier_to_who_came_last(cluster: Cluster) {
    cluster.run(|world| {
        if world.rank() != 0 {
            // All come to the same barriers in the same order, and shutting down is one.
            let has_met = || MET[world.rank() as usize].load(SeqCst);
            return wait_until(Duration::from_secs(20), has_met, || "nobody calls");
        }
        let (_, profile) = profile(&world, Options::default(), || {
            let others = [(1, SLOW), (2, Duration::ZERO)];
            let others = others.map(|(rank, after)| world.rpc_async(rank, meet, (after,)).unwrap());
            world.barrier().unwrap();
            for call in others {
                call.wait().unwrap();
            }
        })
        .unwrap();
        let step = profile.step().unwrap();
        let (worker, name, time) = &step.critical()[0];
        assert!(worker == "w1" && name.ends_with("meet"), "{step}");
        assert!(*time >= SLOW.as_nanos() as u64, "{step}");
    });
}

/// Whoever has come to its end waits for nothing, nor does the worker where the ends meet.
#[test]
fn shutting_down_is_not_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    Cluster::processes(3)
        .env(telegrad_trace::FOLDER_ENV, &path.display().to_string())
        .run(|world| {
            if world.rank() == 2 {
                world.rpc_sync(1, leaf, (WELL, 1)).unwrap();
                // The others are in the shutdown before this one.
                let others = || world.rpc_sync(0, at_the_end, ()).unwrap() == 2;
                wait_until(Duration::from_secs(20), others, || "the others do not come");
                std::thread::sleep(SLOW);
            }
        });
    let whole = telegrad_profile::read(&[path]).unwrap();
    let calls = whole.events.iter().filter_map(Event::as_call);
    assert!(calls.filter(|call| call.is_shutdown).count() >= 6);
    let step = whole.step().unwrap();
    for usage in &step.workers[..2] {
        // They may have had to wait for a link.
        assert!(usage.idle >= SLOW.as_nanos() as u64, "{step}");
    }
    // The calls to find that out were waited for.
    assert!(step.workers[2].waiting > 0, "{step}");
}

/// How many workers are in the shutdown: those that rank 0 serves.
#[remote]
fn at_the_end() -> Result<usize> {
    let served = World::current()?.status().served;
    Ok(served.iter().filter(|served| served.is_gathering).count())
}
