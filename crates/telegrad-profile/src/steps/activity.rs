//! When something ran on a worker, and when all of it waited.

use rustc_hash::FxHashMap;
use telegrad_wire::Rank;

use crate::index::Index;
use crate::intervals::{Measured, union, without};
use telegrad_trace::{Event, Kind};

/// When something ran on a worker.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Something ran or waited.
    pub(crate) active: Measured,
    /// Something ran, and did not wait.
    pub(crate) busy: Measured,
}

/// When something ran on each worker.
///
/// An event works whenever neither waiting nor another event is under it on its thread. So a wait is a pause of what it is under,
/// and of nothing else: an async function that waits leaves its thread to others, which work there meanwhile. What had not begun
/// when it waited had nothing to pause.
pub(crate) fn activities(events: &[Event], index: &Index<'_>) -> FxHashMap<Rank, Activity> {
    let mut found: FxHashMap<Rank, [Vec<(u64, u64)>; 2]> = FxHashMap::default();
    // What happens during a call is another's, or recorded by itself.
    let on_threads = events.iter().filter(|event| {
        !matches!(event.kind, Kind::Call(_)) && !is_meeting(event, index) && !is_over(event, index)
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
            // An async function goes on on whatever thread is free, and may be on another than it began on when it waits.
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
    let measured = found.into_iter().map(|(worker, [active, busy])| {
        let activity = Activity {
            active: Measured::new(active),
            busy: Measured::new(busy),
        };
        (worker, activity)
    });
    measured.collect()
}

/// Whether workers meet in it, or wait there to be all.
fn is_meeting(event: &Event, index: &Index<'_>) -> bool {
    let meets = |event: &Event| {
        event
            .as_execution()
            .is_some_and(|execution| execution.is_gathering)
    };
    let waits = matches!(event.kind, Kind::Wait { .. });
    meets(event) || waits && index.parent(event).is_some_and(meets)
}

/// Whether an event is a wait in a graceful shutdown: its worker is idle.
fn is_over(event: &Event, index: &Index<'_>) -> bool {
    let Kind::Wait { call } = event.kind else {
        return false;
    };
    index.get(call).is_some_and(Event::is_shutdown)
}
