//! Alignment of simulated worlds (S43, S55).

use super::*;
use crate::profile::Profile;
use telegrad_trace::Collected;
use telegrad_trace::Status;

/// A simulated clock: its offset in nanoseconds, and its gain in nanoseconds a second.
#[derive(Clone, Copy, Debug, Default)]
struct SimClock {
    ahead: i64,
    gains: i64,
}

impl SimClock {
    fn at(self, time: u64) -> u64 {
        let gained = i128::from(time) * i128::from(self.gains) / 1_000_000_000;
        u64::try_from(i128::from(time) + gained + i128::from(self.ahead)).unwrap()
    }
}

/// A simulated world.
struct World {
    clocks: Vec<SimClock>,
    events: Vec<Event>,
}

impl World {
    fn new(clocks: impl IntoIterator<Item = SimClock>) -> Self {
        Self {
            clocks: clocks.into_iter().collect(),
            events: Vec::new(),
        }
    }

    fn ahead(clocks: &[i64]) -> Self {
        Self::new(clocks.iter().map(|ahead| SimClock {
            ahead: *ahead,
            gains: 0,
        }))
    }

    fn event(&mut self, parent: u64, worker: usize, kind: Kind, start: u64, end: u64) -> u64 {
        let span = self.events.len() as u64 + 1;
        self.events.push(Event {
            span,
            parent,
            name: "f".into(),
            kind,
            worker: worker as Rank,
            thread: 1,
            start: self.clocks[worker].at(start),
            end: self.clocks[worker].at(end),
            status: Status::Ok,
            shapes: Vec::new(),
            tensor_bytes: 0,
            link: 0,
        });
        span
    }

    /// Adds a call and its execution, with the durations of request, function and reply.
    fn call(&mut self, caller: usize, callee: usize, at: u64, [there, run, back]: [u64; 3]) {
        let (arrived, replied, received) = (at + there, at + there + run, at + there + run + back);
        let of_call = Kind::Call(Call {
            verb: "rpc_sync".into(),
            callee: callee as Rank,
            sent: self.clocks[caller].at(at),
            received: self.clocks[caller].at(received),
            sent_bytes: 0,
            received_bytes: 0,
            is_shutdown: false,
        });
        let of_execution = Kind::Execution(Execution {
            caller: caller as Rank,
            arrived: self.clocks[callee].at(arrived),
            decoded: 0,
            returned: 0,
            replied: self.clocks[callee].at(replied),
            is_gathering: false,
        });
        let call = self.event(0, caller, of_call, at, received);
        self.event(call, callee, of_execution, arrived, replied);
    }

    /// Removes the reply of the last call.
    fn drop_reply(&mut self) {
        for event in self.events.iter_mut().rev().take(2) {
            match &mut event.kind {
                Kind::Call(call) => call.received = 0,
                Kind::Execution(execution) => execution.replied = 0,
                _ => {}
            }
        }
    }

    fn profile(&self, root: Rank) -> Profile {
        let parts = (0..self.clocks.len() as Rank).map(|rank| {
            let events = self.events.iter().filter(|event| event.worker == rank);
            let collected = Collected {
                events: events.cloned().collect(),
                ..Collected::default()
            };
            (rank, format!("w{rank}"), collected)
        });
        Profile::new(root, parts.collect(), Vec::new())
    }
}

/// Asserts that no message arrives before it was sent.
#[track_caller]
fn assert_in_order(profile: &Profile) {
    let index = profile.index();
    for event in &profile.events {
        let Some(call) = event.as_call() else { continue };
        let execution = index.execution(event).and_then(Event::as_execution).unwrap();
        assert!(call.sent <= execution.arrived, "{event:?} {execution:?}");
        if execution.replied != 0 {
            assert!(execution.replied <= call.received, "{event:?} {execution:?}");
        }
    }
}

fn aheads(profile: &Profile) -> Vec<i64> {
    profile.workers.iter().map(|worker| worker.ahead).collect()
}

fn alignments(profile: &Profile) -> Vec<Alignment> {
    profile.workers.iter().map(|worker| worker.alignment).collect()
}

const MS: i64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND as i64;
/// The first time, so that clocks may be behind.
const START: u64 = 30 * DAY as u64;

