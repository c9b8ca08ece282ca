//! Lifetimes and limits of traces and recordings.

use super::event_buffer::MAX_REPLY_BYTES;
use super::table::{MAX_EVENTS, MAX_TRACES};
use super::*;
use crate::{Kind, Span};

/// Records a scope in a trace.
fn record(recorder: &Arc<Recorder>, trace: u64, name: &'static str) {
    let at = Position { trace, span: 0 };
    Span::new(recorder, at, name, Kind::Scope).finish(|_| ());
}

fn names(collected: &Collected) -> Vec<&str> {
    collected.events.iter().map(|event| &*event.name).collect()
}

#[test]
fn a_trace_has_the_events_recorded_under_its_number() {
    let recorder = Recorder::new(3, Clock::default(), 0);
    let (a, b) = (recorder.open(false), recorder.open(true));
    record(&recorder, a, "one");
    record(&recorder, b, "two");
    let open = Span::new(&recorder, Position { trace: a, span: 0 }, "three", Kind::Scope);
    let found = recorder.collect(a, 0, false);
    assert_eq!((names(&found), found.open), (vec!["one"], 1));
    open.finish(|_| ());
    let found = recorder.collect(a, 1, true);
    assert_eq!((names(&found), found.open), (vec!["three"], 0));
    assert_eq!(names(&recorder.collect(b, 0, true)), ["two"]);
    assert_eq!(Position::opener(a), Some(3));
    assert!(Position { trace: b, span: 0 }.has_shapes() && !Position { trace: a, span: 0 }.has_shapes());
}

#[test]
fn late_events_do_not_open_a_closed_trace() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let trace = recorder.open(false);
    let late = Span::new(&recorder, Position { trace, span: 0 }, "late", Kind::Scope);
    recorder.collect(trace, 0, true);
    late.finish(|_| ());
    record(&recorder, trace, "later");
    assert_eq!(recorder.trace_count(), 0);
}

#[test]
fn a_closed_trace_stays_closed_after_thousands_of_others() {
    let opener = Recorder::new(0, Clock::default(), 0);
    let other = Recorder::new(1, Clock::default(), 0);
    let first = opener.open(false);
    let open = opener.open(false);
    for trace in [first, open] {
        record(&other, trace, "event");
    }
    let end = |trace| {
        opener.collect(trace, 0, true);
        other.collect(trace, 0, true);
        other.close_before(trace, opener.oldest_open_before(trace));
    };
    end(first);
    for _ in 0..5000 {
        let trace = opener.open(false);
        end(trace);
    }
    for recorder in [&opener, &other] {
        record(recorder, first, "late");
        assert!(!recorder.is_open(first));
    }
    // A trace that stayed open takes events.
    record(&other, open, "another");
    assert_eq!(names(&other.collect(open, 0, true)), ["event", "another"]);
    // So does a new one.
    let new = opener.open(false);
    record(&other, new, "first");
    assert_eq!(names(&other.collect(new, 0, true)), ["first"]);
}

#[test]
fn an_uncollected_trace_is_closed_with_the_next() {
    let other = Recorder::new(1, Clock::default(), 0);
    let [first, second] = [1, 2].map(|count| trace_number(0, count, false));
    while !other.collect(first, 0, false).more {
        record(&other, first, "event");
    }
    // Its opener collects the first part only.
    assert!(other.collect(first, 0, true).more);
    record(&other, second, "event");
    other.close_before(second, 2);
    assert!(!other.is_open(first) && other.is_open(second));
    assert_eq!(other.table.lock().event_count, 1);
}

#[test]
fn no_events_are_added_during_the_last_collection() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let trace = recorder.open(false);
    while !recorder.collect(trace, 0, false).more {
        record(&recorder, trace, "event");
    }
    let mut collected = 0;
    loop {
        let found = recorder.collect(trace, collected, true);
        collected += found.events.len() as u64;
        // As many new events as were collected.
        for _ in 0..found.events.len() {
            record(&recorder, trace, "late");
        }
        assert!(names(&found).iter().all(|name| *name == "event"));
        if !found.more {
            break;
        }
    }
    assert_eq!(recorder.trace_count(), 0);
}

