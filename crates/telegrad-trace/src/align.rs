//! One clock for all workers, from what the calls themselves tell (S43).
//!
//! A request cannot arrive before it was sent, nor its answer. Each call so bounds by how much the callee's clock is ahead
//! of the caller's, from both sides, and the calls between two workers together bound it to less than the shortest of
//! them took. Clocks that agree with all of that as they are, as those of one host do, are left alone.

use rustc_hash::FxHashMap;
use telegrad_wire::Rank;

use crate::event::{Event, Kind};

/// By how much a clock may be ahead of another: nanoseconds, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    least: i128,
    most: i128,
}

impl Bounds {
    const UNKNOWN: Self = Self {
        least: i64::MIN as i128,
        most: i64::MAX as i128,
    };

    fn and(self, other: Self) -> Self {
        Self {
            least: self.least.max(other.least),
            most: self.most.min(other.most),
        }
    }

    /// The same, seen from the other side.
    fn reversed(self) -> Self {
        Self {
            least: -self.most,
            most: -self.least,
        }
    }

    fn is_one_sided(self) -> bool {
        self.least == Self::UNKNOWN.least || self.most == Self::UNKNOWN.most
    }

    /// The middle, or no difference where there may be none. Bounds that contradict each other, because a clock
    /// has drifted, still have a middle.
    fn estimate(self) -> i128 {
        if self.least <= 0 && self.most >= 0 {
            0
        } else if self.least == Self::UNKNOWN.least {
            self.most
        } else if self.most == Self::UNKNOWN.most {
            self.least
        } else {
            (self.least + self.most) / 2
        }
    }

    fn width(self) -> u64 {
        if self.is_one_sided() {
            return u64::MAX / 1024;
        }
        u64::try_from((self.most - self.least).unsigned_abs()).unwrap_or(u64::MAX / 1024)
    }
}

/// By how many nanoseconds each worker's clock is ahead of `root`'s. Those that no call leads to are taken to agree.
pub(crate) fn offsets(events: &[Event], root: Rank) -> FxHashMap<Rank, i64> {
    let mut calls = FxHashMap::default();
    for event in events {
        if let Kind::Call(call) = &event.kind {
            calls.insert(event.span, (event.worker, call));
        }
    }
    let mut pairs: FxHashMap<(Rank, Rank), Bounds> = FxHashMap::default();
    for event in events {
        let Kind::Execution(execution) = &event.kind else {
            continue;
        };
        let Some((caller, call)) = calls.get(&event.parent) else {
            continue;
        };
        let callee = event.worker;
        if *caller == callee || call.sent == 0 {
            continue;
        }
        let difference = |a: u64, b: u64| i128::from(a) - i128::from(b);
        let mut found = Bounds {
            most: difference(execution.arrived, call.sent),
            ..Bounds::UNKNOWN
        };
        if execution.replied != 0 && call.received != 0 {
            found.least = difference(execution.replied, call.received);
        }
        for (pair, found) in [((*caller, callee), found), ((callee, *caller), found.reversed())] {
            let bounds = pairs.entry(pair).or_insert(Bounds::UNKNOWN);
            *bounds = bounds.and(found);
        }
    }
    // From the root along whatever is known best.
    let mut known: FxHashMap<Rank, (u64, i128)> = FxHashMap::default();
    let mut open: FxHashMap<Rank, (u64, i128)> = FxHashMap::from_iter([(root, (0, 0))]);
    while let Some((&worker, &(doubt, offset))) =
        open.iter().min_by_key(|(rank, (doubt, _))| (*doubt, **rank))
    {
        open.remove(&worker);
        known.insert(worker, (doubt, offset));
        for ((_, other), bounds) in pairs.iter().filter(|((from, _), _)| *from == worker) {
            if known.contains_key(other) {
                continue;
            }
            let found = (doubt.saturating_add(bounds.width()), offset + bounds.estimate());
            let best = open.entry(*other).or_insert(found);
            if found.0 < best.0 {
                *best = found;
            }
        }
    }
    let offsets = known.into_iter();
    offsets
        .map(|(worker, (_, offset))| (worker, i64::try_from(offset).unwrap_or(0)))
        .collect()
}

