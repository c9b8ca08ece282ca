//! Where the time of a step went: which worker worked, which one waited, and what the whole had to wait for.

use std::fmt;

use rustc_hash::FxHashMap;
use telegrad_wire::Rank;

use crate::averages::{Names, align_right, plain, time};
use crate::event::{Event, Kind};
use crate::profile::{Index, Profile};

/// A part of a profile from one moment to another, on all workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The event that it is: its name.
    pub name: String,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// How the workers spent it, by rank.
    pub workers: Vec<Usage>,
    /// What took as long as it took: had any of this been shorter, so would have been the whole. By time, without gaps.
    pub critical_path: Vec<Segment>,
}

/// How a worker spent a step, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    /// Its name.
    pub worker: String,
    /// Something ran on it, and did not wait.
    pub busy: u64,
    /// Whatever ran on it waited for other workers.
    pub waiting: u64,
    /// Nothing ran on it.
    pub idle: u64,
}

/// A piece of the critical path.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Where.
    pub worker: String,
    /// What.
    pub name: String,
    /// From when.
    pub start: u64,
    /// Until when.
    pub end: u64,
}

impl Step {
    /// How long it took, in nanoseconds.
    pub fn duration(&self) -> u64 {
        self.end - self.start
    }

    /// The share of the workers' time in which they did not work: what a pipeline would call its bubble.
    pub fn bubble_ratio(&self) -> f64 {
        let whole = self.duration() as f64 * self.workers.len() as f64;
        let busy: u64 = self.workers.iter().map(|usage| usage.busy).sum();
        if whole == 0.0 {
            0.0
        } else {
            1.0 - busy as f64 / whole
        }
    }

    /// The worker that waited longest for others.
    pub fn most_waiting(&self) -> Option<&Usage> {
        self.workers.iter().max_by_key(|usage| usage.waiting)
    }

    /// The critical path by what was done and where, the longest first.
    pub fn critical(&self) -> Vec<(String, String, u64)> {
        let mut sums: FxHashMap<(&str, &str), u64> = FxHashMap::default();
        for segment in &self.critical_path {
            *sums.entry((&segment.worker, &segment.name)).or_default() += segment.end - segment.start;
        }
        let sums = sums.into_iter();
        let mut sums: Vec<_> = sums
            .map(|((worker, name), time)| (worker.to_owned(), name.to_owned(), time))
            .collect();
        sums.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.cmp(b)));
        sums
    }
}

impl Profile {
    /// The whole, as one step; nothing when there are no events.
    pub fn step(&self) -> Option<Step> {
        let index = self.index();
        let roots = self
            .events
            .iter()
            .filter(|event| !index.by_span.contains_key(&event.parent));
        let roots: Vec<&Event> = roots.collect();
        let (start, end) = self.bounds();
        let first = roots.first()?;
        // A profile is within one event. What is not, as the recording of a whole world, is put into one.
        if first.kind == Kind::Scope && first.start == start && roots.iter().all(|root| root.end <= first.end)
        {
            return Some(self.step_of(first, &index));
        }
        let everything = Event {
            name: "everything".into(),
            kind: Kind::Scope,
            start,
            end,
            span: 0,
            parent: 0,
            ..(*first).clone()
        };
        Some(self.step_of(&everything, &self.index().with_children(0, roots)))
    }

    /// Each event of this name that is not within another of it, as a step.
    pub fn steps(&self, name: &str) -> Vec<Step> {
        let index = self.index();
        let is_within = |event: &Event| {
            let mut at = index.by_span.get(&event.parent);
            while let Some(outer) = at {
                if outer.name == name {
                    return true;
                }
                at = index.by_span.get(&outer.parent);
            }
            false
        };
        let named = self.events.iter().filter(|event| event.name == name);
        named
            .filter(|event| !is_within(event))
            .map(|event| self.step_of(event, &index))
            .collect()
    }

