//! Critical paths through waits, and waits that delay no other event.

use super::steps::{path, profile_of};
use super::*;

/// Returns the busy, waiting and idle time of a worker in microseconds.
fn usage(events: Vec<Event>, worker: usize) -> [u64; 3] {
    let usage = profile_of(events).step().unwrap().workers.remove(worker);
    [usage.busy, usage.waiting, usage.idle].map(|time| time / 1000)
}

#[test]
fn a_call_without_wait_is_critical_until_its_request_has_left() {
    let mut events = vec![
        event(1, 0, 0, Kind::Scope, "step", (0, 100)),
        event(2, 1, 0, call(1, (15, 60)), "f", (10, 60)),
        event(3, 2, 1, execution(0, (20, 55)), "f", (25, 55)),
        event(4, 1, 0, Kind::Operator, "matmul", (20, 40)),
    ];
    let by_itself = [(1, 0, 10), (2, 10, 15), (1, 15, 20), (4, 20, 40), (1, 40, 100)];
    assert_eq!(path(&profile_of(events.clone()).step().unwrap()), by_itself);
    // Its reply arrived before the wait.
    let mut late = events.clone();
    late.push(event(5, 1, 0, Kind::Wait { call: 2 }, "wait for f", (70, 71)));
    assert_eq!(path(&profile_of(late).step().unwrap()), by_itself);
    events.push(event(5, 1, 0, Kind::Wait { call: 2 }, "wait for f", (50, 61)));
    assert_eq!(
        path(&profile_of(events).step().unwrap()),
        [(1, 0, 10), (2, 10, 25), (3, 25, 55), (2, 55, 60), (1, 60, 100)]
    );
}

#[test]
fn an_unsent_call_took_the_time_of_its_caller() {
    let profile = profile_of(vec![
        event(1, 0, 0, Kind::Scope, "step", (0, 100)),
        event(2, 1, 0, call(1, (0, 0)), "f", (10, 60)),
    ]);
    assert_eq!(
        path(&profile.step().unwrap()),
        [(1, 0, 10), (2, 10, 60), (1, 60, 100)]
    );
}

/// The slow creation of an object, and a method call that arrives before the object exists.
fn method_before_object() -> Vec<Event> {
    vec![
        event(1, 0, 0, Kind::Scope, "step", (0, 100)),
        event(2, 1, 0, call(1, (6, 12)), "new", (5, 12)),
        event(3, 2, 1, execution(0, (8, 10)), "new", (9, 70)),
        event(4, 1, 0, call(1, (16, 95)), "forward", (15, 95)),
        event(5, 4, 1, execution(0, (18, 92)), "forward", (72, 90)),
        event(6, 5, 1, Kind::Wait { call: 3 }, "wait in forward", (19, 71)),
        event(7, 1, 0, Kind::Wait { call: 4 }, "wait for forward", (16, 96)),
    ]
}

#[test]
fn the_path_moves_from_a_method_to_the_creation_of_its_object() {
    assert_eq!(
        path(&profile_of(method_before_object()).step().unwrap()),
        [
            (1, 0, 5),
            (2, 5, 9),
            (3, 9, 70),
            (5, 70, 90),
            (4, 90, 95),
            (1, 95, 100)
        ]
    );
}

#[test]
fn a_wait_before_its_parent_begins_is_not_waiting() {
    let mut events = method_before_object();
    assert_eq!(usage(events.clone(), 1), [61 + 18, 0, 21]);
    // The creation of the object is unknown: the worker was idle meanwhile.
    events.retain(|event| event.span != 3);
    assert_eq!(usage(events, 1), [18, 0, 82]);
}

#[test]
fn an_async_function_may_wait_on_another_thread() {
    let elsewhere = |event: Event| Event { thread: 7, ..event };
    let events = vec![
        event(1, 0, 0, execution(1, (0, 0)), "async", (0, 100)),
        elsewhere(event(2, 1, 0, Kind::Wait { call: 0 }, "wait for f", (20, 80))),
    ];
    assert_eq!(usage(events, 0), [40, 60, 0]);
}
