//! Time that a thread spends waiting is not busy time, whatever it waits for (S51).

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use telegrad_rpc::RpcFuture;
use telegrad_testkit::{on_threads_and_processes, wait_until};

use super::*;

on_threads_and_processes! { 3 =>
    waiting_for_a_callback_is_recorded
    waiting_for_an_earlier_call_is_recorded
    waiting_for_a_local_value_is_recorded
    waiting_for_credit_is_recorded
    an_await_is_recorded_with_its_call
    the_critical_path_goes_through_a_barrier_to_the_last_member
}

#[remote]
fn nap() -> u32 {
    std::thread::sleep(SLOW);
    5
}

#[remote]
fn nap_with(_: Vec<u8>) -> u32 {
    0
}

/// Returns the only wait of this name with its call, and checks that rank 0 mostly waited.
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

fn waiting_for_a_callback_is_recorded(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
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
        let root = find(&events, "scope", "profile", 0);
        assert_eq!(call, find(&events, "scope", "then", root.span).span);
    });
}

fn waiting_for_an_earlier_call_is_recorded(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
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

fn waiting_for_a_local_value_is_recorded(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let late: RRef<Late> = world.remote(0, Late::new, ()).unwrap();
        let (value, profile) = profile(&world, Options::default(), || late.local_value().unwrap().0).unwrap();
        assert_eq!(value, 5);
        wait(&profile, "wait in local_value");
    });
}

fn waiting_for_credit_is_recorded(cluster: Cluster) {
    let cluster = cluster.options(|options| {
        options.window = 64 << 10;
        options.num_worker_threads = 1;
    });
    cluster.run_on_rank_0(|world, _| {
        let (_, profile) = profile(&world, Options::default(), || {
            let mut calls = vec![world.rpc_async(1, nap, ()).unwrap()];
            // More requests than the window holds while `nap` runs.
            for _ in 0..20 {
                calls.push(world.rpc_async(1, nap_with, (vec![1; 8000],)).unwrap());
            }
            join_all(calls).wait().unwrap();
        })
        .unwrap();
        let waits = profile
            .events
            .iter()
            .filter(|event| event.name == "wait for credit at w1");
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

fn an_await_is_recorded_with_its_call(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let (value, profile) =
            profile(&world, Options::default(), || world.rpc_sync(1, nap_at, (2,))).unwrap();
        assert_eq!(value.unwrap(), 5);
        let events = events(&profile);
        let root = find(&events, "scope", "profile", 0);
        let outer = find(&events, "call", "nap_at", root.span);
        let execution = find(&events, "execution", "nap_at", outer.span);
        let inner = find(&events, "call", "nap", execution.span);
        let waits = profile
            .events
            .iter()
            .filter(|event| event.parent == execution.span);
        let waits: Vec<_> = waits.map(|event| &event.kind).collect();
        assert!(waits.contains(&&Kind::Wait { call: inner.span }), "{waits:?}");
    });
}

/// Which members have passed the barrier.
static MET: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Enters a barrier after a delay.
#[remote]
fn meet(after: Duration) -> Result<()> {
    std::thread::sleep(after);
    let world = World::current()?;
    world.barrier()?;
    MET[world.rank() as usize].store(true, SeqCst);
    Ok(())
}

fn the_critical_path_goes_through_a_barrier_to_the_last_member(cluster: Cluster) {
    cluster.run(|world| {
        if world.rank() != 0 {
            // Members must enter the same barriers in the same order, and the shutdown is one.
            let has_met = || MET[world.rank() as usize].load(SeqCst);
            return wait_until(Duration::from_secs(20), has_met, || "`meet` was not called");
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

/// A worker in shutdown is idle, the leader included.
#[test]
fn a_worker_in_shutdown_is_idle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    Cluster::processes(3)
        .env(telegrad_trace::FOLDER_ENV, &path.display().to_string())
        .run(|world| {
            if world.rank() == 2 {
                world.rpc_sync(1, leaf, (SUCCEED, 1)).unwrap();
                // The other members enter the shutdown before this one.
                let others = || world.rpc_sync(0, count_in_shutdown, ()).unwrap() == 2;
                wait_until(
                    Duration::from_secs(20),
                    others,
                    || "the other members do not shut down",
                );
                std::thread::sleep(SLOW);
            }
        });
    let whole = telegrad_profile::read(&[path]).unwrap();
    let calls = whole.events.iter().filter_map(Event::as_call);
    assert!(calls.filter(|call| call.is_shutdown).count() >= 6);
    let step = whole.step().unwrap();
    for usage in &step.workers[..2] {
        // Not all of the time: connecting may count as waiting.
        assert!(usage.idle >= SLOW.as_nanos() as u64, "{step}");
    }
    // Rank 2 waited for its own calls.
    assert!(step.workers[2].waiting > 0, "{step}");
}

/// Returns how many workers are in the shutdown, which are those that rank 0 serves.
#[remote]
fn count_in_shutdown() -> Result<usize> {
    let served = World::current()?.status().served;
    Ok(served.iter().filter(|served| served.is_gathering).count())
}
