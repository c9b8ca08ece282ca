//! Where the time of a call went, and how it ended at either side (S42).

use telegrad_testkit::on_threads_and_processes;
use telegrad_wire::{Decoder, Encoder, Wire, WireError};

use super::*;

on_threads_and_processes! { 3 =>
    time_is_spent_where_it_is_slow
    cancelled_calls_are_marked_at_both_ends
}

/// How long what is slow takes: longer than everything else.
const SLOW: Duration = Duration::from_millis(300);

struct SlowToEncode;

impl Wire for SlowToEncode {
    fn encode(&self, encoder: &mut Encoder) {
        std::thread::sleep(SLOW);
        ().encode(encoder);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        <()>::decode(decoder).map(|()| Self)
    }
}

#[remote]
fn receive(_: SlowToEncode) {}

#[remote]
fn slow() {
    std::thread::sleep(SLOW);
}

#[remote]
fn quick() {}

/// The longest phase of the only call of this name.
#[track_caller]
fn longest(profile: &Profile, name: &str) -> &'static str {
    let call = profile
        .events
        .iter()
        .find(|event| event.as_call().is_some() && event.name.ends_with(name));
    let phases = profile
        .phases(call.expect("it was called"))
        .expect("it was executed");
    let phases = [
        (phases.encode, "encode"),
        (phases.wire, "wire"),
        (phases.queue, "queue"),
        (phases.execute, "execute"),
        (phases.reply, "reply"),
    ];
    phases.iter().max().unwrap().1
}

fn time_is_spent_where_it_is_slow(cluster: Cluster) {
    let board = cluster.board();
    let cluster = cluster.options(|options| options.num_worker_threads = 1);
    on_first(cluster, move |world| {
        let (_, profile) = profile(&world, Options::default(), || {
            world.rpc_sync(1, receive, (SlowToEncode,)).unwrap();
            world.rpc_sync(1, slow, ()).unwrap();
            // The only thread is busy, so this one has to queue.
            let busy = world.rpc_async(1, patient, (board.clone(),)).unwrap();
            board.wait("running");
            let queued = world.rpc_async(1, quick, ()).unwrap();
            std::thread::sleep(SLOW);
            board.raise("go");
            busy.wait().unwrap();
            queued.wait().unwrap();
        })
        .unwrap();
        for (name, phase) in [("receive", "encode"), ("slow", "execute"), ("quick", "queue")] {
            assert_eq!(longest(&profile, name), phase, "{name} in {profile:#?}");
        }
    });
}

#[remote]
async fn never_ready(board: Board) {
    board.raise("async");
    std::future::pending::<()>().await;
}

fn cancelled_calls_are_marked_at_both_ends(cluster: Cluster) {
    let board = cluster.board();
    on_first(cluster, move |world| {
        let (_, profile) = profile(&world, Options::default(), || {
            let first = world.rpc_async(1, never_ready, (board.clone(),)).unwrap();
            let second = world.rpc_async(2, patient, (board.clone(),)).unwrap();
            board.wait("async");
            board.wait("running");
            drop((first, second));
            // The cancellation is there before the function is told to go on: it goes the same way, ahead of this.
            world.rpc_sync(2, quick, ()).unwrap();
            board.raise("go");
        })
        .unwrap();
        let events = events(&profile);
        let root = of(&events, "scope", "profile", 0);
        for name in ["never_ready", "patient"] {
            let call = of(&events, "call", name, root.span);
            let execution = of(&events, "execution", name, call.span);
            let statuses = [call, execution].map(|event| &event.status);
            assert_eq!(statuses, [&Status::Cancelled; 2], "{name}");
        }
    });
}
