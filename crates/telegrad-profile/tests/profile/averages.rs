//! Averages: phases of calls, self times of threads.

use super::*;

/// Assembles a profile of `a` and `b`.
fn profile_of(events: Vec<Event>) -> Profile {
    let (a, b): (Vec<_>, Vec<_>) = events.into_iter().partition(|event| event.worker == 0);
    let part = |events| Collected {
        events,
        ..Collected::default()
    };
    let parts = vec![(0, "a".to_owned(), part(a)), (1, "b".to_owned(), part(b))];
    Profile::new(0, parts, Vec::new())
}

/// Returns the phases of the call with span 2, in microseconds.
fn phases(profile: &Profile) -> [u64; 5] {
    let call = profile.events.iter().find(|event| event.span == 2).unwrap();
    let Phases {
        encode,
        wire,
        queue,
        execute,
        reply,
    } = profile.phases(call).unwrap();
    let phases = [encode, wire, queue, execute, reply].map(|phase| phase / 1000);
    assert_eq!(phases.iter().sum::<u64>(), call.duration() / 1000, "{phases:?}");
    phases
}

#[test]
fn phases_add_up_to_at_most_the_call() {
    // The reply of `remote` does not wait for the function.
    let profile = profile_of(vec![
        event(2, 0, 0, call(1, (10, 100)), "Net::new", (5, 100)),
        event(3, 2, 1, execution(0, (40, 45)), "Net::new", (50, 10_000)),
    ]);
    assert_eq!(phases(&profile), [5, 30, 5, 0, 55]);
    // This call timed out before its reply arrived.
    let profile = profile_of(vec![
        event(2, 0, 0, call(1, (11, 0)), "f", (10, 600)),
        event(3, 2, 1, execution(0, (20, 0)), "f", (21, 900)),
    ]);
    assert_eq!(phases(&profile), [1, 9, 1, 579, 0]);
    // This one timed out before its function began.
    let profile = profile_of(vec![
        event(2, 0, 0, call(1, (11, 0)), "f", (10, 600)),
        event(3, 2, 1, execution(0, (20, 910)), "f", (700, 900)),
    ]);
    assert_eq!(phases(&profile), [1, 9, 580, 0, 0]);
}

#[test]
fn phases_are_averaged_over_executed_calls() {
    let profile = profile_of(vec![
        event(2, 0, 0, call(1, (11, 100)), "f", (10, 100)),
        event(3, 2, 1, execution(0, (20, 90)), "f", (25, 85)),
        event(4, 0, 0, call(1, (111, 0)), "f", (110, 120)),
        event(5, 0, 0, call(1, (211, 0)), "f", (210, 220)),
    ]);
    let averages = profile.key_averages();
    let f = averages.get("rpc_sync#f(a -> b)").unwrap();
    assert_eq!((f.calls, f.executed, f.phases.unwrap().execute), (3, 1, 60_000));
    let text = averages.to_string();
    let row = text.lines().rfind(|line| line.contains("rpc_sync#f")).unwrap();
    assert!(row.contains(" 1 ") && !row.contains(" 3 "), "{row}");
}

/// Fills an event with nested and consecutive ones, and with calls that overlap anything.
fn fill(events: &mut Vec<Event>, parent: u64, (start, end): (u64, u64), random: &mut fastrand::Rng) {
    let mut at = start;
    while at < end && random.u8(0..4) > 0 {
        let from = random.u64(at..=end);
        let to = random.u64(from..=end);
        let span = events.len() as u64 + 1;
        match random.u8(0..4) {
            0 => {
                let ends = to + random.u64(0..1000);
                events.push(event(
                    span,
                    parent,
                    0,
                    call(1, (from, ends)),
                    "call",
                    (from, ends),
                ));
                // Encoding of the call, on this thread.
                fill(events, span, (from, to), random);
            }
            1 => events.push(event(span, parent, 0, Kind::Wait { call: 0 }, "wait", (from, to))),
            _ => {
                events.push(event(span, parent, 0, Kind::Scope, "scope", (from, to)));
                fill(events, span, (from, to), random);
            }
        }
        at = to;
    }
}

#[test]
fn self_times_of_a_thread_add_up() {
    let mut random = fastrand::Rng::with_seed(17);
    for _ in 0..200 {
        let mut events = vec![event(1, 0, 0, Kind::Scope, "root", (0, 1000))];
        fill(&mut events, 1, (0, 1000), &mut random);
        let averages = profile_of(events).key_averages();
        let on_thread = averages.0.iter().filter(|row| !row.name.starts_with("rpc_sync"));
        assert_eq!(on_thread.map(|row| row.self_time).sum::<u64>(), 1_000_000);
    }
}

