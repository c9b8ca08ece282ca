//! The protocol in every interleaving.
//!
//! A [`World`](world::World) has protocol states and a network that delays and reorders everything, loses and
//! repeats what is retried, and loses with a connection what is not. Workers crash, and the others learn of
//! it one after the other. Beside them stands the truth: who really holds what, and which values are there.
//! After every step the protocol states are held against it, and once more when nothing is under way any more.
//!
//! Small worlds are searched for every state; larger ones are walked through at random. To see a walk again,
//! set `TELEGRAD_MODEL_SEED`; for more walks than usual, set `TELEGRAD_MODEL_RUNS`.

mod truth;
mod world;
mod network;
mod story;
mod steps;
mod check;
mod print;
mod search;
mod random;

use super::*;
use search::Search;
use world::{Limits, Step, World};

/// Asked for on another worker.
const REMOTE: Step = Step::Create { by: 1, owner: 0 };
/// The other way round.
const BACK: Step = Step::Create { by: 0, owner: 1 };
/// Asked for by the owner itself.
const OWN_REQUEST: Step = Step::Create { by: 0, owner: 0 };
/// There from the start.
const LOCAL: Step = Step::Own(0);

/// What every test starts from: one value, nothing goes wrong.
const ONE: Limits = Limits {
    creations: 1,
    gifts: 0,
    uses: 0,
    losses: 0,
    repeats: 0,
    broken: 0,
    doubts: 0,
    crashes: 0,
};

/// Searches every state. There must be at least so many: a search that cannot begin finds nothing wrong.
#[track_caller]
fn search(at_least: usize, workers: usize, creations: &'static [Step], limits: Limits) {
    search_only(at_least, workers, creations, limits, |_, _| true);
}

/// The same, of the steps that `only` allows.
#[track_caller]
fn search_only(
    at_least: usize,
    workers: usize,
    creations: &'static [Step],
    limits: Limits,
    only: fn(&World, Step) -> bool,
) {
    let search = Search {
        workers,
        creations,
        limits,
        only,
    };
    let states = search.run();
    assert!(states >= at_least, "there are only {states} states");
}

/// Some 10,000 states.
#[test]
fn two_workers_that_lose_and_repeat_messages() {
    let limits = Limits {
        gifts: 1,
        losses: 1,
        repeats: 1,
        ..ONE
    };
    search(5_000, 2, &[REMOTE], limits);
}

/// A request is in doubt, but arrives, and so does its reply. Some 12,000 states.
#[test]
fn two_workers_of_which_one_is_impatient() {
    let limits = Limits {
        gifts: 1,
        losses: 1,
        doubts: 1,
        ..ONE
    };
    search(5_000, 2, &[REMOTE], limits);
}

/// Some 42,000 states.
#[test]
fn two_workers_over_a_connection_that_breaks() {
    let limits = Limits {
        gifts: 1,
        losses: 1,
        broken: 1,
        ..ONE
    };
    search(10_000, 2, &[REMOTE], limits);
}

/// Some 50,000 states.
#[test]
fn two_workers_of_which_one_crashes() {
    let limits = Limits {
        gifts: 1,
        broken: 1,
        crashes: 1,
        ..ONE
    };
    search(10_000, 2, &[REMOTE], limits);
}

/// Some 16,000 states.
#[test]
fn a_value_that_is_used_before_it_is_made() {
    let limits = Limits {
        uses: 2,
        broken: 1,
        crashes: 1,
        ..ONE
    };
    search(5_000, 2, &[REMOTE], limits);
}

/// Some 50,000 states.
#[test]
fn a_value_that_its_owner_gives_away() {
    let limits = Limits {
        gifts: 2,
        broken: 1,
        ..ONE
    };
    search(10_000, 2, &[LOCAL], limits);
}

/// Some 29,000 states.
#[test]
fn a_value_that_its_owner_asks_itself_for() {
    let limits = Limits {
        gifts: 1,
        uses: 1,
        broken: 1,
        crashes: 1,
        ..ONE
    };
    search(10_000, 2, &[OWN_REQUEST], limits);
}

/// Some 41,000 states.
#[test]
fn two_values_on_workers_that_refer_to_each_other() {
    let limits = Limits {
        creations: 2,
        gifts: 1,
        ..ONE
    };
    search(10_000, 2, &[REMOTE, BACK], limits);
}

/// Some 68,000 states.
#[test]
fn three_workers_that_pass_a_reference_on() {
    let limits = Limits { gifts: 2, ..ONE };
    search_only(20_000, 3, &[REMOTE], limits, |world, step| match step {
        // All other ways of one or two links are in the tests above.
        Step::Give { fork, to } => matches!((holder(world, fork), to), (1, 2) | (2, 0 | 1)),
        _ => true,
    });
}

/// Some 42,000 states.
#[test]
fn three_workers_that_lose_and_repeat_messages() {
    let limits = Limits {
        gifts: 1,
        losses: 1,
        repeats: 1,
        ..ONE
    };
    search(10_000, 3, &[REMOTE], limits);
}

/// Some 45,000 states.
#[test]
fn three_workers_over_connections_that_break() {
    let limits = Limits {
        gifts: 1,
        broken: 1,
        ..ONE
    };
    search(10_000, 3, &[REMOTE], limits);
}

