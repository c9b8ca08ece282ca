//! Events by what they are to each other.

use rustc_hash::FxHashMap;

use telegrad_trace::{Call, Event, Kind};

/// Finds events by what they are to each other.
pub(crate) struct Index<'a> {
    by_span: FxHashMap<u64, &'a Event>,
    /// What each has caused, by [until when](held_until) that held it up; what nothing known has caused under 0.
    children: FxHashMap<u64, Vec<&'a Event>>,
    /// Executions by their calls.
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

    /// What caused an event.
    pub(crate) fn parent(&self, event: &Event) -> Option<&'a Event> {
        self.get(event.parent)
    }

    /// What an event has caused, by [until when](held_until) that held it up; for 0, what nothing known has caused.
    pub(crate) fn children(&self, span: u64) -> &[&'a Event] {
        self.children.get(&span).map_or(&[], |children| children)
    }

    pub(crate) fn execution(&self, call: &Event) -> Option<&'a Event> {
        self.executions.get(&call.span).copied()
    }

    /// Tells something of every event by what is told of its cause, which `of` is given with it: nothing for those that nothing
    /// known has caused. However deep they are nested, each is asked for once.
    pub(crate) fn by_causes<T>(&self, mut of: impl FnMut(&'a Event, Option<&T>) -> T) -> FxHashMap<u64, T> {
        let mut told: FxHashMap<u64, T> = FxHashMap::default();
        let mut open: Vec<&Event> = self.children(0).to_vec();
        while let Some(event) = open.pop() {
            let this = of(event, told.get(&event.parent));
            told.insert(event.span, this);
            open.extend(self.children(event.span));
        }
        told
    }
}

/// When the parent of an event could continue: for a call, once its request has left.
pub(crate) fn held_until(event: &Event) -> u64 {
    match &event.kind {
        Kind::Call(Call { sent: sent @ 1.., .. }) => (*sent).min(event.end),
        _ => event.end,
    }
}
