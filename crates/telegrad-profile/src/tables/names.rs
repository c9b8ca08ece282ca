//! What events are called.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::index::Index;
use crate::profile::Profile;
use telegrad_trace::{Event, Kind};

/// What stands between a call and what was done for it.
pub(crate) const FOR: &str = "#remote_op: ";

/// Calls that stand in front of a name, each made for the one before. Of more, only the last ones: names as long as
/// the nesting is deep would take more room than all events.
const MOST: usize = 32;

/// The names of events, with the calls that they were done for.
pub(crate) struct Names<'a> {
    profile: &'a Profile,
    /// What stands before the names of events.
    prefixes: FxHashMap<u64, Rc<str>>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(profile: &'a Profile, index: &Index<'a>) -> Self {
        let none: Rc<str> = "".into();
        let prefixes = index.by_causes(|event, outer: Option<&Rc<str>>| {
            let outer = outer.unwrap_or(&none);
            match index.parent(event) {
                Some(call) if event.as_execution().is_some() && call.as_call().is_some() => {
                    longer(outer, &own(profile, call)).into()
                }
                _ => outer.clone(),
            }
        });
        Self { profile, prefixes }
    }

    pub(crate) fn of(&self, event: &Event) -> String {
        let prefix = self.prefixes.get(&event.span).map_or("", |prefix| prefix);
        format!("{prefix}{}", own(self.profile, event))
    }
}

/// The name of an event by itself: of a call, how it was made, by whom and to whom.
fn own(profile: &Profile, event: &Event) -> String {
    match &event.kind {
        Kind::Call(call) => {
            let (caller, callee) = (profile.worker(event.worker), profile.worker(call.callee));
            format!("{}#{}({caller} -> {callee})", call.verb, event.name)
        }
        _ => event.name.clone().into_owned(),
    }
}

/// With one more call at its end.
fn longer(prefix: &str, call: &str) -> String {
    if prefix.matches(FOR).count() < MOST {
        return format!("{prefix}{call}{FOR}");
    }
    let rest = prefix.split_once(FOR).map_or("", |(_, rest)| rest);
    format!("… {rest}{call}{FOR}")
}