    fn step_of<'a>(&'a self, root: &'a Event, index: &Index<'a>) -> Step {
        let (start, end) = (root.start, root.end);
        let workers = self.workers.iter().map(|worker| {
            let (active, busy) = self.activity(worker.rank, (start, end));
            Usage {
                worker: worker.name.clone(),
                busy,
                waiting: active - busy,
                idle: end - start - active,
            }
        });
        let mut names = Names::new(self, index);
        let mut path = Vec::new();
        follow(root, end, index, &mut path);
        path.reverse();
        let mut critical_path: Vec<Segment> = Vec::new();
        for (event, start, end) in path {
            let (worker, name) = (self.worker(event.worker).to_owned(), names.of(event));
            match critical_path.last_mut() {
                Some(last) if last.worker == worker && last.name == name && last.end == start => {
                    last.end = end
                }
                _ => critical_path.push(Segment {
                    worker,
                    name,
                    start,
                    end,
                }),
            }
        }
        Step {
            name: root.name.clone().into_owned(),
            start,
            end,
            workers: workers.collect(),
            critical_path,
        }
    }

    /// For how long anything ran on a worker between two moments, and for how long of that not all of it waited.
    fn activity(&self, worker: Rank, (start, end): (u64, u64)) -> (u64, u64) {
        #[derive(Default)]
        struct Thread {
            active: Vec<(u64, u64)>,
            waits: Vec<(u64, u64)>,
        }
        let mut threads: FxHashMap<u64, Thread> = FxHashMap::default();
        for event in self.events.iter().filter(|event| event.worker == worker) {
            let clipped = (event.start.clamp(start, end), event.end.clamp(start, end));
            let thread = threads.entry(event.thread).or_default();
            match event.kind {
                // What happens meanwhile is another's, or recorded by itself.
                Kind::Call(_) => {}
                Kind::Wait { .. } => thread.waits.push(clipped),
                _ => thread.active.push(clipped),
            }
        }
        let (mut active, mut busy) = (Vec::new(), Vec::new());
        for thread in threads.into_values() {
            let ran = union(thread.active);
            busy.extend(without(&ran, &union(thread.waits)));
            active.extend(ran);
        }
        let length =
            |intervals: Vec<(u64, u64)>| union(intervals).iter().map(|(start, end)| end - start).sum();
        (length(active), length(busy))
    }
}

/// What had to be over for `event` to be over at `until`, from the last to the first.
fn follow<'a>(event: &'a Event, until: u64, index: &Index<'a>, path: &mut Vec<(&'a Event, u64, u64)>) {
    let mut until = until;
    let mut children: Vec<&Event> = index.children(event.span).to_vec();
    // Waiting is for something that is recorded itself.
    children.retain(|child| !matches!(child.kind, Kind::Wait { .. }) && child.end > child.start);
    children.sort_by_key(|child| (child.end, child.start));
    while until > event.start {
        let Some(child) = children.pop() else { break };
        if child.start >= until || child.end <= event.start {
            continue;
        }
        // What went on after that was not waited for. The execution of a call was, whatever its clock says.
        if child.end > until && child.as_execution().is_none() {
            continue;
        }
        let end = child.end.min(until);
        if end < until {
            path.push((event, end, until));
        }
        follow(child, end, index, path);
        until = child.start.max(event.start);
    }
    if until > event.start {
        path.push((event, event.start, until));
    }
}

/// The same time without overlaps, in order.
pub(crate) fn union(mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.retain(|(start, end)| end > start);
    intervals.sort_unstable();
    let mut result: Vec<(u64, u64)> = Vec::with_capacity(intervals.len());
    for (start, end) in intervals {
        match result.last_mut() {
            Some((_, last)) if *last >= start => *last = end.max(*last),
            _ => result.push((start, end)),
        }
    }
    result
}

/// What is left of intervals without others; both in order and without overlaps.
fn without(intervals: &[(u64, u64)], others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut result = Vec::new();
    let mut first = 0;
    for &(mut start, end) in intervals {
        // Those that end before this one begins are of no consequence for the next either.
        first += others[first..].iter().take_while(|(_, to)| *to <= start).count();
        for &(from, to) in others[first..].iter().take_while(|(from, _)| *from < end) {
            if from > start {
                result.push((start, from));
            }
            start = start.max(to);
        }
        if end > start {
            result.push((start, end));
        }
    }
    result
}

/// How each worker spent it, and the critical path by name.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.duration().max(1) as f64;
        let share = |time: u64| format!("{:.1} %", 100.0 * time as f64 / whole);
        writeln!(f, "{}: {}", self.name, time(self.duration()))?;
        let mut table = plain(&["worker", "busy", "waiting", "idle"]);
        for usage in &self.workers {
            table.add_row([
                usage.worker.clone(),
                share(usage.busy),
                share(usage.waiting),
                share(usage.idle),
            ]);
        }
        align_right(&mut table, 1);
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "bubble: {:.1} % of the workers' time was not worked",
            100.0 * self.bubble_ratio()
        )?;
        let mut table = plain(&["critical path", "worker", "time", "share"]);
        let critical = self.critical();
        let shown = 12;
        for (worker, name, spent) in critical.iter().take(shown) {
            table.add_row([name.clone(), worker.clone(), time(*spent), share(*spent)]);
        }
        let rest: u64 = critical.iter().skip(shown).map(|(_, _, spent)| spent).sum();
        if rest > 0 {
            table.add_row(["everything else".into(), String::new(), time(rest), share(rest)]);
        }
        align_right(&mut table, 2);
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_joined_and_cut() {
        assert_eq!(
            union(vec![(5, 7), (1, 3), (2, 4), (7, 9), (6, 6)]),
            [(1, 4), (5, 9)]
        );
        assert_eq!(without(&[(1, 10)], &[(0, 2), (3, 4), (9, 20)]), [(2, 3), (4, 9)]);
        assert_eq!(without(&[(1, 4), (6, 8)], &[(2, 7)]), [(1, 2), (7, 8)]);
        assert_eq!(without(&[(1, 4)], &[]), [(1, 4)]);
        assert!(without(&[(1, 4)], &[(0, 5)]).is_empty());
    }
}
