//! A model checker of the reference protocol: every interleaving of small worlds.
//!
//! A [`World`](world::World) has one protocol state per worker and a network that delays and reorders all packets, loses and
//! repeats those that are retried, and loses the others with their connection. Workers crash, and the others detect it one after the
//! other. An oracle tracks which worker really holds which reference, and which values exist. The protocol states are checked
//! against it after every step, and once more when the world is idle.
//!
//! Small worlds are searched exhaustively; larger ones are explored by random walks. `TELEGRAD_MODEL_SEED` repeats a walk,
//! `TELEGRAD_MODEL_RUNS` sets the number of walks.

mod oracle;
mod world;
mod network;
mod log;
mod steps;
mod check;
mod fingerprint;
mod search;
mod random;

use super::*;
use search::Search;
use world::{Limits, Step, World};

/// A value created on another worker.
const REMOTE: Step = Step::Create { by: 1, owner: 0 };
/// The same in the other direction.
const REMOTE_BACK: Step = Step::Create { by: 0, owner: 1 };
/// A value that its owner creates by a request to itself.
const OWN_REQUEST: Step = Step::Create { by: 0, owner: 0 };
/// A value that exists from the start.
const LOCAL: Step = Step::Own(0);

/// The base of all limits: one value and no faults.
const ONE: Limits = Limits {
    creations: 1,
    transfers: 0,
    uses: 0,
    losses: 0,
    repeats: 0,
    disconnects: 0,
    doubts: 0,
    crashes: 0,
};

/// Searches every state. Requires a minimum number of states, because an empty search finds no violation.
#[track_caller]
fn search(at_least: usize, workers: usize, creations: &'static [Step], limits: Limits) {
    search_allowed(at_least, workers, creations, limits, |_, _| true);
}

/// Searches every state that the steps allowed by `allow` reach.
#[track_caller]
fn search_allowed(
    at_least: usize,
    workers: usize,
    creations: &'static [Step],
    limits: Limits,
    allow: fn(&World, Step) -> bool,
) {
    let search = Search {
        workers,
        creations,
        limits,
        allow,
    };
    let states = search.run();
    assert!(
        states >= at_least,
        "the search found only {states} states, fewer than {at_least}"
    );
}

/// Some 10,000 states.
#[test]
fn two_workers_with_lost_and_repeated_messages() {
    let limits = Limits {
        transfers: 1,
        losses: 1,
        repeats: 1,
        ..ONE
    };
    search(5_000, 2, &[REMOTE], limits);
}

/// A request is in doubt, but it and its reply arrive. Some 12,000 states.
#[test]
fn two_workers_with_a_request_in_doubt() {
    let limits = Limits {
        transfers: 1,
        losses: 1,
        doubts: 1,
        ..ONE
    };
    search(5_000, 2, &[REMOTE], limits);
}

/// Some 42,000 states.
#[test]
fn two_workers_with_a_broken_connection() {
    let limits = Limits {
        transfers: 1,
        losses: 1,
        disconnects: 1,
        ..ONE
    };
    search(10_000, 2, &[REMOTE], limits);
}

/// Some 50,000 states.
#[test]
fn two_workers_with_a_crash() {
    let limits = Limits {
        transfers: 1,
        disconnects: 1,
        crashes: 1,
        ..ONE
    };
    search(10_000, 2, &[REMOTE], limits);
}

/// Some 16,000 states.
#[test]
fn a_value_used_before_it_is_created() {
    let limits = Limits {
        uses: 2,
        disconnects: 1,
        crashes: 1,
        ..ONE
    };
    search(5_000, 2, &[REMOTE], limits);
}

/// Some 50,000 states.
#[test]
fn a_local_value_transferred_by_its_owner() {
    let limits = Limits {
        transfers: 2,
        disconnects: 1,
        ..ONE
    };
    search(10_000, 2, &[LOCAL], limits);
}

/// Some 29,000 states.
#[test]
fn a_value_created_by_a_request_of_its_owner() {
    let limits = Limits {
        transfers: 1,
        uses: 1,
        disconnects: 1,
        crashes: 1,
        ..ONE
    };
    search(10_000, 2, &[OWN_REQUEST], limits);
}

/// Some 41,000 states.
#[test]
fn two_values_on_workers_with_references_to_each_other() {
    let limits = Limits {
        creations: 2,
        transfers: 1,
        ..ONE
    };
    search(10_000, 2, &[REMOTE, REMOTE_BACK], limits);
}

/// Some 68,000 states.
#[test]
fn three_workers_with_a_forwarded_reference() {
    let limits = Limits { transfers: 2, ..ONE };
    search_allowed(20_000, 3, &[REMOTE], limits, |world, step| match step {
        // The tests above cover all other paths of one or two transfers.
        Step::Transfer { fork, to } => matches!((holder(world, fork), to), (1, 2) | (2, 0 | 1)),
        _ => true,
    });
}

/// Some 42,000 states.
#[test]
fn three_workers_with_lost_and_repeated_messages() {
    let limits = Limits {
        transfers: 1,
        losses: 1,
        repeats: 1,
        ..ONE
    };
    search(10_000, 3, &[REMOTE], limits);
}

/// Some 45,000 states.
#[test]
fn three_workers_with_broken_connections() {
    let limits = Limits {
        transfers: 1,
        disconnects: 1,
        ..ONE
    };
    search(10_000, 3, &[REMOTE], limits);
}