/// Brings the times of an event from a clock that is ahead by `offset` to the root's.
pub(crate) fn shift(event: &mut Event, offset: i64) {
    let shifted = |time: &mut u64| {
        if *time != 0 {
            *time = time.saturating_add_signed(offset.saturating_neg());
        }
    };
    shifted(&mut event.start);
    shifted(&mut event.end);
    match &mut event.kind {
        Kind::Call(call) => {
            shifted(&mut call.sent);
            // The answer is received where the call was made: the same clock.
            shifted(&mut call.received);
        }
        Kind::Execution(execution) => {
            shifted(&mut execution.arrived);
            for stamp in [
                &mut execution.decoded,
                &mut execution.returned,
                &mut execution.replied,
            ] {
                shifted(stamp);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Call, Execution, Status};

    /// A call as both ends see it, with clocks that are ahead by so much, and the times that it took to get there, to run
    /// and to get back.
    fn call(
        (caller, ahead): (Rank, i64),
        (callee, callee_ahead): (Rank, i64),
        at: u64,
        [there, run, back]: [u64; 3],
        number: u64,
    ) -> [Event; 2] {
        let on = |time: u64, ahead: i64| time.saturating_add_signed(ahead);
        let event = |span, parent, worker, kind, start, end| Event {
            span,
            parent,
            name: "f".into(),
            kind,
            worker,
            thread: 1,
            start,
            end,
            status: Status::Ok,
            shapes: Vec::new(),
            tensor_bytes: 0,
            link: 0,
        };
        let (arrived, replied, received) = (at + there, at + there + run, at + there + run + back);
        let of_call = Kind::Call(Call {
            verb: "rpc_sync".into(),
            callee,
            sent: on(at, ahead),
            received: on(received, ahead),
            sent_bytes: 0,
            received_bytes: 0,
        });
        let of_execution = Kind::Execution(Execution {
            caller,
            arrived: on(arrived, callee_ahead),
            decoded: 0,
            returned: 0,
            replied: on(replied, callee_ahead),
        });
        [
            event(2 * number, 0, caller, of_call, on(at, ahead), on(received, ahead)),
            event(
                2 * number + 1,
                2 * number,
                callee,
                of_execution,
                on(arrived, callee_ahead),
                on(replied, callee_ahead),
            ),
        ]
    }

    const MS: i64 = 1_000_000;

    #[test]
    fn clocks_that_differ_are_found_to_within_the_shortest_call() {
        let mut random = fastrand::Rng::with_seed(5);
        let ahead = [0, 5_000 * MS, -7_000 * MS, 123_456 * MS];
        let mut events = Vec::new();
        for number in 1..200 {
            let (a, b) = (random.u32(0..4), random.u32(0..4));
            let times = [(); 3].map(|()| random.u64(5_000..500_000));
            let at = 20_000 * MS as u64 + random.u64(0..1_000_000_000);
            let side = |rank: u32| (rank, ahead[rank as usize]);
            events.extend(call(side(a), side(b), at, times, number));
        }
        let found = offsets(&events, 0);
        for (rank, ahead) in ahead.iter().enumerate() {
            let error = found[&(rank as u32)] - ahead;
            assert!(error.abs() < 200_000, "rank {rank} is off by {error}");
        }
        // On the root's clock everything happens in order.
        for event in &mut events {
            shift(event, found[&event.worker]);
        }
        for pair in events.chunks(2) {
            let (Kind::Call(call), Kind::Execution(execution)) = (&pair[0].kind, &pair[1].kind) else {
                panic!("{pair:?}");
            };
            let slack = 400_000;
            assert!(call.sent <= execution.arrived + slack && execution.replied <= call.received + slack);
        }
    }

    #[test]
    fn clocks_that_may_agree_are_left_alone() {
        let events = call((0, 0), (1, 0), 1_000_000, [90_000, 10, 2_000], 1);
        assert_eq!(offsets(&events, 0)[&1], 0);
        // Not so when they cannot.
        let events = call((0, 0), (1, 200_000), 1_000_000, [90_000, 10, 2_000], 1);
        assert_eq!(offsets(&events, 0)[&1], 200_000 + (90_000 - 2_000) / 2);
    }

    #[test]
    fn workers_are_reached_through_others() {
        let mut events = Vec::new();
        for number in 0..3 {
            let (a, b) = (number as u32, number as u32 + 1);
            events.extend(call(
                (a, i64::from(a) * 1_000 * MS),
                (b, i64::from(b) * 1_000 * MS),
                5_000_000,
                [10, 10, 10],
                number + 1,
            ));
        }
        let found = offsets(&events, 0);
        for rank in 0..4 {
            assert!(
                (found[&rank] - i64::from(rank) * 1_000 * MS).abs() < 100,
                "{found:?}"
            );
        }
        let from_the_other_end = offsets(&events, 3);
        assert!((from_the_other_end[&0] + 3_000 * MS).abs() < 100);
    }

    #[test]
    fn a_call_without_an_answer_bounds_one_side_only() {
        let mut pair = call((0, 0), (1, -500 * MS), 1_000 * MS as u64, [10, 10, 10], 1);
        if let Kind::Execution(execution) = &mut pair[1].kind {
            execution.replied = 0;
        }
        // It arrived at least that much earlier than it was sent, by the clocks.
        assert_eq!(offsets(&pair, 0)[&1], -500 * MS + 10);
    }
}
