//! Where the time of a step went: which worker worked, which one waited, and what the whole had to wait for.

use std::borrow::Cow;
use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use telegrad_wire::Rank;

use super::activity::{Activity, activities};
use super::critical_path::{Paths, Piece};
use crate::index::Index;
use crate::profile::Profile;
use crate::tables::Names;
use crate::tables::{Table, lines_of};
use crate::tables::{WIDTH, time};
use crate::worker_trace::WorkerTrace;
use telegrad_trace::{Event, Kind};
use telegrad_wire::printable;

/// A part of a profile from one moment to another, on all workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The event that it is: its name.
    pub name: String,
    /// Its number; 0 for the whole of what is within no event.
    pub span: u64,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// How the workers spent it, by rank; without those whose events are not known.
    pub workers: Vec<Usage>,
    /// What took as long as it took: had any of this been shorter, so would have been the whole. By time, without gaps.
    pub critical_path: Vec<Segment>,
}

/// How a worker spent a step, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Usage {
    /// Its name.
    pub worker: String,
    /// Something ran on it, and did not wait.
    pub busy: u64,
    /// Whatever ran on it waited for other workers.
    pub waiting: u64,
    /// Nothing that is recorded ran on it.
    pub idle: u64,
}

/// A piece of the critical path.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The event that it is a part of; 0 where it is within none, and nothing is recorded.
    pub span: u64,
    /// Where; empty where it is within no event.
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
        bubble_ratio(self.duration(), &self.workers)
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

/// The share of the workers' time in which they did not work.
pub(crate) fn bubble_ratio(duration: u64, workers: &[Usage]) -> f64 {
    let whole = duration as f64 * workers.len() as f64;
    let busy: f64 = workers.iter().map(|usage| usage.busy as f64).sum();
    if whole == 0.0 { 0.0 } else { 1.0 - busy / whole }
}

impl Profile {
    /// The whole, as one step; nothing when there are no events.
    pub fn step(&self) -> Option<Step> {
        let index = self.index();
        let steps = Steps::new(self, &index);
        steps.whole().map(|event| steps.of(&event))
    }

    /// Each event of this name that is not within another of it, as a step.
    pub fn steps(&self, name: &str) -> Vec<Step> {
        let index = self.index();
        let steps = Steps::new(self, &index);
        let outermost = steps.outermost(name).into_iter();
        outermost.map(|event| steps.of(event)).collect()
    }
}

impl Profile {
    /// The name of the worker that an event is on; none for the one that is made up.
    pub(crate) fn worker_of(&self, event: &Event) -> &str {
        if is_made_up(event) {
            ""
        } else {
            self.worker(event.worker)
        }
    }
}

