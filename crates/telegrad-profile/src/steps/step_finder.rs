//! Search for the steps of a profile.

use std::borrow::Cow;

use rustc_hash::{FxHashMap, FxHashSet};
use telegrad_trace::{Event, Kind};
use telegrad_wire::Rank;

use super::activity::{Activity, activities};
use super::critical_path::{PathFinder, PathSegment};
use super::step::{Segment, Step, Usage};
use crate::index::Index;
use crate::profile::Profile;
use crate::tables::Names;
use crate::worker_trace::WorkerTrace;

impl Profile {
    /// Returns the whole profile as one step; `None` without events.
    pub fn step(&self) -> Option<Step> {
        let index = self.index();
        let finder = StepFinder::new(self, &index);
        finder.whole().map(|event| finder.step(&event))
    }

    /// Returns the outermost events of this name as steps.
    pub fn steps(&self, name: &str) -> Vec<Step> {
        let index = self.index();
        let finder = StepFinder::new(self, &index);
        let outermost = finder.outermost(name).into_iter();
        outermost.map(|event| finder.step(event)).collect()
    }

    /// Returns the name of the worker of an event; empty for a synthetic one.
    pub(crate) fn worker_name_of(&self, event: &Event) -> &str {
        if is_synthetic(event) {
            ""
        } else {
            self.worker_name(event.worker)
        }
    }
}

/// Finds steps in a profile, and analyses them.
pub(crate) struct StepFinder<'a> {
    profile: &'a Profile,
    index: &'a Index<'a>,
    names: Names<'a>,
    activities: FxHashMap<Rank, Activity>,
    paths: PathFinder<'a>,
}

impl<'a> StepFinder<'a> {
    pub(crate) fn new(profile: &'a Profile, index: &'a Index<'a>) -> Self {
        Self {
            profile,
            index,
            names: Names::new(profile, index),
            activities: activities(&profile.events, index),
            paths: PathFinder::new(index),
        }
    }

    /// Returns the event that encloses the profile, or a synthetic one.
    pub(crate) fn whole(&self) -> Option<Cow<'a, Event>> {
        let roots = self.index.children(0);
        let first = roots.iter().min_by_key(|root| (root.start, root.span))?;
        let (start, end) = self.profile.bounds();
        // A profile of a function has one root event. Others, such as recordings of whole worlds, get a synthetic one.
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

    /// Returns the outermost events of this name, by start.
    fn outermost(&self, name: &str) -> Vec<&'a Event> {
        // The value of an event: whether it has this name, or an ancestor with it.
        let mut outermost = Vec::new();
        self.index.map_from_parents(|event, is_within: Option<&bool>| {
            let is_within = is_within.copied().unwrap_or(false);
            if event.name == name && !is_within {
                outermost.push(event);
            }
            is_within || event.name == name
        });
        outermost.sort_by_key(|event| (event.start, event.span));
        outermost
    }

    /// Returns the scopes that a worker repeated, such as the steps of a training loop, by start.
    ///
    /// These are the outermost level of nested scopes on which a name occurs more than once on a worker.
    pub(crate) fn repeated(&self) -> Vec<&'a Event> {
        let mut levels: Vec<FxHashMap<(Rank, &str), Vec<&'a Event>>> = Vec::new();
        self.index.map_from_parents(|event, level: Option<&usize>| {
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
        let mut outer_names: FxHashSet<&str> = FxHashSet::default();
        let mut repeated: Vec<&Event> = Vec::new();
        for level in levels {
            let is_repeated = |((_, name), events): &(&(Rank, &str), &Vec<_>)| {
                events.len() > 1 && !outer_names.contains(name)
            };
            let found = level.iter().filter(is_repeated);
            repeated.extend(found.flat_map(|(_, events)| events));
            if !repeated.is_empty() {
                break;
            }
            outer_names.extend(level.keys().map(|(_, name)| *name));
        }
        repeated.sort_by_key(|event| (event.start, event.span));
        repeated
    }

    /// Returns the usage of each worker during an event.
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

    /// Returns the critical path of an event.
    pub(crate) fn path<'b>(&'b self, root: &'b Event) -> Vec<PathSegment<'b>> {
        self.paths.of(root)
    }

    fn step(&self, root: &Event) -> Step {
        let path = self.path(root).into_iter();
        let critical_path = path.map(|(event, start, end)| Segment {
            span: event.span,
            worker: self.profile.worker_name_of(event).to_owned(),
            name: if is_synthetic(event) {
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

/// Returns whether an event is synthetic: recorded ones have spans.
fn is_synthetic(event: &Event) -> bool {
    event.span == 0
}
