//! Where the time of a call went, and how it ended at either side (S42).

use telegrad_testkit::on_threads_and_processes;
use telegrad_wire::{Decoder, Encoder, Wire, WireError};

use super::*;

on_threads_and_processes! { 3 =>
    time_is_spent_where_it_is_slow
    cancelled_calls_are_marked_at_both_ends
    the_time_of_a_function_is_without_that_of_its_arguments_and_its_result
    a_large_result_is_seen_to_be_decoded
    a_call_leaves_when_there_is_room_for_it
    a_result_that_cannot_be_sent_is_a_failure_at_both_ends
    a_result_that_cannot_be_decoded_is_a_failure
    what_panics_around_a_function_has_failed
}

/// How long what is slow takes: longer than everything else.
const SLOW: Duration = Duration::from_millis(300);

/// Takes long to decode, or to encode.
struct Slow {
    to_decode: bool,
}

impl Wire for Slow {
    fn encode(&self, encoder: &mut Encoder) {
        if !self.to_decode {
            std::thread::sleep(SLOW);
        }
        self.to_decode.encode(encoder);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        let to_decode = bool::decode(decoder)?;
        if to_decode {
            std::thread::sleep(SLOW);
        }
        Ok(Self { to_decode })
    }
}

#[remote]
fn take_slow(_: Slow) {}

#[remote]
fn give_slow() -> Slow {
    Slow { to_decode: false }
}

#[remote]
async fn give_slow_later() -> Slow {
    Slow { to_decode: false }
}

#[remote]
fn give_large() -> Vec<u8> {
    vec![1; 64 << 10]
}

fn the_time_of_a_function_is_without_that_of_its_arguments_and_its_result(cluster: Cluster) {
    on_first(cluster, |world| {
        let (_, profile) = profile(&world, Options::default(), || {
            world.rpc_sync(1, take_slow, (Slow { to_decode: true },)).unwrap();
            world.rpc_sync(1, give_slow, ()).unwrap();
            world.rpc_sync(1, give_slow_later, ()).unwrap();
        })
        .unwrap();
        for (name, phase) in [
            ("take_slow", "queue"),
            ("give_slow", "reply"),
            ("give_slow_later", "reply"),
        ] {
            assert_eq!(longest(&profile, name), phase, "{name} in {profile:#?}");
        }
        // It is work all the same.
        let usage = &profile.step().unwrap().workers[1];
        assert!(usage.busy >= 3 * SLOW.as_nanos() as u64, "{usage:?}");
    });
}

fn a_large_result_is_seen_to_be_decoded(cluster: Cluster) {
    on_first(cluster, |world| {
        let (_, profile) = profile(&world, Options::default(), || {
            world.rpc_sync(1, give_large, ()).unwrap();
            world.rpc_sync(1, quick, ()).unwrap();
        })
        .unwrap();
        let events = events(&profile);
        let root = of(&events, "scope", "profile", 0);
        let decoding = of(&events, "codec", "", root.span);
        assert!(decoding.name.ends_with("::give_large"), "{decoding:?}");
        let call = of(&events, "call", "give_large", root.span);
        assert!(decoding.start >= call.end && decoding.status.is_ok());
    });
}

fn a_call_leaves_when_there_is_room_for_it(cluster: Cluster) {
    let board = cluster.board();
    let cluster = cluster.options(|options| {
        options.window = 64 << 10;
        options.num_worker_threads = 1;
    });
    on_first(cluster, move |world| {
        let (_, profile) = profile(&world, Options::default(), || {
            let waking = board.clone();
            let helper = std::thread::spawn(move || {
                waking.wait("running");
                std::thread::sleep(SLOW);
                waking.raise("go");
            });
            let busy = world.rpc_async(1, patient, (board.clone(),)).unwrap();
            let calls = (0..20).map(|_| world.rpc_async(1, take, (vec![1; 8000],)));
            let calls: Vec<_> = calls.collect();
            join_all(calls.into_iter().map(Result::unwrap)).wait().unwrap();
            busy.wait().unwrap();
            helper.join().unwrap();
        })
        .unwrap();
        let waits = profile.events.iter().filter_map(|event| match event.kind {
            Kind::Wait { call } if event.name.starts_with("wait for room") => Some((event, call)),
            _ => None,
        });
        let mut count = 0;
        for (wait, call) in waits {
            let call = profile.events.iter().find(|event| event.span == call).unwrap();
            assert!(
                call.as_call().unwrap().sent >= wait.end.min(call.end),
                "{call:?} {wait:?}"
            );
            count += 1;
        }
        assert!(count > 0, "{:#?}", profile.events);
    });
}

