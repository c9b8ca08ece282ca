//! Clocks are found from calls between workers that have any clocks (S43).

use super::*;
use crate::profile::Profile;
use telegrad_trace::Collected;
use telegrad_trace::Status;

/// What a clock shows: ahead by nanoseconds, and by so many more in a thousand million.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    ahead: i64,
    gains: i64,
}

impl Shown {
    fn at(self, time: u64) -> u64 {
        let gained = i128::from(time) * i128::from(self.gains) / 1_000_000_000;
        u64::try_from(i128::from(time) + gained + i128::from(self.ahead)).unwrap()
    }
}

/// A world with these clocks.
struct World {
    clocks: Vec<Shown>,
    events: Vec<Event>,
}

impl World {
    fn new(clocks: impl IntoIterator<Item = Shown>) -> Self {
        Self {
            clocks: clocks.into_iter().collect(),
            events: Vec::new(),
        }
    }

    fn ahead(clocks: &[i64]) -> Self {
        Self::new(clocks.iter().map(|ahead| Shown {
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

    /// A call as both ends see it, with the times that it took to get there, to run and to get back.
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

    /// The last call got no answer.
    fn unanswered(&mut self) {
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

/// That nothing arrives before it was sent.
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
/// When everything begins, so that clocks may be behind.
const START: u64 = 30 * DAY as u64;

#[test]
fn the_calls_of_any_world_agree_with_its_clocks() {
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..300 {
        let count = random.usize(2..9);
        let hosts = random.usize(1..=count);
        let clocks: Vec<i64> = (0..hosts).map(|_| random.i64(-7 * DAY..7 * DAY)).collect();
        let of_workers: Vec<i64> = (0..count).map(|at| clocks[at % hosts]).collect();
        let mut world = World::ahead(&of_workers);
        // From all with all often, to a few calls that leave some workers alone.
        for _ in 0..random.usize(1..60) {
            let (caller, callee) = (random.usize(0..count), random.usize(0..count));
            let longest = if random.bool() { 2_000 } else { 5_000_000 };
            let times = [(); 3].map(|()| random.u64(0..longest));
            world.call(caller, callee, START + random.u64(0..SECOND), times);
            if random.u8(0..5) == 0 {
                world.unanswered();
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
        // Also when what came of it is put together once more, from its parts.
        let mut again = world.profile(root);
        for event in &mut again.events {
            let worker = &profile.workers[event.worker as usize];
            shift(event, |time| worker.to_own(time));
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
fn clocks_are_found_to_within_the_shortest_call() {
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
fn calls_between_others_are_agreed_with_too() {
    // The middles of what is known of `b` and `c` by `a` would have the call from `b` to `c` arrive before it is sent.
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
fn clocks_that_may_agree_are_left_alone() {
    let mut world = World::ahead(&[0, 0]);
    world.call(0, 1, START, [90_000, 10, 2_000]);
    assert_eq!(aheads(&world.profile(0)), [0, 0]);
    // Not so when they cannot.
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
        // Enough calls that no two of a host are strangers.
        assert_eq!((&ahead[..3], &ahead[..3]), (&ahead[3..6], &ahead[6..]));
        assert_in_order(&profile);
    }
}

#[test]
fn workers_are_reached_through_others() {
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
fn workers_that_no_call_leads_to_are_on_one_clock_among_themselves_and_said_to_be() {
    let mut world = World::ahead(&[0, 3 * DAY, 5 * DAY, DAY, 0]);
    world.call(1, 2, START, [10, 10, 10]);
    world.event(0, 0, Kind::Scope, START, START + 10);
    world.event(0, 3, Kind::Scope, START, START + 10);
    let profile = world.profile(0);
    assert_in_order(&profile);
    assert_eq!(aheads(&profile), [0, 0, 2 * DAY, 0, 0]);
    use Alignment::{Agrees, Unrelated};
    // The last one has nothing that could be at the wrong time.
    assert_eq!(
        alignments(&profile),
        [Agrees, Unrelated, Unrelated, Unrelated, Agrees]
    );
    let doubts = profile.doubts();
    assert!(
        doubts.len() == 1 && doubts[0].contains("`w1`, `w2`, `w3`"),
        "{doubts:?}"
    );
}

#[test]
fn a_call_without_an_answer_bounds_one_side_only() {
    let mut world = World::ahead(&[0, -500 * MS]);
    world.call(0, 1, START, [10, 10, 10]);
    world.unanswered();
    let profile = world.profile(0);
    // It arrived at least that much earlier than it was sent, by the clocks.
    assert_eq!(aheads(&profile), [0, -500 * MS + 10]);
    // Whom that one calls is known from both sides.
    world.clocks.push(Shown { ahead: DAY, gains: 0 });
    world.call(1, 2, START, [20, 10, 20]);
    let profile = world.profile(0);
    assert_in_order(&profile);
    assert_eq!(aheads(&profile), [0, -500 * MS + 10, DAY + 10]);
}

/// Makes calls at random, so many, of at most this length each way, for so long; what is made of them, which agrees with them all.
fn drifted(
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
        profile.doubts().is_empty(),
        "round {round}: {:?}",
        profile.workers
    );
    assert_in_order(&profile);
    profile
}

#[test]
fn clocks_that_drift_are_brought_to_one_rate() {
    let mut random = fastrand::Rng::with_seed(13);
    for round in 0..60 {
        let hosts = random.usize(2..5);
        let shown: Vec<Shown> = (0..hosts)
            .map(|_| Shown {
                ahead: random.i64(-7 * DAY..7 * DAY),
                gains: random.i64(-50_000..50_000),
            })
            .collect();
        let count = random.usize(hosts..10);
        let world = World::new((0..count).map(|at| shown[at % hosts]));
        let lasts = random.u64(100..10_000) * SECOND;
        let profile = drifted(world, &mut random, (1000, 200_000, lasts), round);
        assert!(profile.workers[0].has_the_clock());
        for worker in &profile.workers {
            // As long as the root's clock says, to within what it took to ask.
            let found = worker.drift.map_or(0.0, |drift| drift.rate as f64 / 1e15);
            let [own, root] = [worker.rank as usize, 0].map(|at| 1.0 + shown[at % hosts].gains as f64 / 1e9);
            let error = (found - (1.0 - root / own)).abs() * lasts as f64;
            assert!(
                error < 200_000.0,
                "round {round}: {worker:?} is off by {error} ns"
            );
        }
    }
}

#[test]
fn clocks_that_need_not_drift_do_not() {
    let drifting = Shown {
        ahead: DAY,
        gains: 20_000,
    };
    let mut world = World::new([
        Shown::default(),
        drifting,
        drifting,
        Shown {
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
    // A short recording of the same needs none.
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
    // Somewhere between what it was and what it became.
    let ahead = aheads(&profile);
    assert!((DAY..DAY + SECOND as i64).contains(&ahead[1]), "{ahead:?}");
    assert!((ahead[2] - DAY).abs() < 100_000, "{ahead:?}");
    let doubts = profile.doubts();
    assert!(doubts.len() == 1 && doubts[0].contains("`w1`"), "{doubts:?}");
}

#[test]
fn a_thousand_workers_are_no_trouble() {
    let mut random = fastrand::Rng::with_seed(21);
    let hosts: Vec<Shown> = (0..50)
        .map(|_| Shown {
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
    assert!(profile.doubts().is_empty(), "{:?}", profile.doubts());
    // Of each host, one clock.
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
        let world = World::new((0..count).map(|_| Shown {
            ahead: random.i64(-7 * DAY..7 * DAY),
            gains: random.i64(-50_000..50_000),
        }));
        let lasts = random.u64(100..10_000) * SECOND;
        drifted(world, &mut random, (100, 2_000_000, lasts), round);
    }
}