/// Some 64,000 states.
#[test]
fn three_workers_with_two_crashes() {
    let limits = Limits {
        transfers: 1,
        crashes: 2,
        ..ONE
    };
    search(20_000, 3, &[REMOTE], limits);
}

/// The value may be freed before the owner receives a reference from a crashed worker whose crash it has not detected.
/// Some 2,600 states.
#[test]
fn a_reference_sent_by_a_crashed_worker_to_the_owner() {
    let limits = Limits {
        transfers: 2,
        crashes: 1,
        ..ONE
    };
    search_allowed(1_000, 3, &[REMOTE], limits, |world, step| match step {
        Step::Transfer { fork, to } => {
            is_confirmed(world) && matches!((holder(world, fork), to), (1, 2) | (2, 0))
        }
        Step::Drop(fork) => holder(world, fork) != 2,
        Step::Crash(worker) => worker == 2 && world.left.transfers == 0,
        _ => true,
    });
}

/// The same, with a fourth worker as the receiver. Some 10,000 states.
#[test]
fn a_reference_sent_by_a_crashed_worker_to_another_borrower() {
    let limits = Limits {
        transfers: 2,
        crashes: 1,
        ..ONE
    };
    search_allowed(3_000, 4, &[REMOTE], limits, |world, step| match step {
        Step::Transfer { fork, to } => {
            is_confirmed(world) && matches!((holder(world, fork), to), (1, 2) | (2, 3))
        }
        Step::Drop(fork) => holder(world, fork) != 2,
        Step::Crash(worker) => worker == 2 && world.left.transfers == 0,
        _ => true,
    });
}

/// A crashed worker is in the chain from the owner to a third worker. Some 16,000 states.
#[test]
fn a_local_value_forwarded_by_a_crashed_worker() {
    let limits = Limits {
        transfers: 2,
        crashes: 1,
        ..ONE
    };
    search_allowed(5_000, 3, &[LOCAL], limits, |world, step| match step {
        Step::Transfer { fork, to } => matches!((holder(world, fork), to), (0, 1) | (1, 2)),
        _ => true,
    });
}

fn holder(world: &World, fork: ForkId) -> usize {
    world.oracle.forks[&fork].holder
}

/// Whether the creation of the only value is confirmed.
fn is_confirmed(world: &World) -> bool {
    world
        .oracle
        .forks
        .values()
        .all(|fork| fork.parent.is_some() || fork.confirmed)
}

/// The owner is lost before the request is sent, or not.
#[test]
fn a_withdrawn_creation_leaves_no_state() {
    for is_lost in [false, true] {
        let owner = world::incarnation(1);
        let mut protocol = ProtocolState::new(world::incarnation(0));
        let (_, fork) = protocol.create(owner).expect("the owner is not lost");
        if is_lost {
            protocol.worker_lost(owner);
        }
        protocol.not_created(fork);
        assert_eq!(protocol.counts(), ProtocolCounts::default());
    }
}

/// Late messages of a lost worker are ignored, and lost references cannot be transferred.
#[test]
fn messages_of_lost_workers_are_ignored() {
    let (me, lost) = (world::incarnation(0), world::incarnation(1));
    let mut protocol = ProtocolState::new(me);
    let (_, fork) = protocol.create(lost).expect("not lost yet");
    assert_eq!(protocol.loss(fork), None);
    protocol.worker_lost(lost);
    assert_eq!(protocol.loss(fork), Some(Loss::Owner));
    assert_eq!(protocol.create(lost), None);
    let (reference, first) = ProtocolState::new(lost).create(me).expect("not lost");
    let messages = vec![Message::Settle {
        reference,
        fork: first,
    }];
    assert!(!protocol.make(reference, lost));
    assert_eq!(protocol.receive_batch(lost, &Batch { number: 1, messages }), None);
    assert!(!protocol.is_expected(reference));
    assert_eq!(protocol.transfer(fork, me, 0), None);
    let (_, own) = protocol.own();
    assert_eq!(protocol.transfer(own, lost, 0), None);
    protocol.drop_handle(own);
    protocol.drop_handle(fork);
    assert_eq!(protocol.counts(), ProtocolCounts::default());
}

/// Two to seven workers, up to forty values, hundreds of steps, all faults.
#[test]
fn random_walks_through_larger_worlds() {
    if let Ok(seed) = std::env::var("TELEGRAD_MODEL_SEED") {
        return random::walk(seed.parse().expect("TELEGRAD_MODEL_SEED is not a number"));
    }
    let runs = std::env::var("TELEGRAD_MODEL_RUNS")
        .map(|runs| runs.parse().expect("TELEGRAD_MODEL_RUNS is not a number"));
    (0..runs.unwrap_or(500)).for_each(random::walk);
}

/// Some 1,600,000 states: for optimised builds, after changes of the protocol.
#[test]
#[ignore = "takes long"]
fn three_workers_with_a_forwarded_reference_and_a_crash() {
    let limits = Limits {
        transfers: 2,
        crashes: 1,
        ..ONE
    };
    search(1_000_000, 3, &[REMOTE], limits);
}

/// Some 3,400,000 states, as above.
#[test]
#[ignore = "takes long"]
fn two_workers_with_every_fault() {
    let limits = Limits {
        transfers: 1,
        uses: 1,
        losses: 1,
        repeats: 1,
        disconnects: 1,
        crashes: 1,
        ..ONE
    };
    search(1_000_000, 2, &[REMOTE, OWN_REQUEST, LOCAL], limits);
}
