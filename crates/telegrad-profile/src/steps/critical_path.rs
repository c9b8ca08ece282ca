//! What a step had to wait for.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::index::{Index, held_until};
use telegrad_trace::{Event, Kind};

/// A part of the critical path: the event, from when, until when.
pub(crate) type Piece<'a> = (&'a Event, u64, u64);

/// Finds critical paths among the events of a profile.
pub(crate) struct Paths<'a> {
    index: &'a Index<'a>,
}

impl<'a> Paths<'a> {
    pub(crate) fn new(index: &'a Index<'a>) -> Self {
        Self { index }
    }

    /// What had to be over for `root` to be over when it was, by time and without gaps.
    ///
    /// It is found from the end: whatever was over last before an event went on is what that had to wait for, and so on from
    /// there. Where something waited for a call, the path goes over to the call, and from the start of that to whoever made it. A
    /// call that nobody waited for held up nobody, once its request had left.
    pub(crate) fn of<'b>(&'b self, root: &'b Event) -> Vec<Piece<'b>> {
        let mut path = Path {
            root,
            above: self.above(root),
            until: root.end,
            at: root,
            entered: FxHashMap::default(),
            pieces: Vec::new(),
        };
        // One step at a time instead of a function that calls itself: events may be nested deeper than a stack is.
        while path.until > root.start {
            match self.last_before(&path) {
                Some((event, end)) => path.enter(event, end),
                None => path.leave(self.index),
            }
        }
        path.pieces.reverse();
        path.pieces
    }

    /// What `root` is within.
    fn above(&self, root: &Event) -> FxHashSet<u64> {
        let mut above = FxHashSet::default();
        let mut at = self.index.parent(root);
        while let Some(event) = at {
            above.insert(event.span);
            at = self.index.parent(event);
        }
        above
    }

    /// What the event that the path is at had to wait for last, and until when.
    fn last_before(&self, path: &Path<'_>) -> Option<(&'a Event, u64)> {
        let (event, until) = (path.at, path.until);
        // The execution of a call was waited for, whatever its clock says, unless the path is at what was before it.
        if let Some(execution) = self.index.execution(event)
            && execution.end > until
            && until > held_until(event)
            && path.may_enter(execution)
        {
            return Some((execution, until));
        }
        let children = self.index.children(event.span);
        // What went on after that was not waited for.
        let over = &children[..children.partition_point(|child| held_until(child) <= until)];
        // What is served may have waited for a value, or for its turn to use one, before its function began.
        let from = event
            .as_execution()
            .map_or(event.start, |execution| execution.arrived.min(event.start));
        let during = over.iter().rev().take_while(|child| held_until(child) >= from);
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

/// A path on the way from its end to its start.
struct Path<'a> {
    root: &'a Event,
    above: FxHashSet<u64>,
    /// What is after that has been found.
    until: u64,
    at: &'a Event,
    /// What has been entered, and how far the path had come then. Not twice at the same place: what a file says may lead in
    /// circles.
    entered: FxHashMap<u64, u64>,
    pieces: Vec<Piece<'a>>,
}

impl<'a> Path<'a> {
    fn may_enter(&self, event: &Event) -> bool {
        let is_new = self.entered.get(&event.span) != Some(&self.until);
        event.start < self.until && event.span != self.root.span && is_new
    }

    /// Goes on at the end of what the event had to wait for.
    fn enter(&mut self, event: &'a Event, end: u64) {
        self.go_back_to(end);
        self.entered.insert(event.span, self.until);
        self.at = event;
    }

    /// There was nothing more to wait for: goes on before the event, at what caused it.
    fn leave(&mut self, index: &Index<'a>) {
        self.go_back_to(self.at.start.min(self.until));
        // What is above the step began before it: within it, that is the step itself.
        let parent = index.parent(self.at);
        let parent = parent.filter(|parent| !self.above.contains(&parent.span));
        self.at = parent.unwrap_or(self.root);
    }

    /// The event took the time from `moment` on.
    fn go_back_to(&mut self, moment: u64) {
        let moment = moment.max(self.root.start);
        if moment < self.until {
            match self.pieces.last_mut() {
                Some((event, start, _)) if event.span == self.at.span => *start = moment,
                _ => self.pieces.push((self.at, moment, self.until)),
            }
            self.until = moment;
        }
    }
}
