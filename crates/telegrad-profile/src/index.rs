//! Lookup of events by their relations.

use rustc_hash::FxHashMap;

use telegrad_trace::{Call, Event, Kind};

/// Finds events by span, parent and call.
pub(crate) struct Index<'a> {
    by_span: FxHashMap<u64, &'a Event>,
    /// The children of each event, by [`held_until`]; those without a known parent under 0.
    children: FxHashMap<u64, Vec<&'a Event>>,
    /// Executions, by the spans of their calls.
    executions: FxHashMap<u64, &'a Event>,
}

impl<'a> Index<'a> {
    pub(crate) fn new(events: &'a [Event]) -> Self {
        let by_span: FxHashMap<u64, &Event> = events.iter().map(|event| (event.span, event)).collect();
        let mut children: FxHashMap<u64, Vec<&Event>> = FxHashMap::default();
        let mut executions = FxHashMap::default();
        for event in events {
            let parent = by_span.get(&event.parent).copied();
            children
                .entry(parent.map_or(0, |parent| parent.span))
                .or_default()
                .push(event);
            if event.as_execution().is_some() && parent.is_some_and(|parent| parent.as_call().is_some()) {
                executions.entry(event.parent).or_insert(event);
            }
        }
        for children in children.values_mut() {
            children.sort_by_key(|child| (held_until(child), child.start));
        }
        Self {
            by_span,
            children,
            executions,
        }
    }

    pub(crate) fn get(&self, span: u64) -> Option<&'a Event> {
        self.by_span.get(&span).copied()
    }

    /// Returns the parent of an event.
    pub(crate) fn parent(&self, event: &Event) -> Option<&'a Event> {
        self.get(event.parent)
    }

    /// Returns the children of an event, by [`held_until`]; for 0, the events without a known parent.
    pub(crate) fn children(&self, span: u64) -> &[&'a Event] {
        self.children.get(&span).map_or(&[], |children| children)
    }

    pub(crate) fn execution(&self, call: &Event) -> Option<&'a Event> {
        self.executions.get(&call.span).copied()
    }

    /// Computes a value for every event from that of its parent, `None` for events without a known parent.
    ///
    /// Iterative, because events may be nested deeper than the stack.
    pub(crate) fn map_from_parents<T>(
        &self,
        mut value_of: impl FnMut(&'a Event, Option<&T>) -> T,
    ) -> FxHashMap<u64, T> {
        let mut values: FxHashMap<u64, T> = FxHashMap::default();
        let mut open: Vec<&Event> = self.children(0).to_vec();
        while let Some(event) = open.pop() {
            let value = value_of(event, values.get(&event.parent));
            values.insert(event.span, value);
            open.extend(self.children(event.span));
        }
        values
    }
}

/// Returns when the parent of an event could continue: for a call, once its request had left.
pub(crate) fn held_until(event: &Event) -> u64 {
    match &event.kind {
        Kind::Call(Call { sent: sent @ 1.., .. }) => (*sent).min(event.end),
        _ => event.end,
    }
}
