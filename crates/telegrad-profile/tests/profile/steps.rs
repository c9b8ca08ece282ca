//! Steps: usage and critical paths, also of untrusted events (S58).

use std::time::{Duration, Instant};

use telegrad_profile::Step;

use super::*;

/// Assembles a profile of workers `a`, `b` and so on.
pub(crate) fn profile_of(events: Vec<Event>) -> Profile {
    let mut workers: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
    for event in events {
        workers.entry(event.worker).or_default().push(event);
    }
    let parts = workers.into_iter().map(|(rank, events)| {
        let name = char::from(b'a' + rank as u8).to_string();
        let collected = Collected {
            events,
            ..Collected::default()
        };
        (rank, name, collected)
    });
    Profile::new(0, parts.collect(), Vec::new())
}

/// Returns the path in microseconds, after checking that it has no gaps.
#[track_caller]
pub(crate) fn path(step: &Step) -> Vec<(u64, u64, u64)> {
    let segments = &step.critical_path;
    let mut at = step.start;
    for segment in segments {
        assert!(
            segment.start == at && segment.end > at,
            "{segment:?} does not follow {at}"
        );
        at = segment.end;
    }
    assert_eq!(at, step.end);
    let in_micros = segments
        .iter()
        .map(|segment| (segment.span, segment.start / 1000, segment.end / 1000));
    in_micros.collect()
}

#[test]
fn a_step_has_usages_and_a_critical_path() {
    let step = profile().step().unwrap();
    assert_eq!((step.name.as_str(), step.duration()), ("step", 100_000));
    let [a, b] = &step.workers[..] else {
        panic!("{step:?}")
    };
    assert_eq!((a.busy, a.waiting, a.idle), (45_000, 55_000, 0));
    assert_eq!((b.busy, b.waiting, b.idle), (35_000, 0, 65_000));
    assert!((step.bubble_ratio() - 0.6).abs() < 1e-9);
    assert_eq!(step.most_waiting().unwrap().worker, "a");
    // The path has no gaps.
    assert_eq!(step.critical_path.first().unwrap().start, 0);
    assert_eq!(step.critical_path.last().unwrap().end, 100_000);
    for pair in step.critical_path.windows(2) {
        assert_eq!(pair[0].end, pair[1].start, "{pair:?}");
    }
    let critical = step.critical();
    let of = |name: &str| {
        critical
            .iter()
            .find(|(_, other, _)| other == name)
            .map(|(_, _, time)| *time)
    };
    assert_eq!(of("rpc_sync#f(a -> b)#remote_op: matmul"), Some(20_000));
    assert_eq!(of("rpc_sync#f(a -> b)#remote_op: f"), Some(15_000));
    // 4 µs before the request left, without 1 µs of `autograd::send`; 10 µs on the wire and in the queue; 10 µs for the reply.
    assert_eq!(of("rpc_sync#f(a -> b)"), Some(24_000));
    // Until its request had left: no wait followed.
    assert_eq!(of("rpc_sync#g(a -> b)"), Some(1_000));
    assert_eq!(critical.iter().map(|(_, _, time)| time).sum::<u64>(), 100_000);
    let text = step.to_string();
    assert!(
        text.contains("55.0 %") && text.contains("bubble: 60.0 %"),
        "{text}"
    );
}

#[test]
fn steps_are_the_outermost_events_of_a_name() {
    let profile = profile();
    assert_eq!(profile.steps("f").len(), 1, "the execution is within the call");
    assert!(profile.steps("nothing").is_empty());
    assert!(Profile::default().step().is_none());
}

#[test]
fn a_profile_without_root_event_is_one_step() {
    let mut profile = profile();
    profile.events.retain(|event| event.span != 1);
    let step = profile.step().unwrap();
    assert_eq!(
        (step.name.as_str(), step.start, step.end),
        ("everything", 20_000, 95_000)
    );
    assert_eq!(step.critical_path.last().unwrap().end, 95_000);
    // Gaps belong to no worker.
    let gaps: Vec<_> = step
        .critical_path
        .iter()
        .filter(|segment| segment.span == 0)
        .collect();
    assert!(!gaps.is_empty());
    for gap in gaps {
        assert_eq!((&*gap.worker, &*gap.name), ("", "nothing recorded"));
    }
    assert_eq!(view(&profile)["step"]["worker"], "");
}

