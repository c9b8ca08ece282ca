//! Which recording an event belongs to, whenever that recording started (S44).

use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};

use telegrad_testkit::{on_threads_and_processes, wait_until};

use super::*;

on_threads_and_processes! { 3 =>
    a_running_function_is_recorded_from_the_start_of_a_recording
}

/// The waker of `outlast`, and whether that function may go on.
static WAKER: Mutex<Option<Waker>> = Mutex::new(None);
static MAY_GO_ON: Mutex<bool> = Mutex::new(false);

/// Starts before a recording, and goes on during it.
#[remote]
async fn outlast(to: u32) -> Result<u32> {
    poll_fn(|context| {
        *WAKER.lock().unwrap() = Some(context.waker().clone());
        if *MAY_GO_ON.lock().unwrap() {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
    {
        record_function!("after that");
    }
    World::current()?.rpc_async(to, leaf, (SUCCEED, 1))?.await
}

fn a_running_function_is_recorded_from_the_start_of_a_recording(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| match world.rank() {
        0 => {
            let call = world.rpc_async(1, outlast, (2,)).unwrap();
            assert_eq!(call.wait().unwrap(), SUCCEED);
            board.raise("answered");
            board.wait("over");
        }
        1 => {
            let is_asleep = || WAKER.lock().unwrap().is_some();
            wait_until(
                Duration::from_secs(20),
                is_asleep,
                || "the function was not called",
            );
            let recording = ProcessProfile::start(&world).unwrap();
            *MAY_GO_ON.lock().unwrap() = true;
            WAKER.lock().unwrap().take().unwrap().wake();
            board.wait("answered");
            let profile = recording.finish();
            board.raise("over");
            let events = events(&profile);
            find(&events, "scope", "after that", 0);
            find(&events, "call", "leaf", 0);
        }
        _ => board.wait("over"),
    });
}

#[remote]
fn scoped() {
    record_function!("scoped");
}

/// Two workers of one process, one of which records.
#[test]
fn a_recording_excludes_other_workers_of_its_process() {
    let cluster = Cluster::threads(2);
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 1 {
            board.wait("recording");
            {
                record_function!("on a thread of the other worker");
            }
            let call = world.rpc_async(1, scoped, ()).unwrap();
            let then = call.then(|value| {
                record_function!("in a callback of the other worker");
                value
            });
            then.wait().unwrap();
            world.rpc_sync(0, scoped, ()).unwrap();
            board.raise("called");
            return board.wait("over");
        }
        let recording = ProcessProfile::start(&world).unwrap();
        board.raise("recording");
        board.wait("called");
        world.in_context(None, || {
            record_function!("of this worker");
        });
        let profile = recording.finish();
        board.raise("over");
        let scopes = profile.events.iter().filter(|event| event.kind == Kind::Scope);
        let names: Vec<_> = scopes.map(|event| &*event.name).collect();
        assert_eq!(names, ["scoped", "of this worker"]);
    });
}