#[test]
fn aligned_clocks_agree_with_all_calls() {
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..300 {
        let count = random.usize(2..9);
        let hosts = random.usize(1..=count);
        let clocks: Vec<i64> = (0..hosts).map(|_| random.i64(-7 * DAY..7 * DAY)).collect();
        let of_workers: Vec<i64> = (0..count).map(|at| clocks[at % hosts]).collect();
        let mut world = World::ahead(&of_workers);
        // From many calls between all, to a few that leave some workers unconnected.
        for _ in 0..random.usize(1..60) {
            let (caller, callee) = (random.usize(0..count), random.usize(0..count));
            let longest = if random.bool() { 2_000 } else { 5_000_000 };
            let times = [(); 3].map(|()| random.u64(0..longest));
            world.call(caller, callee, START + random.u64(0..SECOND), times);
            if random.u8(0..5) == 0 {
                world.drop_reply();
            }
        }
        let root = random.u32(0..count as u32);
        let profile = world.profile(root);
        assert_in_order(&profile);
        for worker in &profile.workers {
            assert!(
                worker.drift.is_none() && worker.alignment != Alignment::Contradicts,
                "round {round}"
            );
        }
        // Taking the profile apart and assembling it again changes nothing.
        let mut again = world.profile(root);
        for event in &mut again.events {
            let worker = &profile.workers[event.worker as usize];
            shift(event, |time| worker.to_own_time(time));
        }
        let mut again = World {
            clocks: world.clocks,
            events: again.events,
        }
        .profile(root);
        again.workers.clone_from(&profile.workers);
        assert_eq!(again, profile);
    }
}

#[test]
fn offsets_are_exact_to_the_duration_of_the_shortest_call() {
    let mut world = World::ahead(&[0, 5 * DAY, -7 * DAY, 123_456]);
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..200 {
        let (a, b) = (random.usize(0..4), random.usize(0..4));
        let times = [(); 3].map(|()| random.u64(5_000..500_000));
        world.call(a, b, START + random.u64(0..SECOND), times);
    }
    for (found, clock) in aheads(&world.profile(0)).into_iter().zip(&world.clocks) {
        assert!((found - clock.ahead).abs() < 100_000, "{found} {clock:?}");
    }
}

#[test]
fn calls_that_bypass_the_root_bound_offsets_too() {
    // With the middles of the bounds from the root, the call from 1 to 2 would arrive before it is sent.
    let mut world = World::ahead(&[0, DAY, DAY + 5_000]);
    world.call(0, 1, START, [90_000, 10, 10]);
    world.call(0, 2, START, [10, 10, 90_000]);
    world.call(1, 2, START, [10, 10, 10]);
    let profile = world.profile(0);
    assert_in_order(&profile);
    let ahead = aheads(&profile);
    assert!((ahead[2] - ahead[1] - 5_000).abs() <= 10, "{ahead:?}");
}

#[test]
fn clocks_that_may_be_equal_are_unchanged() {
    let mut world = World::ahead(&[0, 0]);
    world.call(0, 1, START, [90_000, 10, 2_000]);
    assert_eq!(aheads(&world.profile(0)), [0, 0]);
    // A clock that cannot be equal is moved.
    let mut world = World::ahead(&[0, 200_000]);
    world.call(0, 1, START, [90_000, 10, 2_000]);
    assert_eq!(aheads(&world.profile(0)), [0, 200_000 + (90_000 - 2_000) / 2]);
}

#[test]
fn the_workers_of_one_host_keep_one_clock() {
    let mut random = fastrand::Rng::with_seed(9);
    for _ in 0..100 {
        let hosts = [0, 3 * DAY, -2 * DAY + 77];
        let mut world = World::ahead(&[0, 1, 2, 0, 1, 2, 0, 1, 2].map(|host| hosts[host]));
        for _ in 0..200 {
            let (a, b) = (random.usize(0..9), random.usize(0..9));
            let times = [(); 3].map(|()| random.u64(1_000..1_000_000));
            world.call(a, b, START + random.u64(0..SECOND), times);
        }
        let profile = world.profile(0);
        let ahead = aheads(&profile);
        // There are enough calls that every two workers of a host are connected.
        assert_eq!((&ahead[..3], &ahead[..3]), (&ahead[3..6], &ahead[6..]));
        assert_in_order(&profile);
    }
}