/// Finds steps in a profile. What takes long to find out is found out once, for all of them.
pub(crate) struct Steps<'a> {
    profile: &'a Profile,
    index: &'a Index<'a>,
    names: Names<'a>,
    activities: FxHashMap<Rank, Activity>,
    paths: Paths<'a>,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(profile: &'a Profile, index: &'a Index<'a>) -> Self {
        Self {
            profile,
            index,
            names: Names::new(profile, index),
            activities: activities(&profile.events, index),
            paths: Paths::new(index),
        }
    }

    /// The event that everything is within; one that is not recorded where there is none.
    pub(crate) fn whole(&self) -> Option<Cow<'a, Event>> {
        let roots = self.index.children(0);
        let first = roots.iter().min_by_key(|root| (root.start, root.span))?;
        let (start, end) = self.profile.bounds();
        // A profile is within one event. What is not, as the recording of a whole world, is put into one.
        if first.kind == Kind::Scope && first.start == start && roots.iter().all(|root| root.end <= first.end)
        {
            return Some(Cow::Borrowed(first));
        }
        Some(Cow::Owned(Event {
            name: "everything".into(),
            kind: Kind::Scope,
            start,
            end,
            span: 0,
            parent: 0,
            ..(*first).clone()
        }))
    }

    /// The events of this name that are not within another of it, by when they began.
    fn outermost(&self, name: &str) -> Vec<&'a Event> {
        // Whether an event has this name, or is within one that does.
        let mut outermost = Vec::new();
        self.index.by_causes(|event, is_within: Option<&bool>| {
            let is_within = is_within.copied().unwrap_or(false);
            if event.name == name && !is_within {
                outermost.push(event);
            }
            is_within || event.name == name
        });
        outermost.sort_by_key(|event| (event.start, event.span));
        outermost
    }

    /// The user's scopes that a worker went through more than once and that are not within each other, by when they began: those
    /// of a training loop. The outermost ones; where a scope is there once, as that of the profile, those within it.
    pub(crate) fn repeated(&self) -> Vec<&'a Event> {
        let mut levels: Vec<FxHashMap<(Rank, &str), Vec<&'a Event>>> = Vec::new();
        self.index.by_causes(|event, level: Option<&usize>| {
            let level = level.copied().unwrap_or(0);
            if event.kind != Kind::Scope {
                return level;
            }
            if levels.len() == level {
                levels.push(FxHashMap::default());
            }
            levels[level]
                .entry((event.worker, &*event.name))
                .or_default()
                .push(event);
            level + 1
        });
        let mut further_out: FxHashSet<&str> = FxHashSet::default();
        let mut repeated: Vec<&Event> = Vec::new();
        for level in levels {
            let is_repeated = |((_, name), events): &(&(Rank, &str), &Vec<_>)| {
                events.len() > 1 && !further_out.contains(name)
            };
            let found = level.iter().filter(is_repeated);
            repeated.extend(found.flat_map(|(_, events)| events));
            if !repeated.is_empty() {
                break;
            }
            further_out.extend(level.keys().map(|(_, name)| *name));
        }
        repeated.sort_by_key(|event| (event.start, event.span));
        repeated
    }

    /// How the workers spent the time of an event.
    pub(crate) fn usages(&self, root: &Event) -> Vec<Usage> {
        let (start, end) = (root.start, root.end);
        let known = self.profile.workers.iter().filter(|worker| worker.known);
        let usage = |worker: &WorkerTrace| {
            let activity = self.activities.get(&worker.rank);
            let (active, busy) = activity.map_or((0, 0), |activity| {
                (
                    activity.active.within((start, end)),
                    activity.busy.within((start, end)),
                )
            });
            Usage {
                worker: worker.name.clone(),
                busy,
                waiting: active - busy,
                idle: end - start - active,
            }
        };
        known.map(usage).collect()
    }

    /// The critical path of an event.
    pub(crate) fn path<'b>(&'b self, root: &'b Event) -> Vec<Piece<'b>> {
        self.paths.of(root)
    }

    fn of(&self, root: &Event) -> Step {
        let path = self.path(root).into_iter();
        let critical_path = path.map(|(event, start, end)| Segment {
            span: event.span,
            worker: self.profile.worker_of(event).to_owned(),
            name: if is_made_up(event) {
                "nothing recorded".into()
            } else {
                self.names.of(event)
            },
            start,
            end,
        });
        Step {
            name: root.name.clone().into_owned(),
            span: root.span,
            start: root.start,
            end: root.end,
            workers: self.usages(root),
            critical_path: critical_path.collect(),
        }
    }
}

/// Whether an event is the one that everything was put into, on no worker. All others have numbers.
fn is_made_up(event: &Event) -> bool {
    event.span == 0
}

/// How each worker spent it, and the critical path by name; 120 columns wide at most.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.duration().max(1) as f64;
        let share = |time: u64| format!("{:.1} %", 100.0 * time as f64 / whole);
        let title = format!("{}: {}", printable(&self.name), time(self.duration()));
        writeln!(f, "{}", lines_of(&title, WIDTH).join("\n"))?;
        let mut rows = Table::new(&["worker"], &["busy", "waiting", "idle"]);
        for usage in &self.workers {
            let shares = [usage.busy, usage.waiting, usage.idle].map(share);
            rows.add([&usage.worker], shares);
        }
        writeln!(f, "{rows}")?;
        writeln!(
            f,
            "bubble: {:.1} % of the workers' time was not worked\n",
            100.0 * self.bubble_ratio()
        )?;
        let mut rows = Table::new(&["critical path", "worker"], &["time", "share"]);
        let critical = self.critical();
        let shown = 12;
        for (worker, name, spent) in critical.iter().take(shown) {
            rows.add([name, worker], [time(*spent), share(*spent)]);
        }
        let rest: u64 = critical.iter().skip(shown).map(|(_, _, spent)| spent).sum();
        if rest > 0 {
            rows.add(["everything else", ""], [time(rest), share(rest)]);
        }
        write!(f, "{}", rows.to_string().trim_end())
    }
}