/// Some 64,000 states.
#[test]
fn three_workers_of_which_two_crash() {
    let limits = Limits {
        gifts: 1,
        crashes: 2,
        ..ONE
    };
    search(20_000, 3, &[REMOTE], limits);
}

/// The value may be freed before the owner gets a reference to it from a worker that it does not know to be
/// dead. Some 2,600 states.
#[test]
fn a_reference_comes_from_a_dead_worker_to_the_owner() {
    let limits = Limits {
        gifts: 2,
        crashes: 1,
        ..ONE
    };
    search_only(1_000, 3, &[REMOTE], limits, |world, step| match step {
        Step::Give { fork, to } => is_made(world) && matches!((holder(world, fork), to), (1, 2) | (2, 0)),
        Step::Drop(fork) => holder(world, fork) != 2,
        Step::Crash(worker) => worker == 2 && world.left.gifts == 0,
        _ => true,
    });
}

/// The same, with a fourth worker to whom the dead one gave the reference. Some 10,000 states.
#[test]
fn a_reference_comes_from_a_dead_worker_to_another_user() {
    let limits = Limits {
        gifts: 2,
        crashes: 1,
        ..ONE
    };
    search_only(3_000, 4, &[REMOTE], limits, |world, step| match step {
        Step::Give { fork, to } => is_made(world) && matches!((holder(world, fork), to), (1, 2) | (2, 3)),
        Step::Drop(fork) => holder(world, fork) != 2,
        Step::Crash(worker) => worker == 2 && world.left.gifts == 0,
        _ => true,
    });
}

/// A dead worker is a link in the chain from the owner to a third. Some 16,000 states.
#[test]
fn a_local_value_is_passed_on_by_a_worker_that_dies() {
    let limits = Limits {
        gifts: 2,
        crashes: 1,
        ..ONE
    };
    search_only(5_000, 3, &[LOCAL], limits, |world, step| match step {
        Step::Give { fork, to } => matches!((holder(world, fork), to), (0, 1) | (1, 2)),
        _ => true,
    });
}

fn holder(world: &World, fork: ForkId) -> usize {
    world.truth.forks[&fork].holder
}

/// Whether the creator of the one value knows that it is made.
fn is_made(world: &World) -> bool {
    world
        .truth
        .forks
        .values()
        .all(|fork| fork.parent.is_some() || fork.confirmed)
}

/// The owner dies between the creation of a reference and the request, which cannot be sent then.
#[test]
fn a_creation_that_comes_to_nothing_leaves_nothing() {
    for dies in [false, true] {
        let owner = world::incarnation(1);
        let mut protocol = ProtocolState::new(world::incarnation(0));
        let (_, fork) = protocol.create(owner).expect("it lives");
        if dies {
            protocol.died(owner);
        }
        protocol.not_created(fork);
        assert_eq!(protocol.count(), Count::default());
    }
}

/// What comes late from a worker that counts as dead is not heard, and nothing lost is handed on.
#[test]
fn the_dead_are_not_heard() {
    let (me, dead) = (world::incarnation(0), world::incarnation(1));
    let mut protocol = ProtocolState::new(me);
    let (_, fork) = protocol.create(dead).expect("it lives");
    assert_eq!(protocol.loss(fork), None);
    protocol.died(dead);
    assert_eq!(protocol.loss(fork), Some(Loss::Owner));
    assert_eq!(protocol.create(dead), None);
    let (reference, first) = ProtocolState::new(dead).create(me).expect("I live");
    let messages = vec![Message::Settle {
        reference,
        fork: first,
    }];
    assert!(!protocol.make(reference, dead));
    assert_eq!(protocol.told(dead, &Batch { number: 1, messages }), None);
    assert!(!protocol.is_expected(reference));
    assert_eq!(protocol.give(fork, me, 0), None);
    let (_, own) = protocol.own();
    assert_eq!(protocol.give(own, dead, 0), None);
    protocol.drop_handle(own);
    protocol.drop_handle(fork);
    assert_eq!(protocol.count(), Count::default());
}

/// Two to seven workers, up to forty values, hundreds of steps, all faults.
#[test]
fn random_walks_through_larger_worlds() {
    if let Ok(seed) = std::env::var("TELEGRAD_MODEL_SEED") {
        return random::walk(seed.parse().expect("a seed is a number"));
    }
    let runs = std::env::var("TELEGRAD_MODEL_RUNS").map(|runs| runs.parse().expect("a number of walks"));
    (0..runs.unwrap_or(500)).for_each(random::walk);
}

/// Some 1,600,000 states: for an optimised build, and when the protocol has changed.
#[test]
#[ignore = "takes long"]
fn three_workers_that_pass_a_reference_on_of_which_one_crashes() {
    let limits = Limits {
        gifts: 2,
        crashes: 1,
        ..ONE
    };
    search(1_000_000, 3, &[REMOTE], limits);
}

/// Some 3,400,000 states, like the one above.
#[test]
#[ignore = "takes long"]
fn two_workers_that_pass_references_on_with_every_fault() {
    let limits = Limits {
        gifts: 1,
        uses: 1,
        losses: 1,
        repeats: 1,
        broken: 1,
        crashes: 1,
        ..ONE
    };
    search(1_000_000, 2, &[REMOTE, OWN_REQUEST, LOCAL], limits);
}
