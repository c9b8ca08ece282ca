//! Validation of events from untrusted files (S58).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::drift::LAST_MOMENT;
use telegrad_trace::{Event, Kind};

/// Repairs events so that all other code can rely on these invariants: spans are unique and not 0, no event ends before it starts,
/// no event is its own ancestor, no sum of two numbers overflows, and events are sorted by start.
///
/// Of several events with one span the first counts: they are copies from several files. An event without a span gets an unused
/// one.
pub(crate) fn validate(mut events: Vec<Event>) -> Vec<Event> {
    let mut numbers: FxHashSet<u64> = FxHashSet::from_iter([0]);
    events.retain(|event| event.span == 0 || numbers.insert(event.span));
    // From the top: those numbers contain a rank that no worker has.
    let mut free = (0..=u64::MAX).rev().filter(|number| !numbers.contains(number));
    for event in &mut events {
        if event.span == 0 {
            event.span = free.next().unwrap_or(u64::MAX);
        }
        clamp(event);
        event.end = event.end.max(event.start);
    }
    break_cycles(&mut events);
    events.sort_by_key(|event| (event.start, event.span));
    events
}

/// Limits times and sizes, so that sums do not overflow.
fn clamp(event: &mut Event) {
    let mut numbers = vec![&mut event.start, &mut event.end, &mut event.tensor_bytes];
    match &mut event.kind {
        Kind::Call(call) => numbers.extend([
            &mut call.sent,
            &mut call.received,
            &mut call.sent_bytes,
            &mut call.received_bytes,
        ]),
        Kind::Execution(execution) => numbers.extend([
            &mut execution.arrived,
            &mut execution.decoded,
            &mut execution.returned,
            &mut execution.replied,
        ]),
        _ => {}
    }
    for number in numbers {
        *number = LAST_MOMENT.min(*number);
    }
}

/// Removes one parent from each cycle of parents.
fn break_cycles(events: &mut [Event]) {
    let indices: FxHashMap<u64, usize> = events.iter().map(|event| event.span).zip(0..).collect();
    // The walk that first visited each event. An event that its own walk visits again is in a cycle.
    let mut walks = vec![0_usize; events.len()];
    for start in 0..events.len() {
        let walk = start + 1;
        let mut at = Some(start);
        while let Some(index) = at
            && walks[index] == 0
        {
            walks[index] = walk;
            at = indices.get(&events[index].parent).copied();
        }
        if let Some(index) = at
            && walks[index] == walk
        {
            events[index].parent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use telegrad_trace::Status;

    fn event(span: u64, parent: u64, name: &'static str) -> Event {
        Event {
            span,
            parent,
            name: name.into(),
            kind: Kind::Scope,
            worker: 0,
            thread: 1,
            start: 5,
            end: 3,
            status: Status::Ok,
            shapes: Vec::new(),
            tensor_bytes: 0,
            link: 0,
        }
    }

    /// Validates events with these spans and parents, and returns the result.
    fn validated_pairs(pairs: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let events = pairs.iter().map(|(span, parent)| event(*span, *parent, "x"));
        let events = validate(events.collect());
        assert!(events.iter().all(|event| event.end == 5));
        events.iter().map(|event| (event.span, event.parent)).collect()
    }

    #[test]
    fn each_cycle_loses_one_parent() {
        assert_eq!(validated_pairs(&[(1, 1)]), [(1, 0)]);
        assert_eq!(
            validated_pairs(&[(4, 3), (1, 2), (2, 3), (3, 1)]),
            [(1, 2), (2, 3), (3, 0), (4, 3)]
        );
        assert_eq!(
            validated_pairs(&[(1, 0), (2, 1), (3, 9)]),
            [(1, 0), (2, 1), (3, 9)]
        );
    }

    #[test]
    fn spans_are_unique() {
        let events = validate(vec![
            event(0, 0, "a"),
            event(7, 0, "first"),
            event(7, 7, "second"),
            event(0, 7, "b"),
            event(u64::MAX, 0, "c"),
        ]);
        let found: Vec<_> = events.iter().map(|event| (&*event.name, event.span)).collect();
        assert_eq!(
            found,
            [
                ("first", 7),
                ("b", u64::MAX - 2),
                ("a", u64::MAX - 1),
                ("c", u64::MAX)
            ]
        );
    }
}