#[test]
fn workers_are_aligned_through_chains_of_calls() {
    let mut world = World::ahead(&[0, 1_000 * MS, 2_000 * MS, 3_000 * MS]);
    for a in 0..3 {
        world.call(a, a + 1, START, [10, 10, 10]);
    }
    assert_eq!(aheads(&world.profile(0)), [0, 1_000 * MS, 2_000 * MS, 3_000 * MS]);
    assert_eq!(
        aheads(&world.profile(3)),
        [-3_000 * MS, -2_000 * MS, -1_000 * MS, 0]
    );
}

#[test]
fn unconnected_workers_are_aligned_with_each_other_and_named() {
    let mut world = World::ahead(&[0, 3 * DAY, 5 * DAY, DAY, 0]);
    world.call(1, 2, START, [10, 10, 10]);
    world.event(0, 0, Kind::Scope, START, START + 10);
    world.event(0, 3, Kind::Scope, START, START + 10);
    let profile = world.profile(0);
    assert_in_order(&profile);
    assert_eq!(aheads(&profile), [0, 0, 2 * DAY, 0, 0]);
    use Alignment::{Agrees, Unrelated};
    // The last worker has no events.
    assert_eq!(
        alignments(&profile),
        [Agrees, Unrelated, Unrelated, Unrelated, Agrees]
    );
    let warnings = profile.clock_warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("`w1`, `w2`, `w3`"),
        "{warnings:?}"
    );
}

#[test]
fn a_call_without_reply_bounds_one_side_only() {
    let mut world = World::ahead(&[0, -500 * MS]);
    world.call(0, 1, START, [10, 10, 10]);
    world.drop_reply();
    let profile = world.profile(0);
    // By the clocks, the request arrived that much earlier than it was sent.
    assert_eq!(aheads(&profile), [0, -500 * MS + 10]);
    // A third worker is bounded on both sides through the second.
    world.clocks.push(SimClock { ahead: DAY, gains: 0 });
    world.call(1, 2, START, [20, 10, 20]);
    let profile = world.profile(0);
    assert_in_order(&profile);
    assert_eq!(aheads(&profile), [0, -500 * MS + 10, DAY + 10]);
}

/// Adds random calls over a period, and returns the profile, which must agree with all of them.
fn align_drifting(
    mut world: World,
    random: &mut fastrand::Rng,
    (calls, longest, lasts): (usize, u64, u64),
    round: usize,
) -> Profile {
    let count = world.clocks.len();
    for _ in 0..calls {
        let (caller, callee) = (random.usize(0..count), random.usize(0..count));
        let times = [(); 3].map(|()| random.u64(20_000..longest));
        world.call(caller, callee, START + random.u64(0..lasts), times);
    }
    let profile = world.profile(0);
    assert!(
        profile.clock_warnings().is_empty(),
        "round {round}: {:?}",
        profile.workers
    );
    assert_in_order(&profile);
    profile
}

#[test]
fn drifting_clocks_get_one_rate() {
    let mut random = fastrand::Rng::with_seed(13);
    for round in 0..60 {
        let hosts = random.usize(2..5);
        let clocks: Vec<SimClock> = (0..hosts)
            .map(|_| SimClock {
                ahead: random.i64(-7 * DAY..7 * DAY),
                gains: random.i64(-50_000..50_000),
            })
            .collect();
        let count = random.usize(hosts..10);
        let world = World::new((0..count).map(|at| clocks[at % hosts]));
        let lasts = random.u64(100..10_000) * SECOND;
        let profile = align_drifting(world, &mut random, (1000, 200_000, lasts), round);
        assert!(profile.workers[0].has_profile_clock());
        for worker in &profile.workers {
            // Over the whole period, to within the duration of a call.
            let found = worker.drift.map_or(0.0, |drift| drift.rate as f64 / 1e15);
            let [own, root] = [worker.rank as usize, 0].map(|at| 1.0 + clocks[at % hosts].gains as f64 / 1e9);
            let error = (found - (1.0 - root / own)).abs() * lasts as f64;
            assert!(
                error < 200_000.0,
                "round {round}: {worker:?} is off by {error} ns"
            );
        }
    }
}

