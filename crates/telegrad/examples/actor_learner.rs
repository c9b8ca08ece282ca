//! Three actors balance a pole on a cart; a learner improves their common policy.
//!
//! ```sh
//! cargo run --release --example actor_learner
//! ```
//!
//! builds the program and starts all processes. The launcher can start it afterwards, too:
//!
//! ```sh
//! cargo run --release -- run --names learner,a1,a2,a3 -- target/release/examples/actor_learner
//! ```
//!
//! The learner has an object on each actor. Each object has a reference to the learner: it fetches the policy, plays with it
//! and reports. The method is REINFORCE with a baseline.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::collections::BTreeMap;

use fastrand::Rng;
use telegrad::prelude::*;

const ACTORS: [&str; 3] = ["a1", "a2", "a3"];

/// Number of updates of the policy, and of episodes that each actor plays between them.
const UPDATES: usize = 50;
const EPISODES: usize = 4;

/// Length of a successful episode in steps. Each step has a reward of 1.
const STEPS: usize = 200;

const LEARNING_RATE: f32 = 0.8;

/// Position and speed of the cart, angle and angular speed of the pole.
type State = [f32; 4];

/// The probability of a push to the right is a logistic function of the state.
#[derive(Wire, Clone, Default)]
struct Policy {
    weights: State,
}

impl Policy {
    fn right(&self, state: &State) -> f32 {
        let score: f32 = self.weights.iter().zip(state).map(|(w, s)| w * s).sum();
        1.0 / (1.0 + (-score).exp())
    }
}

/// One decision: the observed state, and whether the actor pushed to the right.
#[derive(Wire)]
struct Step {
    state: State,
    right: bool,
}

type Episode = Vec<Step>;

/// Owned by the learner.
#[derive(Default)]
struct Learner {
    policy: Policy,
    /// Mean return of a step, the baseline.
    baseline: f32,
    /// By actor, so that the result does not depend on the order of reports.
    reports: BTreeMap<u32, Vec<Episode>>,
}

/// Methods for the actors.
#[remote]
impl Learner {
    fn policy(&self) -> Policy {
        self.policy.clone()
    }

    fn report(&mut self, actor: u32, episodes: Vec<Episode>) {
        self.reports.insert(actor, episodes);
    }
}

impl Learner {
    /// Improves the policy with the reported episodes; returns the mean reward of an episode.
    fn learn(&mut self) -> f32 {
        let reports = std::mem::take(&mut self.reports);
        let episodes: Vec<_> = reports.into_values().flatten().collect();
        let steps = episodes.iter().map(Vec::len).sum::<usize>() as f32;
        let mut gradient = State::default();
        let mut total = 0.0;
        for episode in &episodes {
            for (i, step) in episode.iter().enumerate() {
                // The rewards from this step on.
                let led_to = (episode.len() - i) as f32;
                total += led_to;
                let surprise = f32::from(step.right) - self.policy.right(&step.state);
                for (g, s) in gradient.iter_mut().zip(step.state) {
                    *g += (led_to - self.baseline) * surprise * s;
                }
            }
        }
        for (weight, g) in self.policy.weights.iter_mut().zip(gradient) {
            *weight += LEARNING_RATE * g / steps;
        }
        // Slowly, so that one lucky round does not devalue the next.
        self.baseline += 0.1 * (total / steps - self.baseline);
        steps / episodes.len() as f32
    }
}

/// Owned by an actor.
struct Actor {
    learner: RRef<Learner>,
    rank: u32,
    random: Rng,
}

#[remote]
impl Actor {
    fn new(learner: RRef<Learner>) -> Result<Self> {
        let rank = World::current()?.rank();
        let random = Rng::with_seed(rank.into());
        Ok(Self {
            learner,
            rank,
            random,
        })
    }

    /// Plays with the latest policy and reports.
    fn play(&mut self) -> Result<()> {
        let policy = self.learner.rpc_sync(Learner::policy, ())?;
        let episodes: Vec<_> = (0..EPISODES)
            .map(|_| episode(&policy, &mut self.random))
            .collect();
        self.learner.rpc_sync(Learner::report, (self.rank, episodes))
    }
}

fn main() -> Result<()> {
    let name = telegrad::launch::world_of(&["learner", "a1", "a2", "a3"])?;
    let world = telegrad::init(&name)?;
    if name != "learner" {
        // The actors have no code of their own: the learner calls their objects.
        return world.serve();
    }
    learn(&world)?;
    world.shutdown()
}

fn learn(world: &World) -> Result<()> {
    let learner = RRef::hold(world, Learner::default())?;
    let actors: Result<Vec<_>> = ACTORS
        .into_iter()
        .map(|actor| world.remote(actor, Actor::new, (learner.clone(),)))
        .collect();
    let actors = actors?;

    let mut rewards = Vec::new();
    for update in 1..=UPDATES {
        // All actors play at the same time. Their results arrive by `report`.
        let played: Result<Vec<_>> = actors
            .iter()
            .map(|actor| actor.rpc_async(Actor::play, ()))
            .collect();
        join_all(played?).wait()?;
        rewards.push(learner.local_value_mut()?.learn());
        if update.is_multiple_of(10) {
            println!(
                "updates {:2} to {update}: mean reward {:.0}",
                update - 9,
                mean(&rewards[update - 10..])
            );
        }
    }

    // The first episodes used an untrained policy.
    let (first, last) = (rewards[0], mean(&rewards[UPDATES - 5..]));
    println!("from {first:.0} to {last:.0} of {STEPS} steps");
    assert!(last > 4.0 * first, "the policy has become much better");
    Ok(())
}

fn mean(values: &[f32]) -> f32 {
    values.iter().sum::<f32>() / values.len() as f32
}

/// Plays until the pole falls, the cart leaves the track or the time ends.
fn episode(policy: &Policy, random: &mut Rng) -> Episode {
    let mut state = State::default().map(|_| 0.1 * random.f32() - 0.05);
    let mut episode = Episode::new();
    while state[0].abs() < 2.4 && state[2].abs() < 0.21 && episode.len() < STEPS {
        let right = random.f32() < policy.right(&state);
        episode.push(Step { state, right });
        state = push(state, right);
    }
    episode
}

/// The well-known cart of 1 kg with a pole of 0.1 kg and 1 m, pushed with 10 N for 20 ms.
fn push([x, speed, angle, spin]: State, right: bool) -> State {
    const TICK: f32 = 0.02;
    let force = if right { 10.0 } else { -10.0 };
    let (sin, cos) = angle.sin_cos();
    let pushed = (force + 0.05 * spin * spin * sin) / 1.1;
    let turning = (9.8 * sin - cos * pushed) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1));
    let moving = pushed - 0.05 * turning * cos / 1.1;
    [
        x + TICK * speed,
        speed + TICK * moving,
        angle + TICK * spin,
        spin + TICK * turning,
    ]
}
