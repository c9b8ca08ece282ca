//! Phases of calls, and the status of a call at both ends (S42).

use telegrad_testkit::on_threads_and_processes;
use telegrad_wire::{Decoder, Encoder, Wire, WireError};

use super::*;

on_threads_and_processes! { 3 =>
    the_longest_phase_is_the_slow_one
    cancelled_calls_are_marked_at_both_ends
    execution_time_excludes_decoding_and_encoding
    decoding_a_large_result_is_an_event
    a_call_is_sent_once_it_has_credit
    an_unsendable_result_is_a_failure_at_both_ends
    an_undecodable_result_is_a_failure
    a_panic_outside_the_function_is_a_failure
}

/// A value that is slow to decode, or to encode.
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

fn execution_time_excludes_decoding_and_encoding(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
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
        // Decoding and encoding count as busy.
        let usage = &profile.step().unwrap().workers[1];
        assert!(usage.busy >= 3 * SLOW.as_nanos() as u64, "{usage:?}");
    });
}

fn decoding_a_large_result_is_an_event(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let (_, profile) = profile(&world, Options::default(), || {
            world.rpc_sync(1, give_large, ()).unwrap();
            world.rpc_sync(1, quick, ()).unwrap();
        })
        .unwrap();
        let events = events(&profile);
        let root = find(&events, "scope", "profile", 0);
        let decoding = find(&events, "codec", "", root.span);
        assert!(decoding.name.ends_with("::give_large"), "{decoding:?}");
        let call = find(&events, "call", "give_large", root.span);
        assert!(decoding.start >= call.end && decoding.status.is_ok());
    });
}

