//! What held up whom, and whom it did not.

use super::steps::{of, path};
use super::*;

/// What a worker did in all of it: busy, waiting and idle, in microseconds.
fn usage(events: Vec<Event>, worker: usize) -> [u64; 3] {
    let usage = of(events).step().unwrap().workers.remove(worker);
    [usage.busy, usage.waiting, usage.idle].map(|time| time / 1000)
}

#[test]
fn a_call_that_nobody_waits_for_holds_up_nobody_once_its_request_has_left() {
    let mut events = vec![
        event(1, 0, 0, Kind::Scope, "step", (0, 100)),
        event(2, 1, 0, call(1, (15, 60)), "f", (10, 60)),
        event(3, 2, 1, execution(0, (20, 55)), "f", (25, 55)),
        event(4, 1, 0, Kind::Operator, "matmul", (20, 40)),
    ];
    let by_itself = [(1, 0, 10), (2, 10, 15), (1, 15, 20), (4, 20, 40), (1, 40, 100)];
    assert_eq!(path(&of(events.clone()).step().unwrap()), by_itself);
    // Its result was there before anybody asked for it.
    let mut late = events.clone();
    late.push(event(5, 1, 0, Kind::Wait { call: 2 }, "wait for f", (70, 71)));
    assert_eq!(path(&of(late).step().unwrap()), by_itself);
    events.push(event(5, 1, 0, Kind::Wait { call: 2 }, "wait for f", (50, 61)));
    assert_eq!(
        path(&of(events).step().unwrap()),
        [(1, 0, 10), (2, 10, 25), (3, 25, 55), (2, 55, 60), (1, 60, 100)]
    );
}

#[test]
fn a_call_that_was_never_sent_took_its_callers_time() {
    let profile = of(vec![
        event(1, 0, 0, Kind::Scope, "step", (0, 100)),
        event(2, 1, 0, call(1, (0, 0)), "f", (10, 60)),
    ]);
    assert_eq!(
        path(&profile.step().unwrap()),
        [(1, 0, 10), (2, 10, 60), (1, 60, 100)]
    );
}

/// A value that takes long to make, and a call on it that comes before it is there.
fn on_a_value() -> Vec<Event> {
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
fn a_path_goes_from_a_call_on_a_value_to_what_made_that() {
    assert_eq!(
        path(&of(on_a_value()).step().unwrap()),
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
fn what_has_not_begun_does_not_wait_in_anybodys_stead() {
    let mut events = on_a_value();
    assert_eq!(usage(events.clone(), 1), [61 + 18, 0, 21]);
    // Nobody knows what made the value: nothing ran there meanwhile.
    events.retain(|event| event.span != 3);
    assert_eq!(usage(events, 1), [18, 0, 82]);
}

#[test]
fn a_function_that_goes_on_on_another_thread_waits_there() {
    let elsewhere = |event: Event| Event { thread: 7, ..event };
    let events = vec![
        event(1, 0, 0, execution(1, (0, 0)), "async", (0, 100)),
        elsewhere(event(2, 1, 0, Kind::Wait { call: 0 }, "wait for f", (20, 80))),
    ];
    assert_eq!(usage(events, 0), [40, 60, 0]);
}