#[test]
fn traces_of_a_lost_worker_are_forgotten() {
    let [here, there] = [0, 1].map(|rank| Recorder::new(rank, Clock::default(), 0));
    let (ours, theirs) = (here.open(false), there.open(false));
    record(&here, ours, "ours");
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
    assert_eq!((here.trace_count(), here.remote_traces()), (2, vec![theirs]));
    // With the callees, which have to be told.
    assert_eq!(here.forget_traces_of(1), [(theirs, vec![7])]);
    assert_eq!((here.trace_count(), here.remote_traces()), (1, vec![]));
    // Requests on its behalf may arrive later.
    let late = there.open(false);
    record(&here, late, "late");
    assert_eq!(here.trace_count(), 1);
    assert_eq!(names(&here.collect(ours, 0, true)), ["ours"]);
}

#[test]
fn a_trace_of_another_worker_can_be_forgotten() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let (ours, theirs) = (recorder.open(false), trace_number(1, 1, false));
    for trace in [ours, theirs] {
        record(&recorder, trace, "event");
        recorder.forget(trace);
        record(&recorder, trace, "late");
    }
    assert!(recorder.is_open(ours) && !recorder.is_open(theirs));
}

#[test]
fn invalid_trace_numbers_are_ignored() {
    let _lock = crate::scope::PROCESS_RECORDINGS.lock();
    let recorder = Recorder::new(0, Clock::default(), 0);
    for trace in [WHOLE_WORLD + 2, (1 << 40) - 1] {
        assert_eq!(recorder.arrival_position(trace, 5), None);
    }
    for trace in [WHOLE_WORLD, WHOLE_WORLD + 1, trace_number(0, 1, true)] {
        assert_eq!(
            recorder.arrival_position(trace, 5),
            Some(Position { trace, span: 5 })
        );
    }
}

#[test]
fn recordings_of_a_process_nest() {
    let _lock = crate::scope::PROCESS_RECORDINGS.lock();
    let recorder = Recorder::new(0, Clock::default(), 0);
    assert!(recorder.arrival_position(0, 5).is_none());
    let outer = recorder.start_recording(false);
    record(&recorder, 0, "one");
    let inner = recorder.start_recording(false);
    record(&recorder, 0, "two");
    assert_eq!(
        recorder.arrival_position(0, 5),
        Some(Position { trace: 0, span: 5 })
    );
    assert_eq!(names(&recorder.stop_recording(inner)), ["two"]);
    record(&recorder, 0, "three");
    assert_eq!(names(&recorder.stop_recording(outer)), ["one", "two", "three"]);
    assert!(recorder.arrival_position(0, 5).is_none());
    assert!(recorder.stop_recording(outer).events.is_empty());
}

#[test]
fn events_are_kept_until_the_collector_has_them() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let trace = recorder.open(false);
    let count = MAX_REPLY_BYTES / 100;
    for _ in 0..count {
        record(&recorder, trace, "event");
    }
    let part = recorder.collect(trace, 0, false);
    assert!(part.more && part.events.len() < count);
    let again = recorder.collect(trace, 0, false);
    assert_eq!(again.events, part.events);
    let mut collected = part.events.len();
    while collected < count {
        let found = recorder.collect(trace, collected as u64, true);
        collected += found.events.len();
        assert_eq!(found.more, collected < count);
    }
    assert!(recorder.collect(trace, count as u64, true).events.is_empty());
    assert_eq!(
        (recorder.trace_count(), recorder.table.lock().event_count),
        (0, 0)
    );
}

