//! Random walks through worlds that are too large to see all of.

use fastrand::Rng;

use super::truth::{ValueLocation, Wrong};
use super::world::{Limits, Step, World};

/// Steps in which a world must come to rest, once nothing new is begun: some hundred times what it takes.
const LONG_ENOUGH: usize = 100_000;

/// Mixes the bits of a word (splitmix64).
pub(super) fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// One walk. Panics when something is wrong, with all the steps so far and how to take them again.
pub(super) fn walk(seed: u64) {
    let Err((wrong, _)) = try_walk(seed, false) else {
        return;
    };
    let story = match try_walk(seed, true) {
        Err((_, story)) => story.join("\n"),
        Ok(()) => "(it does not happen again: the walk depends on more than the seed)".into(),
    };
    panic!(
        "{wrong}\n{story}\nto see this again: TELEGRAD_MODEL_SEED={seed} cargo test -p telegrad-rpc walks"
    );
}

fn try_walk(seed: u64, with_story: bool) -> Result<(), (Wrong, Vec<String>)> {
    let mut random = Rng::with_seed(seed);
    let mut world = random_world(&mut random);
    world.story = with_story.then(Vec::new);
    match walk_through(&mut world, &mut random) {
        Ok(()) => Ok(()),
        Err(wrong) => Err((wrong, world.story.unwrap_or_default())),
    }
}

/// Two to seven workers; every kind of fault in some worlds and none in others.
fn random_world(random: &mut Rng) -> World {
    let mut up_to = |most: usize| random.usize(..=most) as u32;
    let limits = Limits {
        creations: 1 + up_to(40),
        gifts: up_to(60),
        uses: up_to(20),
        losses: up_to(1) * up_to(40),
        repeats: up_to(1) * up_to(40),
        broken: up_to(1) * up_to(8),
        doubts: up_to(1) * up_to(8),
        crashes: up_to(1) * up_to(3),
    };
    World::new(2 + random.usize(..6), limits)
}

fn walk_through(world: &mut World, random: &mut Rng) -> Result<(), Wrong> {
    for _ in 0..100 + random.usize(..400) {
        let Some(step) = random_step(world, random) else {
            continue;
        };
        world.try_step(step)?;
    }
    settle(world, random)?;
    let here = world
        .truth
        .forks
        .iter()
        .filter(|(_, fork)| fork.place == ValueLocation::Here);
    let here: Vec<_> = here.map(|(id, fork)| (*id, fork.holder)).collect();
    for (fork, holder) in here {
        if world.truth.up[holder] {
            world.try_step(Step::Drop(fork))?;
        }
    }
    settle(world, random)?;
    // The programs hold nothing, so what is settled is empty.
    for at in 0..world.workers.len() {
        let protocol = &world.workers[at].protocol;
        if world.truth.up[at] && protocol.count() != super::Count::default() {
            return Err(format!("w{at} has something left: {:?} (R4)", protocol.count()));
        }
    }
    Ok(())
}

/// Lets everything arrive, in any order.
fn settle(world: &mut World, random: &mut Rng) -> Result<(), Wrong> {
    let mut steps = Vec::new();
    for _ in 0..LONG_ENOUGH {
        steps.clear();
        world.progress(&mut steps);
        let Some(step) = random.choice(&steps) else {
            return world.check_settled();
        };
        world.try_step(*step)?;
    }
    Err("it does not come to rest".into())
}

fn random_step(world: &World, random: &mut Rng) -> Option<Step> {
    let mut steps = Vec::new();
    let (some, other) = (
        random.usize(..world.workers.len()),
        random.usize(..world.workers.len()),
    );
    match random.usize(..100) {
        0..10 => {
            let sendable = world.left.creations > 0 && world.truth.up[some];
            let creation = match random.usize(..10) {
                0..2 => Step::Own(some),
                _ if world.counts_as_dead(some, other) => return None,
                2 => Step::CreateUnsent {
                    by: some,
                    owner: other,
                },
                _ => Step::Create {
                    by: some,
                    owner: other,
                },
            };
            return sendable.then_some(creation);
        }
        10..35 => world.deeds(&[], &mut steps),
        35..45 => world.faults(&mut steps),
        _ => world.progress(&mut steps),
    }
    match *random.choice(&steps)? {
        // Crashes come late, or there would be nobody to look at.
        Step::Crash(_) if random.usize(..8) > 0 => None,
        // Most hand-overs are sent.
        Step::Give { fork, to } if random.usize(..20) == 0 => Some(Step::GiveUnsent { fork, to }),
        step => Some(step),
    }
}
