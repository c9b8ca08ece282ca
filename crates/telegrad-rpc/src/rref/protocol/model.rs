//! The protocol in every interleaving.
//!
//! A [`World`](world::World) has ledgers and a network that delays and reorders everything, loses and
//! repeats what is retried, and loses with a connection what is not. Workers crash, and the others learn of
//! it one after the other. Beside them stands the truth: who really holds what, and which values are there.
//! After every step the ledgers are held against it, and once more when nothing is under way any more.
//!
//! Small worlds are searched for every state; larger ones are walked through at random. To see a walk again,
//! set `TELEGRAD_MODEL_SEED`; for more walks than usual, set `TELEGRAD_MODEL_RUNS`.

mod truth;
mod world;
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
    let t = std::time::Instant::now();
    let states = search.run();
    eprintln!(
        "{} {states} states in {:?}",
        std::thread::current().name().unwrap(),
        t.elapsed()
    );
    assert!(states >= at_least, "there are only {states} states");
}

/// Some 41,000 states.
#[test]
fn two_workers_that_lose_and_repeat_messages() {
    let limits = Limits {
        gifts: 1,
        losses: 1,
        repeats: 1,
        ..ONE
    };
    search(10_000, 2, &[REMOTE], limits);
}

/// Some 62,000 states.
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

/// Some 62,000 states.
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

/// Some 62,000 states.
#[test]
fn a_value_that_is_used_before_it_is_made() {
    let limits = Limits {
        uses: 2,
        broken: 1,
        crashes: 1,
        ..ONE
    };
    search(10_000, 2, &[REMOTE], limits);
}

/// Some 62,000 states.
#[test]
fn a_value_that_its_owner_gives_away() {
    let limits = Limits {
        gifts: 2,
        broken: 1,
        crashes: 1,
        ..ONE
    };
    search(10_000, 2, &[LOCAL], limits);
}

/// Some 62,000 states.
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

/// Some 62,000 states.
#[test]
fn two_values_on_workers_that_refer_to_each_other() {
    let limits = Limits {
        creations: 2,
        gifts: 1,
        ..ONE
    };
    search(10_000, 2, &[REMOTE, BACK], limits);
}

/// Some 62,000 states.
#[test]
fn three_workers_that_pass_a_reference_on() {
    let limits = Limits { gifts: 2, ..ONE };
    search_only(10_000, 3, &[REMOTE], limits, |world, step| match step {
        Step::Give { fork, to } => world.truth.forks[&fork].holder != to,
        _ => true,
    });
}

/// Some 62,000 states.
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

/// Some 62,000 states.
#[test]
fn three_workers_over_connections_that_break() {
    let limits = Limits {
        gifts: 1,
        broken: 1,
        ..ONE
    };
    search(10_000, 3, &[REMOTE], limits);
}

/// Some 62,000 states.
#[test]
fn three_workers_of_which_two_crash() {
    let limits = Limits {
        gifts: 1,
        crashes: 2,
        ..ONE
    };
    search(10_000, 3, &[REMOTE], limits);
}

/// The value may be freed before the owner gets a reference to it from a worker that it does not know to be
/// dead. Some 62,000 states.
#[test]
fn a_reference_comes_from_a_dead_worker_to_the_owner() {
    let limits = Limits {
        gifts: 2,
        crashes: 1,
        ..ONE
    };
    search_only(10_000, 3, &[REMOTE], limits, |world, step| match step {
        Step::Give { fork, to } => matches!((world.truth.forks[&fork].holder, to), (1, 2) | (2, 0)),
        Step::Crash(worker) => worker == 2,
        _ => true,
    });
}

/// The same, with a third worker to whom the dead one gave the reference. Some 62,000 states.
#[test]
fn a_reference_comes_from_a_dead_worker_to_another_user() {
    let limits = Limits {
        gifts: 2,
        crashes: 1,
        ..ONE
    };
    search_only(10_000, 4, &[REMOTE], limits, |world, step| match step {
        Step::Give { fork, to } => matches!((world.truth.forks[&fork].holder, to), (1, 2) | (2, 3)),
        // It is about what happens once it has given the reference on.
        Step::Drop(fork) => world.truth.forks[&fork].holder != 2,
        Step::Crash(worker) => worker == 2 && world.left.gifts == 0,
        _ => true,
    });
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

/// Millions of states: a minute or two if optimised, and several gigabytes.
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

/// Like the one above.
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
