//! Events that may come from anywhere, made such that nothing that looks at them can go astray (S45).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::worker_trace::LAST_MOMENT;
use telegrad_trace::{Event, Kind};

/// Sees to it that every event has a number of its own, none ends before it begins, none is its own cause, however far off, and
/// they are in the order of their starts. No number is so large that the sum of two would not be one. Whatever reads a profile
/// counts on that, and asks no further.
///
/// Of several events with one number the first counts: it is the same event, found in several places. One without a number gets
/// one.
pub(crate) fn validate(mut events: Vec<Event>) -> Vec<Event> {
    let mut numbers: FxHashSet<u64> = FxHashSet::from_iter([0]);
    events.retain(|event| event.span == 0 || numbers.insert(event.span));
    // From the top: numbers there have a rank that no worker has.
    let mut free = (0..=u64::MAX).rev().filter(|number| !numbers.contains(number));
    for event in &mut events {
        if event.span == 0 {
            event.span = free.next().unwrap_or(u64::MAX);
        }
        clamp(event);
        event.end = event.end.max(event.start);
    }
    without_circles(&mut events);
    events.sort_by_key(|event| (event.start, event.span));
    events
}

/// Takes from numbers what is too much to count with.
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

/// Takes away the causes of events that would be their own.
fn without_circles(events: &mut [Event]) {
    let places: FxHashMap<u64, usize> = events.iter().map(|event| event.span).zip(0..).collect();
    // The walk on which an event was first come by. It is in a circle if the same walk comes by again.
    let mut walks = vec![0_usize; events.len()];
    for start in 0..events.len() {
        let walk = start + 1;
        let mut at = Some(start);
        while let Some(place) = at
            && walks[place] == 0
        {
            walks[place] = walk;
            at = places.get(&events[place].parent).copied();
        }
        if let Some(place) = at
            && walks[place] == walk
        {
            events[place].parent = 0;
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

    /// Spans and their parents.
    fn validated_pairs(pairs: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let events = pairs.iter().map(|(span, parent)| event(*span, *parent, "x"));
        let events = validate(events.collect());
        assert!(events.iter().all(|event| event.end == 5));
        events.iter().map(|event| (event.span, event.parent)).collect()
    }

    #[test]
    fn circles_are_opened_at_one_place() {
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
    fn every_event_has_a_number_of_its_own() {
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
