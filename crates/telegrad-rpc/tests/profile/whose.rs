//! Whose recording something is in, whenever that began (S44).

use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};

use telegrad_testkit::{on_threads_and_processes, wait_until};

use super::*;

on_threads_and_processes! { 3 =>
    what_was_under_way_is_recorded_from_the_start
}

/// What wakes the function that waits to be told to go on.
static ASLEEP: Mutex<Option<Waker>> = Mutex::new(None);
static MAY_GO_ON: Mutex<bool> = Mutex::new(false);

/// Begins before there is a recording, and goes on in it.
#[remote]
async fn outlast(to: u32) -> Result<u32> {
    poll_fn(|context| {
        *ASLEEP.lock().unwrap() = Some(context.waker().clone());
        if *MAY_GO_ON.lock().unwrap() {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
    {
        record_function!("after that");
    }
    World::current()?.rpc_async(to, leaf, (WELL, 1))?.await
}

fn what_was_under_way_is_recorded_from_the_start(cluster: Cluster) {
    let board = cluster.board();
    cluster.run(move |world| match world.rank() {
        0 => {
            let call = world.rpc_async(1, outlast, (2,)).unwrap();
            assert_eq!(call.wait().unwrap(), WELL);
            board.raise("answered");
            board.wait("over");
        }
        1 => {
            let is_asleep = || ASLEEP.lock().unwrap().is_some();
            wait_until(Duration::from_secs(20), is_asleep, || "it was not called");
            let recording = ProcessProfile::start(&world).unwrap();
            *MAY_GO_ON.lock().unwrap() = true;
            ASLEEP.lock().unwrap().take().unwrap().wake();
            board.wait("answered");
            let profile = recording.finish();
            board.raise("over");
            let events = events(&profile);
            of(&events, "scope", "after that", 0);
            of(&events, "call", "leaf", 0);
        }
        _ => board.wait("over"),
    });
}

#[remote]
fn scoped() {
    record_function!("scoped");
}

/// Two workers of one process, of which one records.
#[test]
fn what_one_worker_does_is_not_in_the_recording_of_another() {
    let cluster = Cluster::threads(2);
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 1 {
            board.wait("recording");
            {
                record_function!("on a thread of another's");
            }
            let call = world.rpc_async(1, scoped, ()).unwrap();
            let then = call.then(|value| {
                record_function!("in a callback of another's");
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
            record_function!("of its own");
        });
        let profile = recording.finish();
        board.raise("over");
        let scopes = profile.events.iter().filter(|event| event.kind == Kind::Scope);
        let names: Vec<_> = scopes.map(|event| &*event.name).collect();
        assert_eq!(names, ["scoped", "of its own"]);
    });
}