#[remote]
fn give(bytes: usize) -> Vec<u8> {
    vec![0; bytes]
}

fn a_result_that_cannot_be_sent_is_a_failure_at_both_ends(cluster: Cluster) {
    let cluster = cluster.options(|options| options.max_message = 1 << 20);
    on_first(cluster, |world| {
        let (result, profile) = profile(&world, Options::default(), || {
            world
                .rpc_sync(1, give, (2 << 20,))
                .map_err(|error| error.to_string())
        })
        .unwrap();
        let told = result.unwrap_err();
        let events = events(&profile);
        let root = of(&events, "scope", "profile", 0);
        let call = of(&events, "call", "give", root.span);
        let execution = of(&events, "execution", "give", call.span);
        let [Status::Failed(heard), Status::Failed(said)] = [&call.status, &execution.status] else {
            panic!("{call:?} {execution:?}");
        };
        assert!(
            told.contains(&**heard) && heard.contains(&**said),
            "{told}: {heard}: {said}"
        );
    });
}

/// Cannot be decoded.
struct OneWay;

impl Wire for OneWay {
    fn encode(&self, encoder: &mut Encoder) {
        ().encode(encoder);
    }

    fn decode(_: &mut Decoder<'_>) -> Result<Self, WireError> {
        Err(WireError::mismatch("nothing", "a one-way value"))
    }
}

#[remote]
fn give_one_way() -> OneWay {
    OneWay
}

fn a_result_that_cannot_be_decoded_is_a_failure(cluster: Cluster) {
    on_first(cluster, |world| {
        let (result, profile) = profile(&world, Options::default(), || {
            let result = world.rpc_sync(1, give_one_way, ());
            result.map(drop).map_err(|error| error.to_string())
        })
        .unwrap();
        let told = result.unwrap_err();
        let events = events(&profile);
        let root = of(&events, "scope", "profile", 0);
        let decoding = of(&events, "codec", "give_one_way", root.span);
        assert_eq!(decoding.status, Status::Failed(told));
    });
}

struct Panics;

impl Wire for Panics {
    fn encode(&self, _: &mut Encoder) {
        panic!("on purpose");
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        <()>::decode(decoder).map(|()| Self)
    }
}

#[remote]
fn take_panics(_: Panics) {}

/// An error that nobody can read.
#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("on purpose");
    }
}

impl std::error::Error for Unspeakable {}

#[remote]
fn fail_unspeakably() -> std::result::Result<(), Unspeakable> {
    Err(Unspeakable)
}

fn what_panics_around_a_function_has_failed(cluster: Cluster) {
    on_first(cluster, |world| {
        let (_, profile) = profile(&world, Options::default(), || {
            let encoding = || world.rpc_sync(1, take_panics, (Panics,));
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(encoding));
            assert!(panicked.is_err());
            world.rpc_sync(1, fail_unspeakably, ()).unwrap_err();
        })
        .unwrap();
        let events = events(&profile);
        let root = of(&events, "scope", "profile", 0);
        let not_made = of(&events, "call", "take_panics", root.span);
        let call = of(&events, "call", "fail_unspeakably", root.span);
        let execution = of(&events, "execution", "fail_unspeakably", call.span);
        for event in [not_made, call, execution] {
            assert!(matches!(&event.status, Status::Failed(_)), "{event:?}");
        }
    });
}

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