#[test]
fn an_async_wait_leaves_its_thread_to_others() {
    let profile = profile_of(vec![
        event(1, 0, 0, execution(1, (0, 0)), "async", (10, 90)),
        event(2, 1, 0, Kind::Wait { call: 0 }, "wait in async", (20, 80)),
        event(3, 0, 0, execution(1, (0, 0)), "other", (30, 60)),
    ]);
    let step = profile.step().unwrap();
    let usage = &step.workers[0];
    assert_eq!((usage.busy, usage.waiting, usage.idle), (50_000, 30_000, 0));
}

#[test]
fn a_wait_pauses_its_parent() {
    let elsewhere = |event: Event| Event { thread: 7, ..event };
    let mut events = vec![
        event(1, 0, 0, Kind::Scope, "outer", (0, 100)),
        event(2, 1, 0, Kind::Scope, "inner", (10, 60)),
        event(3, 2, 0, Kind::Wait { call: 0 }, "wait", (20, 50)),
    ];
    let usage = |events: &[Event]| {
        let usage = profile_of(events.to_vec()).step().unwrap().workers.remove(0);
        (usage.busy / 1000, usage.waiting / 1000)
    };
    assert_eq!(usage(&events), (70, 30));
    // Work for the same event on another thread continues, and the waits of that thread are its own.
    events.push(elsewhere(event(4, 1, 0, Kind::Scope, "helper", (30, 80))));
    assert_eq!(usage(&events), (90, 10));
    events.push(elsewhere(event(
        5,
        4,
        0,
        Kind::Wait { call: 0 },
        "wait",
        (35, 75),
    )));
    assert_eq!(usage(&events), (75, 25));
    // A wait without a parent counts as waiting.
    assert_eq!(usage(&events[2..3]), (0, 30));
}

#[test]
fn the_path_moves_from_a_wait_to_the_call() {
    let profile = profile_of(vec![
        event(1, 0, 0, Kind::Scope, "step", (0, 100)),
        event(2, 1, 0, Kind::Scope, "send", (0, 20)),
        event(3, 2, 0, call(1, (6, 50)), "f", (5, 50)),
        event(4, 2, 0, call(1, (11, 90)), "g", (10, 90)),
        event(5, 3, 1, execution(0, (8, 46)), "f", (15, 45)),
        event(6, 4, 1, execution(0, (14, 86)), "g", (45, 85)),
        event(7, 1, 0, Kind::Scope, "collect", (25, 99)),
        event(8, 7, 0, Kind::Wait { call: 3 }, "wait for f", (25, 50)),
        event(9, 7, 0, Kind::Wait { call: 4 }, "wait for g", (55, 92)),
    ]);
    let step = profile.step().unwrap();
    assert_eq!(
        path(&step),
        [
            (2, 0, 5),
            (3, 5, 6),
            (2, 6, 10),
            (4, 10, 45),
            (6, 45, 85),
            (4, 85, 90),
            (7, 90, 99),
            (1, 99, 100)
        ]
    );
    // A step that waits for an earlier call contains only the part of the call within the step.
    let collect = &profile.steps("collect")[0];
    assert_eq!(
        path(collect),
        [(4, 25, 45), (6, 45, 85), (4, 85, 90), (7, 90, 99)]
    );
}