fn a_call_is_sent_once_it_has_credit(cluster: Cluster) {
    let board = cluster.board();
    let cluster = cluster.options(|options| {
        options.window = 64 << 10;
        options.num_worker_threads = 1;
    });
    cluster.run_on_rank_0(move |world, _| {
        let (_, profile) = profile(&world, Options::default(), || {
            let waking = board.clone();
            let helper = std::thread::spawn(move || {
                waking.wait("running");
                std::thread::sleep(SLOW);
                waking.raise("go");
            });
            let busy = world.rpc_async(1, hold, (board.clone(),)).unwrap();
            let calls = (0..20).map(|_| world.rpc_async(1, take, (vec![1; 8000],)));
            let calls: Vec<_> = calls.collect();
            join_all(calls.into_iter().map(Result::unwrap)).wait().unwrap();
            busy.wait().unwrap();
            helper.join().unwrap();
        })
        .unwrap();
        let waits = profile.events.iter().filter_map(|event| match event.kind {
            Kind::Wait { call } if event.name.starts_with("wait for credit") => Some((event, call)),
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

fn an_unsendable_result_is_a_failure_at_both_ends(cluster: Cluster) {
    let cluster = cluster.options(|options| options.max_message = 1 << 20);
    cluster.run_on_rank_0(|world, _| {
        let (result, profile) = profile(&world, Options::default(), || {
            world
                .rpc_sync(1, give, (2 << 20,))
                .map_err(|error| error.to_string())
        })
        .unwrap();
        let returned = result.unwrap_err();
        let events = events(&profile);
        let root = find(&events, "scope", "profile", 0);
        let call = find(&events, "call", "give", root.span);
        let execution = find(&events, "execution", "give", call.span);
        let [Status::Failed(at_caller), Status::Failed(at_callee)] = [&call.status, &execution.status] else {
            panic!("{call:?} {execution:?}");
        };
        assert!(
            returned.contains(&**at_caller) && at_caller.contains(&**at_callee),
            "{returned}: {at_caller}: {at_callee}"
        );
    });
}

/// A value that fails to decode.
struct Undecodable;

impl Wire for Undecodable {
    fn encode(&self, encoder: &mut Encoder) {
        ().encode(encoder);
    }

    fn decode(_: &mut Decoder<'_>) -> Result<Self, WireError> {
        Err(WireError::mismatch("nothing", "a one-way value"))
    }
}

#[remote]
fn give_undecodable() -> Undecodable {
    Undecodable
}

fn an_undecodable_result_is_a_failure(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let (result, profile) = profile(&world, Options::default(), || {
            let result = world.rpc_sync(1, give_undecodable, ());
            result.map(drop).map_err(|error| error.to_string())
        })
        .unwrap();
        let returned = result.unwrap_err();
        let events = events(&profile);
        let root = find(&events, "scope", "profile", 0);
        let decoding = find(&events, "codec", "give_undecodable", root.span);
        assert_eq!(decoding.status, Status::Failed(returned));
    });
}

/// A value that panics when it is encoded.
struct PanicsOnEncode;

impl Wire for PanicsOnEncode {
    fn encode(&self, _: &mut Encoder) {
        panic!("on purpose");
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        <()>::decode(decoder).map(|()| Self)
    }
}

#[remote]
fn take_panicking(_: PanicsOnEncode) {}

/// An error whose text panics.
#[derive(Debug)]
struct PanickingError;

impl std::fmt::Display for PanickingError {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("on purpose");
    }
}

impl std::error::Error for PanickingError {}

#[remote]
fn fail_with_panicking_text() -> std::result::Result<(), PanickingError> {
    Err(PanickingError)
}

fn a_panic_outside_the_function_is_a_failure(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let (_, profile) = profile(&world, Options::default(), || {
            let encoding = || world.rpc_sync(1, take_panicking, (PanicsOnEncode,));
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(encoding));
            assert!(panicked.is_err());
            world.rpc_sync(1, fail_with_panicking_text, ()).unwrap_err();
        })
        .unwrap();
        let events = events(&profile);
        let root = find(&events, "scope", "profile", 0);
        let unsent = find(&events, "call", "take_panicking", root.span);
        let call = find(&events, "call", "fail_with_panicking_text", root.span);
        let execution = find(&events, "execution", "fail_with_panicking_text", call.span);
        for event in [unsent, call, execution] {
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

/// Returns the longest phase of the only call of this name.
#[track_caller]
fn longest(profile: &Profile, name: &str) -> &'static str {
    let call = profile
        .events
        .iter()
        .find(|event| event.as_call().is_some() && event.name.ends_with(name));
    let phases = profile
        .phases(call.expect("a call of this name"))
        .expect("an executed call");
    let phases = [
        (phases.encode, "encode"),
        (phases.wire, "wire"),
        (phases.queue, "queue"),
        (phases.execute, "execute"),
        (phases.reply, "reply"),
    ];
    phases.iter().max().unwrap().1
}

fn the_longest_phase_is_the_slow_one(cluster: Cluster) {
    let board = cluster.board();
    let cluster = cluster.options(|options| options.num_worker_threads = 1);
    cluster.run_on_rank_0(move |world, _| {
        let (_, profile) = profile(&world, Options::default(), || {
            world.rpc_sync(1, receive, (SlowToEncode,)).unwrap();
            world.rpc_sync(1, slow, ()).unwrap();
            // Queued: the only thread is busy.
            let busy = world.rpc_async(1, hold, (board.clone(),)).unwrap();
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
    cluster.run_on_rank_0(move |world, _| {
        let (_, profile) = profile(&world, Options::default(), || {
            let first = world.rpc_async(1, never_ready, (board.clone(),)).unwrap();
            let second = world.rpc_async(2, hold, (board.clone(),)).unwrap();
            board.wait("async");
            board.wait("running");
            drop((first, second));
            // Arrives behind the cancellation, so that the function is still running when it is cancelled.
            world.rpc_sync(2, quick, ()).unwrap();
            board.raise("go");
        })
        .unwrap();
        let events = events(&profile);
        let root = find(&events, "scope", "profile", 0);
        for name in ["never_ready", "hold"] {
            let call = find(&events, "call", name, root.span);
            let execution = find(&events, "execution", name, call.span);
            let statuses = [call, execution].map(|event| &event.status);
            assert_eq!(statuses, [&Status::Cancelled; 2], "{name}");
        }
    });
}
