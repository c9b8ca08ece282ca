//! Random walks through worlds that are too large for an exhaustive search.

use fastrand::Rng;

use super::oracle::{ForkLocation, Violation};
use super::world::{Limits, Step, World};

/// The steps within which a world without new actions must become idle: some hundred times the usual number.
const MAX_STEPS: usize = 100_000;

/// Mixes the bits of a word (splitmix64).
pub(super) fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Takes one walk. Panics on a violation, with the log of all steps and the seed.
pub(super) fn walk(seed: u64) {
    let Err((wrong, _)) = try_walk(seed, false) else {
        return;
    };
    let log = match try_walk(seed, true) {
        Err((_, log)) => log.join("\n"),
        Ok(()) => "(not reproducible: the walk depends on more than the seed)".into(),
    };
    panic!("{wrong}\n{log}\nreproduce with: TELEGRAD_MODEL_SEED={seed} cargo test -p telegrad-rpc walks");
}

fn try_walk(seed: u64, with_log: bool) -> Result<(), (Violation, Vec<String>)> {
    let mut random = Rng::with_seed(seed);
    let mut world = random_world(&mut random);
    world.log = with_log.then(Vec::new);
    match walk_through(&mut world, &mut random) {
        Ok(()) => Ok(()),
        Err(wrong) => Err((wrong, world.log.unwrap_or_default())),
    }
}

/// Two to seven workers; every kind of fault in some worlds and none in others.
fn random_world(random: &mut Rng) -> World {
    let mut up_to = |most: usize| random.usize(..=most) as u32;
    let limits = Limits {
        creations: 1 + up_to(40),
        transfers: up_to(60),
        uses: up_to(20),
        losses: up_to(1) * up_to(40),
        repeats: up_to(1) * up_to(40),
        disconnects: up_to(1) * up_to(8),
        doubts: up_to(1) * up_to(8),
        crashes: up_to(1) * up_to(3),
    };
    World::new(2 + random.usize(..6), limits)
}

fn walk_through(world: &mut World, random: &mut Rng) -> Result<(), Violation> {
    for _ in 0..100 + random.usize(..400) {
        let Some(step) = random_step(world, random) else {
            continue;
        };
        world.step_and_check(step)?;
    }
    run_to_idle(world, random)?;
    let here = world
        .oracle
        .forks
        .iter()
        .filter(|(_, fork)| fork.location == ForkLocation::Held);
    let here: Vec<_> = here.map(|(id, fork)| (*id, fork.holder)).collect();
    for (fork, holder) in here {
        if world.oracle.up[holder] {
            world.step_and_check(Step::Drop(fork))?;
        }
    }
    run_to_idle(world, random)?;
    // The programs hold nothing, so idle protocol states are empty.
    for at in 0..world.workers.len() {
        let protocol = &world.workers[at].protocol;
        if world.oracle.up[at] && protocol.counts() != super::ProtocolCounts::default() {
            return Err(format!("w{at} has state left: {:?} (R4)", protocol.counts()));
        }
    }
    Ok(())
}

/// Delivers all packets in random order until the world is idle.
fn run_to_idle(world: &mut World, random: &mut Rng) -> Result<(), Violation> {
    let mut steps = Vec::new();
    for _ in 0..MAX_STEPS {
        steps.clear();
        world.progress(&mut steps);
        let Some(step) = random.choice(&steps) else {
            return world.check_idle();
        };
        world.step_and_check(*step)?;
    }
    Err(format!("the world is not idle after {MAX_STEPS} steps"))
}

fn random_step(world: &World, random: &mut Rng) -> Option<Step> {
    let mut steps = Vec::new();
    let (one, other) = (
        random.usize(..world.workers.len()),
        random.usize(..world.workers.len()),
    );
    match random.usize(..100) {
        0..10 => {
            let may_create = world.left.creations > 0 && world.oracle.up[one];
            let creation = match random.usize(..10) {
                0..2 => Step::Own(one),
                _ if world.counts_as_lost(one, other) => return None,
                2 => Step::CreateUnsent {
                    by: one,
                    owner: other,
                },
                _ => Step::Create {
                    by: one,
                    owner: other,
                },
            };
            return may_create.then_some(creation);
        }
        10..35 => world.actions(&[], &mut steps),
        35..45 => world.faults(&mut steps),
        _ => world.progress(&mut steps),
    }
    match *random.choice(&steps)? {
        // Crashes are rare, so that workers are left to check.
        Step::Crash(_) if random.usize(..8) > 0 => None,
        // Most transfers are sent.
        Step::Transfer { fork, to } if random.usize(..20) == 0 => Some(Step::TransferUnsent { fork, to }),
        step => Some(step),
    }
}