#[test]
fn clocks_that_may_have_one_rate_do() {
    let drifting = SimClock {
        ahead: DAY,
        gains: 20_000,
    };
    let mut world = World::new([
        SimClock::default(),
        drifting,
        drifting,
        SimClock {
            ahead: -DAY,
            gains: 0,
        },
    ]);
    for second in 0..1000 {
        for (a, b) in [(0, 1), (1, 2), (0, 3)] {
            world.call(a, b, START + second * SECOND, [100_000, 200_000, 100_000]);
        }
    }
    let profile = world.profile(0);
    assert_in_order(&profile);
    let rates: Vec<_> = profile
        .workers
        .iter()
        .map(|worker| worker.drift.map_or(0, |drift| drift.rate))
        .collect();
    assert_eq!((rates[0], rates[1], rates[3]), (0, rates[2], 0), "{rates:?}");
    assert!((rates[1] - 20_000_000_000).abs() < 1_000_000_000, "{rates:?}");
    let longest = profile.events.iter().filter_map(|event| profile.phases(event));
    for phases in longest.take(100) {
        assert!(phases.wire < 200_000 && phases.reply < 200_000, "{phases:?}");
    }
    // A short recording of the same world needs no drift.
    world.events.truncate(12);
    assert!(
        world
            .profile(0)
            .workers
            .iter()
            .all(|worker| worker.drift.is_none())
    );
}

#[test]
fn a_clock_that_jumps_is_named() {
    let mut world = World::ahead(&[0, DAY, DAY]);
    for second in 0..20 {
        if second == 10 {
            world.clocks[1].ahead += SECOND as i64;
        }
        for (a, b) in [(0, 1), (1, 2), (0, 2)] {
            world.call(a, b, START + second * SECOND, [100_000, 200_000, 100_000]);
        }
    }
    let profile = world.profile(0);
    use Alignment::{Agrees, Contradicts};
    assert_eq!(alignments(&profile), [Agrees, Contradicts, Agrees]);
    assert!(profile.workers.iter().all(|worker| worker.drift.is_none()));
    // Between its offsets before and after the jump.
    let ahead = aheads(&profile);
    assert!((DAY..DAY + SECOND as i64).contains(&ahead[1]), "{ahead:?}");
    assert!((ahead[2] - DAY).abs() < 100_000, "{ahead:?}");
    let warnings = profile.clock_warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("`w1`"),
        "{warnings:?}"
    );
}

#[test]
fn a_thousand_workers_are_aligned() {
    let mut random = fastrand::Rng::with_seed(21);
    let hosts: Vec<SimClock> = (0..50)
        .map(|_| SimClock {
            ahead: random.i64(-7 * DAY..7 * DAY),
            gains: random.i64(-50_000..50_000),
        })
        .collect();
    let mut world = World::new((0..1000).map(|at| hosts[at % 50]));
    for at in 0..1000 {
        for _ in 0..10 {
            let callee = [0, (at + 1) % 1000, (at + 50) % 1000, random.usize(0..1000)][random.usize(0..4)];
            let times = [(); 3].map(|()| random.u64(20_000..200_000));
            world.call(at, callee, START + random.u64(0..1000 * SECOND), times);
        }
    }
    let profile = world.profile(0);
    assert_in_order(&profile);
    assert!(
        profile.clock_warnings().is_empty(),
        "{:?}",
        profile.clock_warnings()
    );
    // The workers of each host have one clock.
    for worker in &profile.workers[50..] {
        let first = &profile.workers[worker.rank as usize % 50];
        let rate = |worker: &WorkerTrace| worker.drift.map_or(0, |drift| drift.rate);
        assert!(
            (rate(worker) - rate(first)).abs() < 1_000_000_000,
            "{worker:?} {first:?}"
        );
    }
}

#[test]
fn rates_agree_with_the_calls_of_more_than_two_workers() {
    let mut random = fastrand::Rng::with_seed(13);
    for round in 0..100 {
        let count = random.usize(3..6);
        let world = World::new((0..count).map(|_| SimClock {
            ahead: random.i64(-7 * DAY..7 * DAY),
            gains: random.i64(-50_000..50_000),
        }));
        let lasts = random.u64(100..10_000) * SECOND;
        align_drifting(world, &mut random, (100, 2_000_000, lasts), round);
    }
}