#[test]
fn a_path_that_leaves_the_step_continues_at_the_step() {
    // A thread outside of the step made the call meanwhile.
    let profile = profile_of(vec![
        event(1, 0, 0, Kind::Scope, "epoch", (0, 200)),
        event(2, 1, 0, Kind::Scope, "step", (100, 200)),
        event(3, 2, 0, Kind::Operator, "matmul", (110, 120)),
        event(4, 2, 0, Kind::Wait { call: 6 }, "wait for f", (150, 180)),
        event(5, 0, 0, Kind::Scope, "prefetch", (130, 140)),
        event(6, 5, 0, call(1, (136, 180)), "f", (135, 180)),
        event(7, 1, 0, call(1, (136, 190)), "g", (131, 190)),
        event(8, 2, 0, Kind::Wait { call: 7 }, "wait for g", (185, 190)),
    ]);
    // `g` was made by the epoch, an ancestor of the step.
    assert_eq!(
        path(&profile.steps("step")[0]),
        [
            (2, 100, 110),
            (3, 110, 120),
            (2, 120, 131),
            (7, 131, 190),
            (2, 190, 200)
        ]
    );
    let mut without_g = profile;
    without_g.events.retain(|event| event.span < 7);
    assert_eq!(
        path(&without_g.steps("step")[0]),
        [
            (2, 100, 110),
            (3, 110, 120),
            (2, 120, 130),
            (5, 130, 135),
            (6, 135, 180),
            (2, 180, 200)
        ]
    );
}

#[test]
fn random_events_have_complete_steps() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..300 {
        let count = random.u64(1..60);
        let events = (1..=count).map(|_| {
            // Spans may be missing or duplicate, parents and waits refer to anything, and times are arbitrary.
            let [span, parent, other] = [(); 3].map(|()| random.u64(0..count + 2));
            let start = random.u64(0..100);
            let times = (start, random.u64(start.saturating_sub(3)..120));
            let worker = random.u32(0..3);
            let kind = match random.u8(0..5) {
                0 => Kind::Scope,
                1 => Kind::Operator,
                2 => Kind::Wait { call: other },
                3 => call(random.u32(0..3), times),
                _ => execution(random.u32(0..3), times),
            };
            let mut event = event(span, parent, worker, kind, "x", times);
            let mut make_extreme = |number: &mut u64| {
                if round % 2 == 1 && random.u8(0..4) == 0 {
                    *number = [0, 1, 1 << 62, 1 << 63, u64::MAX - 1, u64::MAX][random.usize(0..6)];
                }
            };
            make_extreme(&mut event.start);
            make_extreme(&mut event.end);
            make_extreme(&mut event.tensor_bytes);
            match &mut event.kind {
                Kind::Call(call) => {
                    make_extreme(&mut call.sent);
                    make_extreme(&mut call.received);
                    make_extreme(&mut call.sent_bytes);
                    make_extreme(&mut call.received_bytes);
                }
                Kind::Execution(execution) => {
                    make_extreme(&mut execution.arrived);
                    make_extreme(&mut execution.replied);
                }
                _ => {}
            }
            event
        });
        let profile = profile_of(events.collect());
        let whole = profile.step().unwrap();
        let steps = profile.steps("x");
        assert!(!steps.is_empty(), "round {round}");
        for step in steps.iter().chain([&whole]) {
            path(step);
            for usage in &step.workers {
                assert_eq!(usage.busy + usage.waiting + usage.idle, step.duration());
            }
            assert!((0.0..=1.0).contains(&step.bubble_ratio()), "{step:?}");
        }
        assert!(!profile.key_averages().to_string().is_empty() && view(&profile).is_object());
        assert!(!chrome(&profile).is_empty());
        for event in &profile.events {
            if let Some(Phases {
                encode,
                wire,
                queue,
                execute,
                reply,
            }) = profile.phases(event)
            {
                assert!(encode + wire + queue + execute + reply <= event.duration());
            }
        }
    }
}

#[test]
fn a_wait_for_its_own_ancestor_does_not_loop() {
    let profile = profile_of(vec![
        event(1, 0, 0, call(1, (0, 10)), "f", (0, 10)),
        event(2, 1, 1, execution(0, (0, 10)), "f", (0, 10)),
        event(3, 2, 1, Kind::Wait { call: 1 }, "wait for f", (0, 10)),
    ]);
    path(&profile.step().unwrap());
}

