//! What a recorder keeps, for whom, and for how long.

use super::*;
use crate::{Kind, Span};

fn recorded(recorder: &Arc<Recorder>, trace: u64, name: &'static str) {
    let at = Position { trace, span: 0 };
    Span::new(recorder, at, name, Kind::Scope).finish(|_| ());
}

fn names(collected: &Collected) -> Vec<&str> {
    collected.events.iter().map(|event| &*event.name).collect()
}

#[test]
fn a_trace_has_what_was_recorded_under_its_number() {
    let recorder = Recorder::new(3, Clock::default(), 0);
    let (a, b) = (recorder.open(false), recorder.open(true));
    recorded(&recorder, a, "one");
    recorded(&recorder, b, "two");
    let going_on = Span::new(&recorder, Position { trace: a, span: 0 }, "three", Kind::Scope);
    let found = recorder.collect(a, 0, false);
    assert_eq!((names(&found), found.open), (vec!["one"], 1));
    going_on.finish(|_| ());
    let found = recorder.collect(a, 1, true);
    assert_eq!((names(&found), found.open), (vec!["three"], 0));
    assert_eq!(names(&recorder.collect(b, 0, true)), ["two"]);
    assert_eq!(Position::opener(a), Some(3));
    assert!(Position { trace: b, span: 0 }.has_shapes() && !Position { trace: a, span: 0 }.has_shapes());
}

#[test]
fn what_comes_after_the_end_of_a_trace_opens_nothing() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let trace = recorder.open(false);
    let late = Span::new(&recorder, Position { trace, span: 0 }, "late", Kind::Scope);
    recorder.collect(trace, 0, true);
    late.finish(|_| ());
    recorded(&recorder, trace, "later");
    assert_eq!(recorder.traces(), 0);
}

#[test]
fn the_traces_of_a_worker_that_is_gone_are_forgotten() {
    let (here, there) = (
        Recorder::new(0, Clock::default(), 0),
        Recorder::new(1, Clock::default(), 0),
    );
    let (ours, theirs) = (here.open(false), there.open(false));
    recorded(&here, ours, "ours");
    recorded(&here, theirs, "theirs");
    assert_eq!(here.traces(), 2);
    here.forget(1);
    assert_eq!(here.traces(), 1);
    assert_eq!(names(&here.collect(ours, 0, true)), ["ours"]);
}

#[test]
fn recordings_of_a_process_nest() {
    let _alone = crate::scope::ALONE.lock();
    let recorder = Recorder::new(0, Clock::default(), 0);
    assert!(recorder.arriving(0, 5).is_none());
    let outer = recorder.watch(false);
    recorded(&recorder, 0, "one");
    let inner = recorder.watch(false);
    recorded(&recorder, 0, "two");
    assert_eq!(recorder.arriving(0, 5), Some(Position { trace: 0, span: 5 }));
    assert_eq!(names(&recorder.unwatch(inner)), ["two"]);
    recorded(&recorder, 0, "three");
    assert_eq!(names(&recorder.unwatch(outer)), ["one", "two", "three"]);
    assert!(recorder.arriving(0, 5).is_none());
    assert!(recorder.unwatch(outer).events.is_empty());
}

#[test]
fn events_are_kept_until_whoever_asked_has_got_them() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let trace = recorder.open(false);
    let count = AT_ONCE + 10;
    for _ in 0..count {
        recorded(&recorder, trace, "event");
    }
    for _ in 0..2 {
        let found = recorder.collect(trace, 0, false);
        assert!(found.events.len() == AT_ONCE && found.more);
    }
    let found = recorder.collect(trace, AT_ONCE as u64, true);
    assert!(found.events.len() == 10 && !found.more);
    assert!(recorder.collect(trace, count as u64, true).events.is_empty());
    assert_eq!((recorder.traces(), recorder.books.lock().kept), (0, 0));
}

#[test]
fn a_trace_that_nobody_ends_makes_room_for_others() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    for count in 1..=2 * MAX_TRACES as u64 {
        recorded(&recorder, trace_number(7, count, false), "event");
        // This one is not left alone.
        recorded(&recorder, trace_number(8, 1, false), "event");
        assert!(recorder.traces() <= MAX_TRACES);
    }
    let kept = recorder.collect(trace_number(8, 1, false), 0, true);
    assert_eq!(kept.events.len(), 2 * MAX_TRACES);
    // Whoever asks for one that was given up is told.
    for last in [false, true, true] {
        let gone = recorder.collect(trace_number(7, 1, false), 0, last);
        assert!(gone.events.is_empty() && gone.given_up);
    }
    assert!(!kept.given_up && !recorder.collect(trace_number(9, 1, false), 0, true).given_up);
}

#[test]
fn only_who_asks_for_shapes_has_them() {
    let _alone = crate::scope::ALONE.lock();
    let recorder = Recorder::new(0, Clock::default(), 0);
    let (with, without) = (recorder.watch(true), recorder.watch(false));
    let trace = recorder.open(false);
    let shapes = |events: Vec<Event>| events.into_iter().map(|event| event.shapes.len()).sum::<usize>();
    for trace in [0, trace] {
        let span = Span::new(&recorder, Position { trace, span: 0 }, "event", Kind::Scope);
        assert!(span.wants_shapes());
        span.finish(|event| event.shapes = vec!["f32[2]".into()]);
    }
    assert_eq!(shapes(recorder.unwatch(with).events), 2);
    assert_eq!(shapes(recorder.unwatch(without).events), 0);
    assert_eq!(shapes(recorder.collect(trace, 0, true).events), 0);
    let after = Span::new(&recorder, Position { trace: 0, span: 0 }, "event", Kind::Scope);
    assert!(!after.wants_shapes());
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let trace = recorder.open(false);
    recorder.books.lock().kept = MAX_EVENTS - 1;
    for _ in 0..3 {
        recorded(&recorder, trace, "event");
    }
    let found = recorder.collect(trace, 0, false);
    assert_eq!((found.events.len(), found.dropped), (1, 2));
}
