//! Critical paths.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::index::{Index, held_until};
use telegrad_trace::{Event, Kind};

/// A segment of a critical path: an event, a start and an end.
pub(crate) type PathSegment<'a> = (&'a Event, u64, u64);

/// Finds critical paths among the events of a profile.
pub(crate) struct PathFinder<'a> {
    index: &'a Index<'a>,
}

impl<'a> PathFinder<'a> {
    pub(crate) fn new(index: &'a Index<'a>) -> Self {
        Self { index }
    }

    /// Returns the critical path of `root`, by time and without gaps.
    ///
    /// The search runs backwards from the end of `root`: the child that ended last before an event continued is on the path,
    /// and so on. From a wait the path moves to the call, and from the start of a call to the event that made it. A call without
    /// a wait is on the path only until its request had left.
    pub(crate) fn of<'b>(&'b self, root: &'b Event) -> Vec<PathSegment<'b>> {
        let mut path = Path {
            root,
            ancestors: self.ancestors(root),
            until: root.end,
            at: root,
            entered: FxHashMap::default(),
            segments: Vec::new(),
        };
        // Iterative, because events may be nested deeper than the stack.
        while path.until > root.start {
            match self.last_before(&path) {
                Some((event, end)) => path.enter(event, end),
                None => path.leave(self.index),
            }
        }
        path.segments.reverse();
        path.segments
    }

    /// Returns the ancestors of `root`.
    fn ancestors(&self, root: &Event) -> FxHashSet<u64> {
        let mut ancestors = FxHashSet::default();
        let mut at = self.index.parent(root);
        while let Some(event) = at {
            ancestors.insert(event.span);
            at = self.index.parent(event);
        }
        ancestors
    }

    /// Returns the event that the current one waited for last, and when it ended.
    fn last_before(&self, path: &Path<'_>) -> Option<(&'a Event, u64)> {
        let (event, until) = (path.at, path.until);
        // A call waits for its execution even if that ends later by its clock, unless the path is before the request left.
        if let Some(execution) = self.index.execution(event)
            && execution.end > until
            && until > held_until(event)
            && path.may_enter(execution)
        {
            return Some((execution, until));
        }
        let children = self.index.children(event.span);
        // Children that end later were not waited for.
        let ended = &children[..children.partition_point(|child| held_until(child) <= until)];
        // An execution may have waited for its object before its function began.
        let from = event
            .as_execution()
            .map_or(event.start, |execution| execution.arrived.min(event.start));
        let during = ended.iter().rev().take_while(|child| held_until(child) >= from);
        let mut ends = during.filter_map(|child| match child.kind {
            Kind::Wait { call } => {
                let call = self.index.get(call).filter(|call| call.end > child.start)?;
                Some((call, call.end.min(child.end)))
            }
            _ => Some((*child, held_until(child))),
        });
        ends.find(|(event, _)| path.may_enter(event))
    }
}

/// The state of a backward search.
struct Path<'a> {
    root: &'a Event,
    ancestors: FxHashSet<u64>,
    /// The path after this time is complete.
    until: u64,
    at: &'a Event,
    /// The events that the path entered, each with the time. None is entered twice at one time, because files may contain
    /// cycles.
    entered: FxHashMap<u64, u64>,
    segments: Vec<PathSegment<'a>>,
}

impl<'a> Path<'a> {
    fn may_enter(&self, event: &Event) -> bool {
        let is_new = self.entered.get(&event.span) != Some(&self.until);
        event.start < self.until && event.span != self.root.span && is_new
    }

    /// Continues at the end of an event that the current one waited for.
    fn enter(&mut self, event: &'a Event, end: u64) {
        self.go_back_to(end);
        self.entered.insert(event.span, self.until);
        self.at = event;
    }

    /// Continues at the parent, from the start of the current event.
    fn leave(&mut self, index: &Index<'a>) {
        self.go_back_to(self.at.start.min(self.until));
        // Ancestors of the root count as the root itself.
        let parent = index.parent(self.at);
        let parent = parent.filter(|parent| !self.ancestors.contains(&parent.span));
        self.at = parent.unwrap_or(self.root);
    }

    /// Assigns the time from `moment` on to the current event.
    fn go_back_to(&mut self, moment: u64) {
        let moment = moment.max(self.root.start);
        if moment < self.until {
            match self.segments.last_mut() {
                Some((event, start, _)) if event.span == self.at.span => *start = moment,
                _ => self.segments.push((self.at, moment, self.until)),
            }
            self.until = moment;
        }
    }
}