#[test]
fn threads_of_collected_events_are_named() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let trace = recorder.open(false);
    for name in ["one", "two"] {
        let thread = std::thread::Builder::new().name(name.into());
        std::thread::scope(|scope| {
            let thread = thread.spawn_scoped(scope, || record(&recorder, trace, "event"));
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
fn the_least_recently_used_remote_trace_is_evicted() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    // Own traces are not evicted.
    let own = recorder.open(false);
    for count in 1..=2 * MAX_TRACES as u64 {
        record(&recorder, trace_number(7, count, false), "event");
        // This one is in use.
        record(&recorder, trace_number(8, 1, false), "event");
        assert!(recorder.trace_count() <= MAX_TRACES + 1);
    }
    let kept = recorder.collect(trace_number(8, 1, false), 0, true);
    assert_eq!(kept.events.len(), 2 * MAX_TRACES);
    // Collecting an evicted trace says so.
    for last in [false, true, true] {
        let evicted = recorder.collect(trace_number(7, 1, false), 0, last);
        assert!(evicted.events.is_empty() && evicted.evicted);
    }
    assert!(!kept.evicted && !recorder.collect(trace_number(9, 1, false), 0, true).evicted);
    assert!(recorder.is_open(own));
}

#[test]
fn only_recordings_that_ask_for_shapes_have_them() {
    let _lock = crate::scope::PROCESS_RECORDINGS.lock();
    let recorder = Recorder::new(0, Clock::default(), 0);
    let (with, without) = (recorder.start_recording(true), recorder.start_recording(false));
    let trace = recorder.open(false);
    let shapes = |events: Vec<Event>| events.into_iter().map(|event| event.shapes.len()).sum::<usize>();
    for trace in [0, trace] {
        let span = Span::new(&recorder, Position { trace, span: 0 }, "event", Kind::Scope);
        assert!(span.wants_shapes());
        span.finish(|event| event.shapes = vec!["f32[2]".into()]);
    }
    assert_eq!(shapes(recorder.stop_recording(with).events), 2);
    assert_eq!(shapes(recorder.stop_recording(without).events), 0);
    assert_eq!(shapes(recorder.collect(trace, 0, true).events), 0);
    let after = Span::new(&recorder, Position { trace: 0, span: 0 }, "event", Kind::Scope);
    assert!(!after.wants_shapes());
}

#[test]
fn events_beyond_the_limit_are_counted() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let trace = recorder.open(false);
    recorder.table.lock().event_count = MAX_EVENTS - 1;
    for _ in 0..3 {
        record(&recorder, trace, "event");
    }
    let found = recorder.collect(trace, 0, false);
    assert_eq!((found.events.len(), found.dropped), (1, 2));
}

#[test]
fn an_open_outer_span_is_not_dropped_at_the_limit() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let trace = recorder.open(false);
    recorder.table.lock().event_count = MAX_EVENTS - 2;
    let root = Span::new(&recorder, Position { trace, span: 0 }, "root", Kind::Scope);
    for _ in 0..3 {
        record(&recorder, trace, "event");
    }
    root.finish(|_| ());
    let found = recorder.collect(trace, 0, false);
    assert_eq!((names(&found), found.dropped), (vec!["event", "root"], 2));
    assert_eq!(recorder.table.lock().event_count, MAX_EVENTS);
    // Dropped spans reserve no memory.
    recorder.collect(trace, 2, true);
    let again = recorder.open(false);
    record(&recorder, again, "event");
    assert_eq!(names(&recorder.collect(again, 0, true)), ["event"]);
}

#[test]
fn a_trace_stays_open_while_a_here_exists() {
    let recorder = Recorder::new(0, Clock::default(), 0);
    let trace = recorder.open(false);
    let root = Span::new(&recorder, Position { trace, span: 0 }, "root", Kind::Scope);
    let here = {
        let _entered = root.enter();
        crate::here()
    };
    root.finish(|_| ());
    let open = || recorder.collect(trace, 0, false).open;
    assert_eq!(open(), 1);
    let another = here.clone();
    drop(here);
    assert_eq!(open(), 1);
    let following = another.follow(async {});
    drop(another);
    assert_eq!(open(), 1);
    drop(following);
    assert_eq!(open(), 0);
    // Also where nothing is recorded.
    drop(crate::here());
}