#[test]
fn events_may_be_nested_deeper_than_the_stack() {
    let depth = 100_000;
    let nested = (1..=depth).map(|n| event(n, n - 1, 0, Kind::Scope, "x", (n, 3 * depth - n)));
    let profile = profile_of(nested.collect());
    let step = profile.step().unwrap();
    assert_eq!(path(&step).len() as u64, 2 * depth - 1);
    assert_eq!(profile.steps("x").len(), 1);
    assert_eq!(profile.key_averages().0[0].calls as u64, depth);
    assert_eq!(
        view(&profile)["events"]["start"].as_array().unwrap().len() as u64,
        depth
    );
    // Names contain the last nested calls only.
    let nested = (1..=5_000_u64).map(|n| {
        let kind = match n % 2 {
            1 => call(1, (n, 0)),
            _ => execution(0, (n, 0)),
        };
        event(n, n - 1, 0, kind, "f", (n, 100_000 - n))
    });
    let profile = profile_of(nested.collect());
    assert_eq!(view(&profile)["events"]["start"].as_array().unwrap().len(), 5_000);
    let averages = profile.key_averages();
    let longest = averages.0.iter().map(|row| row.name.len()).max();
    assert!(longest.unwrap() < 1000, "{longest:?}");
    let first = "rpc_sync#f(a -> ?)";
    let second = format!("{first}#remote_op: {first}");
    assert!(averages.get(first).is_some() && averages.get(&second).is_some());
}

#[test]
fn thousands_of_steps_take_seconds() {
    let (count, workers) = (2000, 4);
    let mut events = Vec::new();
    for step in 0..count {
        let (start, number) = (step * 100, step * 100 + 1);
        events.push(event(
            number,
            0,
            0,
            Kind::Scope,
            "train step",
            (start, start + 100),
        ));
        for n in 1..100 {
            let worker = (n % workers) as u32;
            let times = (start + n, start + n + 1);
            events.push(event(number + n, number, worker, Kind::Operator, "op", times));
        }
    }
    let profile = profile_of(events);
    let begun = Instant::now();
    let steps = profile.steps("train step");
    // Visiting all events for each step would take minutes.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(steps.len() as u64, count);
    assert!(
        steps
            .iter()
            .all(|step| step.workers[1].busy == 25_000 && path(step).len() == 100)
    );
}

#[test]
fn workers_without_known_events_do_not_count_as_idle() {
    let (a, _): (Vec<_>, Vec<_>) = events().into_iter().partition(|event| event.worker == 0);
    let part = |events| Collected {
        events,
        ..Collected::default()
    };
    // `b` was lost, `c` took part without events.
    let parts = vec![
        (0, "a".to_owned(), part(a.clone())),
        (1, "b".to_owned(), part(Vec::new())),
        (2, "c".to_owned(), part(Vec::new())),
    ];
    let profile = Profile::new(0, parts, vec![("b".into(), "it is gone".into())]);
    let names = |profile: &Profile| {
        let step = profile.step().unwrap();
        let names = step.workers.iter().map(|usage| usage.worker.clone());
        (names.collect::<String>(), step.bubble_ratio())
    };
    assert_eq!(names(&profile), ("ac".to_owned(), 1.0 - 0.45 / 2.0));
    assert_eq!(
        profile.worker_name(1),
        "b",
        "it is named all the same: {:?}",
        profile.workers
    );
    // Workers that are only named do not count either.
    let mut alone = Profile::new(0, vec![(0, "a".to_owned(), part(a))], Vec::new());
    alone.add_named_workers([(0, "a".to_owned()), (1, "b".to_owned()), (2, "c".to_owned())]);
    let known: Vec<_> = alone
        .workers
        .iter()
        .map(|worker| (worker.rank, worker.known))
        .collect();
    assert_eq!(known, [(0, true), (1, false)]);
    assert_eq!(names(&alone).0, "a");
    let view = view(&profile);
    assert_eq!(view["workers"][1]["known"], false);
    assert_eq!(view["workers"][2]["known"], true);
    assert_eq!(view["workers"][0]["dropped"], 0);
}
