//! Names of events in tables.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::index::Index;
use crate::profile::Profile;
use telegrad_trace::{Event, Kind};

/// Separates a call from what was done for it.
pub(crate) const FOR: &str = "#remote_op: ";

/// The largest number of nested calls in a name. Of more, the last ones count: full names of deeply nested events would take more
/// memory than the events.
const MAX_CALLS: usize = 32;

/// The names of events, with the calls on whose behalf they ran.
pub(crate) struct Names<'a> {
    profile: &'a Profile,
    /// The prefixes of names, by span.
    prefixes: FxHashMap<u64, Rc<str>>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(profile: &'a Profile, index: &Index<'a>) -> Self {
        let none: Rc<str> = "".into();
        let prefixes = index.map_from_parents(|event, outer: Option<&Rc<str>>| {
            let outer = outer.unwrap_or(&none);
            match index.parent(event) {
                Some(call) if event.as_execution().is_some() && call.as_call().is_some() => {
                    append(outer, &own_name(profile, call)).into()
                }
                _ => outer.clone(),
            }
        });
        Self { profile, prefixes }
    }

    pub(crate) fn of(&self, event: &Event) -> String {
        let prefix = self.prefixes.get(&event.span).map_or("", |prefix| prefix);
        format!("{prefix}{}", own_name(self.profile, event))
    }
}

/// Returns the name of an event without prefix; for a call with its method, caller and callee.
fn own_name(profile: &Profile, event: &Event) -> String {
    match &event.kind {
        Kind::Call(call) => {
            let (caller, callee) = (
                profile.worker_name(event.worker),
                profile.worker_name(call.callee),
            );
            format!("{}#{}({caller} -> {callee})", call.verb, event.name)
        }
        _ => event.name.clone().into_owned(),
    }
}

/// Appends a call to a prefix.
fn append(prefix: &str, call: &str) -> String {
    if prefix.matches(FOR).count() < MAX_CALLS {
        return format!("{prefix}{call}{FOR}");
    }
    let rest = prefix.split_once(FOR).map_or("", |(_, rest)| rest);
    format!("… {rest}{call}{FOR}")
}
