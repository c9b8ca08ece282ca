//! When a worker was active, and when it was busy.

use rustc_hash::FxHashMap;
use telegrad_wire::Rank;

use crate::index::Index;
use crate::intervals::{Coverage, union, without};
use telegrad_trace::{Event, Kind};

/// The active and the busy time of a worker.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Events ran or waited.
    pub(crate) active: Coverage,
    /// At least one event ran without waiting.
    pub(crate) busy: Coverage,
}

/// Returns the activity of each worker.
///
/// An event is busy while no wait and no other event is under it on its thread. A wait thus pauses its parent and nothing else:
/// an async function that waits leaves its thread to others, which are busy meanwhile. A wait before the start of its parent
/// pauses nothing.
pub(crate) fn activities(events: &[Event], index: &Index<'_>) -> FxHashMap<Rank, Activity> {
    let mut found: FxHashMap<Rank, [Vec<(u64, u64)>; 2]> = FxHashMap::default();
    // Calls are not activity: their work has events of its own, here or on the callee.
    let on_threads = events.iter().filter(|event| {
        !matches!(event.kind, Kind::Call(_)) && !is_meeting(event, index) && !is_shutdown_wait(event, index)
    });
    for event in on_threads {
        let [active, busy] = found.entry(event.worker).or_default();
        let whole = (event.start, event.end);
        if matches!(event.kind, Kind::Wait { .. }) {
            active.push(match index.parent(event) {
                Some(paused) if paused.worker == event.worker => (whole.0.max(paused.start), whole.1),
                _ => whole,
            });
        } else {
            active.push(whole);
            // An async function may wait on another thread than the one on which it began.
            let is_executed = event.as_execution().is_some();
            let is_part = |child: &&&Event| {
                let is_here =
                    child.thread == event.thread || is_executed && matches!(child.kind, Kind::Wait { .. });
                child.worker == event.worker && is_here && !matches!(child.kind, Kind::Call(_))
            };
            let parts = index.children(event.span).iter().filter(is_part);
            let parts = union(parts.map(|part| (part.start, part.end)).collect());
            busy.extend(without(whole, &parts));
        }
    }
    let activities = found.into_iter().map(|(worker, [active, busy])| {
        let activity = Activity {
            active: Coverage::new(active),
            busy: Coverage::new(busy),
        };
        (worker, activity)
    });
    activities.collect()
}

/// Returns whether an event is a member's part in a barrier or gather, or a wait in one.
fn is_meeting(event: &Event, index: &Index<'_>) -> bool {
    let meets = |event: &Event| {
        event
            .as_execution()
            .is_some_and(|execution| execution.is_gathering)
    };
    let waits = matches!(event.kind, Kind::Wait { .. });
    meets(event) || waits && index.parent(event).is_some_and(meets)
}

/// Returns whether an event is a wait in a graceful shutdown: a worker in shutdown is idle.
fn is_shutdown_wait(event: &Event, index: &Index<'_>) -> bool {
    let Kind::Wait { call } = event.kind else {
        return false;
    };
    index.get(call).is_some_and(Event::is_shutdown)
}