#[test]
fn control_characters_in_names_are_escaped() {
    let mut profile = profile_of(vec![
        event(1, 0, 0, Kind::Scope, "\x1b[2Jx\ny", (0, 100)),
        event(2, 1, 0, call(1, (11, 90)), "\x1b]0;f\x07", (10, 90)),
        event(3, 2, 1, execution(0, (20, 80)), "\x1b]0;f\x07", (25, 75)),
    ]);
    profile.workers[0].name = "a\r\n\x1b[31m".into();
    profile.workers[1].alignment = telegrad_profile::Alignment::Unrelated;
    profile.workers[1].name = "b\x1b[31m".into();
    let step = profile.step().unwrap().to_string();
    for text in [
        profile.key_averages().to_string(),
        step,
        profile.clock_warnings().concat(),
    ] {
        let controls = text.chars().filter(|char| char.is_control() && *char != '\n');
        assert_eq!(controls.count(), 0, "{text:?}");
        assert!(text.contains("␛[31m"), "{text}");
    }
}

/// A call, its execution on `b`, and the wait for it.
fn called(span: u64, verb: &'static str, name: &'static str, (start, end): (u64, u64)) -> [Event; 3] {
    let mut kind = call(1, (start + 1, end - 1));
    if let Kind::Call(call) = &mut kind {
        call.verb = verb.into();
        call.is_shutdown = verb == "shutdown";
    }
    let (arrived, replied) = (start + 2, end - 2);
    [
        event(span, 0, 0, kind, name, (start, end)),
        event(
            span + 1,
            span,
            1,
            execution(0, (arrived, replied)),
            name,
            (arrived, replied),
        ),
        event(span + 2, span + 1, 1, Kind::Scope, "below", (arrived, replied)),
    ]
}

#[test]
fn a_shutdown_can_be_removed() {
    let mut events = called(1, "rpc_sync", "f", (0, 100)).to_vec();
    events.extend(called(10, "shutdown", "telegrad::done", (200, 900)));
    events.push(event(20, 0, 0, Kind::Wait { call: 1 }, "wait for f", (5, 100)));
    let of_shutdown = Kind::Wait { call: 10 };
    events.push(event(
        21,
        0,
        0,
        of_shutdown,
        "wait for telegrad::done",
        (205, 900),
    ));
    let all = profile_of(events);
    let kept = all.clone().without_shutdown();
    let spans: Vec<u64> = kept.events.iter().map(|event| event.span).collect();
    assert_eq!(spans, [1, 2, 3, 20]);
    assert_eq!(
        (&kept.workers, kept.step().unwrap().duration()),
        (&all.workers, 100_000)
    );
    let text = kept.key_averages().to_string() + &kept.step().unwrap().to_string();
    assert!(!text.contains("telegrad::done"), "{text}");
}

#[test]
fn printed_text_fits_120_columns() {
    let function: &'static str = Box::leak("a_module_of_many_letters::".repeat(6).into_boxed_str());
    let mut events: Vec<Event> = (0..20)
        .flat_map(|n| called(100 + 10 * n, "rpc_async", function, (n, u64::MAX / 10_000_000)))
        .collect();
    // Nested calls, with names longer than a line.
    for depth in 0..10 {
        let mut inner = called(1000 + 10 * depth, "rpc_sync", function, (5, 1_000_000));
        inner[0].parent = if depth == 0 {
            101
        } else {
            1000 + 10 * (depth - 1) + 1
        };
        inner[0].worker = 1;
        events.extend(inner);
    }
    events[0].status = telegrad_trace::Status::TimedOut;
    for event in &mut events {
        event.tensor_bytes = u64::MAX / 1000;
        if let Kind::Call(call) = &mut event.kind {
            (call.sent_bytes, call.received_bytes) = (u64::MAX / 4, u64::MAX / 4);
        }
    }
    let mut profile = profile_of(events);
    for worker in &mut profile.workers {
        worker.name = format!("{}{}", worker.name, "-with-a-long-name".repeat(7));
    }
    let averages = profile.key_averages();
    let rows = averages.0.len();
    let mut step = profile.step().unwrap();
    step.name = "step ".repeat(100);
    let (averages, step) = (averages.to_string(), step.to_string());
    for line in averages.lines().chain(step.lines()) {
        assert!(
            line.chars().count() <= 120,
            "{} columns: {line}",
            line.chars().count()
        );
    }
    // Each row has all of its numbers on one line.
    let complete = averages.lines().filter(|line| line.contains(" PB"));
    assert!(complete.count() >= rows, "{averages}");
    assert!(
        averages.contains("rpc_async#a_module_of_many_letters::"),
        "{averages}"
    );
    assert!(step.contains("bubble: "), "{step}");
}
