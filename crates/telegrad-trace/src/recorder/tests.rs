//! What a recorder keeps, for whom, and for how long.

use super::table::{AT_ONCE, MAX_EVENTS, MAX_TRACES};
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
fn however_many_traces_there_were_since_one_that_is_over_is_not_opened_again() {
    let opener = Recorder::new(0, Clock::default(), 0);
    let other = Recorder::new(1, Clock::default(), 0);
    let first = opener.open(false);
    let open = opener.open(false);
    for trace in [first, open] {
        recorded(&other, trace, "event");
    }
    let end = |trace| {
        opener.collect(trace, 0, true);
        other.collect(trace, 0, true);
        other.close_before(trace, opener.over_before(trace));
    };
    end(first);
    for _ in 0..5000 {
        let trace = opener.open(false);
        end(trace);
    }
    for recorder in [&opener, &other] {
        recorded(recorder, first, "late");
        assert!(!recorder.is_open(first));
    }
    // One that is open all the while is not over.
    recorded(&other, open, "another");
    assert_eq!(names(&other.collect(open, 0, true)), ["event", "another"]);
    // Nor is one that this worker has not heard of yet.
    let new = opener.open(false);
    recorded(&other, new, "first");
    assert_eq!(names(&other.collect(new, 0, true)), ["first"]);
}

#[test]
fn what_was_not_asked_for_to_its_end_goes_with_the_next() {
    let other = Recorder::new(1, Clock::default(), 0);
    let [first, second] = [1, 2].map(|count| trace_number(0, count, false));
    while !other.collect(first, 0, false).more {
        recorded(&other, first, "event");
    }
    // Its opener has heard the first part, and no more.
    assert!(other.collect(first, 0, true).more);
    recorded(&other, second, "event");
    other.close_before(second, 2);
    assert!(!other.is_open(first) && other.is_open(second));
    assert_eq!(other.books.lock().kept, 1);
}

#[test]
fn nothing_more_is_recorded_while_the_last_is_told() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let trace = recorder.open(false);
    while !recorder.collect(trace, 0, false).more {
        recorded(&recorder, trace, "event");
    }
    let mut told = 0;
    loop {
        let found = recorder.collect(trace, told, true);
        told += found.events.len() as u64;
        // Somebody goes on faster than it is told.
        for _ in 0..found.events.len() {
            recorded(&recorder, trace, "late");
        }
        assert!(names(&found).iter().all(|name| *name == "event"));
        if !found.more {
            break;
        }
    }
    assert_eq!(recorder.traces(), 0);
}

#[test]
fn the_traces_of_a_worker_that_is_gone_are_forgotten() {
    let [here, there] = [0, 1].map(|rank| Recorder::new(rank, Clock::default(), 0));
    let (ours, theirs) = (here.open(false), there.open(false));
    recorded(&here, ours, "ours");
    let call = Kind::Call(crate::Call {
        verb: "rpc_sync".into(),
        callee: 7,
        sent: 0,
        received: 0,
        sent_bytes: 0,
        received_bytes: 0,
        is_shutdown: false,
    });
    let at = Position {
        trace: theirs,
        span: 0,
    };
    Span::new(&here, at, "theirs", call).finish(|_| ());
    assert_eq!((here.traces(), here.of_others()), (2, vec![theirs]));
    // Whoever works for it has to be told.
    assert_eq!(here.gone(1), [(theirs, vec![7])]);
    assert_eq!((here.traces(), here.of_others()), (1, vec![]));
    // What it had others do may come later than that.
    let late = there.open(false);
    recorded(&here, late, "late");
    assert_eq!(here.traces(), 1);
    assert_eq!(names(&here.collect(ours, 0, true)), ["ours"]);
}

#[test]
fn a_trace_of_another_worker_can_be_forgotten() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let (ours, theirs) = (recorder.open(false), trace_number(1, 1, false));
    for trace in [ours, theirs] {
        recorded(&recorder, trace, "event");
        recorder.forget(trace);
        recorded(&recorder, trace, "late");
    }
    assert!(recorder.is_open(ours) && !recorder.is_open(theirs));
}

#[test]
fn numbers_that_no_worker_gives_are_no_traces() {
    let _alone = crate::scope::ALONE.lock();
    let recorder = Recorder::new(0, Clock::default(), 0);
    for trace in [WHOLE_WORLD + 2, (1 << 40) - 1] {
        assert_eq!(recorder.arriving(trace, 5), None);
    }
    for trace in [WHOLE_WORLD, WHOLE_WORLD + 1, trace_number(0, 1, true)] {
        assert_eq!(recorder.arriving(trace, 5), Some(Position { trace, span: 5 }));
    }
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
    let count = AT_ONCE / 100;
    for _ in 0..count {
        recorded(&recorder, trace, "event");
    }
    let some = recorder.collect(trace, 0, false);
    assert!(some.more && some.events.len() < count);
    let again = recorder.collect(trace, 0, false);
    assert_eq!(again.events, some.events);
    let mut told = some.events.len();
    while told < count {
        let found = recorder.collect(trace, told as u64, true);
        told += found.events.len();
        assert_eq!(found.more, told < count);
    }
    assert!(recorder.collect(trace, count as u64, true).events.is_empty());
    assert_eq!((recorder.traces(), recorder.books.lock().kept), (0, 0));
}

#[test]
fn the_threads_of_what_is_told_are_named() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let trace = recorder.open(false);
    for name in ["one", "two"] {
        let thread = std::thread::Builder::new().name(name.into());
        std::thread::scope(|scope| {
            let thread = thread.spawn_scoped(scope, || recorded(&recorder, trace, "event"));
            thread.unwrap();
        });
    }
    let named = |found: &Collected| {
        let names = found.threads.iter().map(|(_, name)| name.clone());
        std::collections::BTreeSet::from_iter(names)
    };
    let all = recorder.collect(trace, 0, false);
    assert_eq!(named(&all), ["one".into(), "two".into()].into());
    assert_eq!(named(&recorder.collect(trace, 1, true)), ["two".into()].into());
}

#[test]
fn a_trace_that_nobody_ends_makes_room_for_others() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    // Its own it keeps.
    let own = recorder.open(false);
    for count in 1..=2 * MAX_TRACES as u64 {
        recorded(&recorder, trace_number(7, count, false), "event");
        // This one is not left alone.
        recorded(&recorder, trace_number(8, 1, false), "event");
        assert!(recorder.traces() <= MAX_TRACES + 1);
    }
    let kept = recorder.collect(trace_number(8, 1, false), 0, true);
    assert_eq!(kept.events.len(), 2 * MAX_TRACES);
    // Whoever asks for one that was given up is told.
    for last in [false, true, true] {
        let gone = recorder.collect(trace_number(7, 1, false), 0, last);
        assert!(gone.events.is_empty() && gone.given_up);
    }
    assert!(!kept.given_up && !recorder.collect(trace_number(9, 1, false), 0, true).given_up);
    assert!(recorder.is_open(own));
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

#[test]
fn what_encloses_others_is_not_what_there_is_no_room_for() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let trace = recorder.open(false);
    recorder.books.lock().kept = MAX_EVENTS - 2;
    let root = Span::new(&recorder, Position { trace, span: 0 }, "root", Kind::Scope);
    for _ in 0..3 {
        recorded(&recorder, trace, "event");
    }
    root.finish(|_| ());
    let found = recorder.collect(trace, 0, false);
    assert_eq!((names(&found), found.dropped), (vec!["event", "root"], 2));
    assert_eq!(recorder.books.lock().kept, MAX_EVENTS);
    // Those that were to come and never did take no room, either.
    recorder.collect(trace, 2, true);
    let again = recorder.open(false);
    recorded(&recorder, again, "event");
    assert_eq!(names(&recorder.collect(again, 0, true)), ["event"]);
}

#[test]
fn a_trace_goes_on_for_as_long_as_somebody_was_told_where_it_is() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let trace = recorder.open(false);
    let root = Span::new(&recorder, Position { trace, span: 0 }, "root", Kind::Scope);
    let here = {
        let _entered = root.enter();
        crate::here()
    };
    root.finish(|_| ());
    let going_on = || recorder.collect(trace, 0, false).open;
    assert_eq!(going_on(), 1);
    let another = here.clone();
    drop(here);
    assert_eq!(going_on(), 1);
    let following = another.follow(async {});
    drop(another);
    assert_eq!(going_on(), 1);
    drop(following);
    assert_eq!(going_on(), 0);
    // Nobody is waited for where nothing is recorded.
    drop(crate::here());
}
