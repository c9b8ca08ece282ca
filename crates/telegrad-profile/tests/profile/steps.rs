//! Where the time of steps went, whatever the events say (S45).

use std::time::{Duration, Instant};

use telegrad_profile::Step;

use super::*;

/// A profile of workers `a`, `b` and so on.
pub(crate) fn of(events: Vec<Event>) -> Profile {
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

/// The path in microseconds, after it has been seen to that it is whole.
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
    let pieces = segments
        .iter()
        .map(|piece| (piece.span, piece.start / 1000, piece.end / 1000));
    pieces.collect()
}

#[test]
fn a_step_shows_who_waited_and_what_took_the_time() {
    let step = profile().step().unwrap();
    assert_eq!((step.name.as_str(), step.duration()), ("step", 100_000));
    let [a, b] = &step.workers[..] else {
        panic!("{step:?}")
    };
    assert_eq!((a.busy, a.waiting, a.idle), (45_000, 55_000, 0));
    assert_eq!((b.busy, b.waiting, b.idle), (35_000, 0, 65_000));
    assert!((step.bubble_ratio() - 0.6).abs() < 1e-9);
    assert_eq!(step.most_waiting().unwrap().worker, "a");
    // Without gaps, from the start to the end.
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
    // 4 before it got there (one microsecond of which was for noting a tensor), 10 on the way there and in the queue, 10 back.
    assert_eq!(of("rpc_sync#f(a -> b)"), Some(24_000));
    // Until its request had left: nobody waited for it.
    assert_eq!(of("rpc_sync#g(a -> b)"), Some(1_000));
    assert_eq!(critical.iter().map(|(_, _, time)| time).sum::<u64>(), 100_000);
    let text = step.to_string();
    assert!(
        text.contains("55.0 %") && text.contains("bubble: 60.0 %"),
        "{text}"
    );
}

#[test]
fn steps_are_found_by_name_and_not_within_each_other() {
    let profile = profile();
    assert_eq!(profile.steps("f").len(), 1, "the execution is within the call");
    assert!(profile.steps("nothing").is_empty());
    assert!(Profile::default().step().is_none());
}

#[test]
fn what_is_within_no_event_is_one_step_all_the_same() {
    let mut profile = profile();
    profile.events.retain(|event| event.span != 1);
    let step = profile.step().unwrap();
    assert_eq!(
        (step.name.as_str(), step.start, step.end),
        ("everything", 20_000, 95_000)
    );
    assert_eq!(step.critical_path.last().unwrap().end, 95_000);
    // Where nothing is recorded, that is so on no worker.
    let gaps: Vec<_> = step
        .critical_path
        .iter()
        .filter(|piece| piece.span == 0)
        .collect();
    assert!(!gaps.is_empty());
    for gap in gaps {
        assert_eq!((&*gap.worker, &*gap.name), ("", "nothing recorded"));
    }
    assert_eq!(view(&profile)["step"]["worker"], "");
}

#[test]
fn what_waits_without_a_thread_does_not_hold_up_others_on_it() {
    let profile = of(vec![
        event(1, 0, 0, execution(1, (0, 0)), "async", (10, 90)),
        event(2, 1, 0, Kind::Wait { call: 0 }, "wait in async", (20, 80)),
        event(3, 0, 0, execution(1, (0, 0)), "other", (30, 60)),
    ]);
    let step = profile.step().unwrap();
    let usage = &step.workers[0];
    assert_eq!((usage.busy, usage.waiting, usage.idle), (50_000, 30_000, 0));
}

#[test]
fn a_thread_that_waits_is_not_busy_with_what_the_wait_is_within() {
    let elsewhere = |event: Event| Event { thread: 7, ..event };
    let mut events = vec![
        event(1, 0, 0, Kind::Scope, "outer", (0, 100)),
        event(2, 1, 0, Kind::Scope, "inner", (10, 60)),
        event(3, 2, 0, Kind::Wait { call: 0 }, "wait", (20, 50)),
    ];
    let usage = |events: &[Event]| {
        let usage = of(events.to_vec()).step().unwrap().workers.remove(0);
        (usage.busy / 1000, usage.waiting / 1000)
    };
    assert_eq!(usage(&events), (70, 30));
    // What another thread does for it goes on meanwhile, and its waiting is not that of the first.
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
    // A thread that is within nothing, and waits, waits.
    assert_eq!(usage(&events[2..3]), (0, 30));
}

#[test]
fn the_path_goes_over_to_a_call_where_that_is_waited_for() {
    let profile = of(vec![
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
    // A step in which a call is waited for that was made before it has no more of it than was within the step.
    let collect = &profile.steps("collect")[0];
    assert_eq!(
        path(collect),
        [(4, 25, 45), (6, 45, 85), (4, 85, 90), (7, 90, 99)]
    );
}

#[test]
fn a_step_goes_on_where_a_path_from_elsewhere_begins() {
    // The call was made by a thread that is not within the step, while that went on.
    let profile = of(vec![
        event(1, 0, 0, Kind::Scope, "epoch", (0, 200)),
        event(2, 1, 0, Kind::Scope, "step", (100, 200)),
        event(3, 2, 0, Kind::Operator, "matmul", (110, 120)),
        event(4, 2, 0, Kind::Wait { call: 6 }, "wait for f", (150, 180)),
        event(5, 0, 0, Kind::Scope, "prefetch", (130, 140)),
        event(6, 5, 0, call(1, (136, 180)), "f", (135, 180)),
        event(7, 1, 0, call(1, (136, 190)), "g", (131, 190)),
        event(8, 2, 0, Kind::Wait { call: 7 }, "wait for g", (185, 190)),
    ]);
    // `g` was made by the epoch, of which the step is the part that counts.
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
fn whatever_events_say_steps_are_whole_and_found() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..300 {
        let count = random.u64(1..60);
        let events = (1..=count).map(|_| {
            // Numbers may be there twice or not at all, causes and waits lead anywhere, and times are far beyond any sense.
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
        let profile = of(events.collect());
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
fn a_wait_for_the_call_that_it_is_within_leads_nowhere() {
    let profile = of(vec![
        event(1, 0, 0, call(1, (0, 10)), "f", (0, 10)),
        event(2, 1, 1, execution(0, (0, 10)), "f", (0, 10)),
        event(3, 2, 1, Kind::Wait { call: 1 }, "wait for f", (0, 10)),
    ]);
    path(&profile.step().unwrap());
}

#[test]
fn events_may_be_nested_deeper_than_a_stack_is() {
    let depth = 100_000;
    let nested = (1..=depth).map(|n| event(n, n - 1, 0, Kind::Scope, "x", (n, 3 * depth - n)));
    let profile = of(nested.collect());
    let step = profile.step().unwrap();
    assert_eq!(path(&step).len() as u64, 2 * depth - 1);
    assert_eq!(profile.steps("x").len(), 1);
    assert_eq!(profile.key_averages().0[0].calls as u64, depth);
    assert_eq!(
        view(&profile)["events"]["start"].as_array().unwrap().len() as u64,
        depth
    );
    // Names have the calls that led to them, but not thousands.
    let nested = (1..=5_000_u64).map(|n| {
        let kind = match n % 2 {
            1 => call(1, (n, 0)),
            _ => execution(0, (n, 0)),
        };
        event(n, n - 1, 0, kind, "f", (n, 100_000 - n))
    });
    let profile = of(nested.collect());
    assert_eq!(view(&profile)["events"]["start"].as_array().unwrap().len(), 5_000);
    let averages = profile.key_averages();
    let longest = averages.0.iter().map(|row| row.name.len()).max();
    assert!(longest.unwrap() < 1000, "{longest:?}");
    let first = "rpc_sync#f(a -> ?)";
    let second = format!("{first}#remote_op: {first}");
    assert!(averages.get(first).is_some() && averages.get(&second).is_some());
}

#[test]
fn many_steps_are_found_in_the_time_that_one_takes() {
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
    let profile = of(events);
    let begun = Instant::now();
    let steps = profile.steps("train step");
    // Looking through all events for each would take minutes.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(steps.len() as u64, count);
    assert!(
        steps
            .iter()
            .all(|step| step.workers[1].busy == 25_000 && path(step).len() == 100)
    );
}

#[test]
fn workers_whose_events_are_not_known_do_not_count_as_idle() {
    let (a, _): (Vec<_>, Vec<_>) = events().into_iter().partition(|event| event.worker == 0);
    let part = |events| Collected {
        events,
        ..Collected::default()
    };
    // `b` was lost, `c` took part and had nothing to do.
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
        profile.worker(1),
        "b",
        "it is named all the same: {:?}",
        profile.workers
    );
    // Nor does one that is named and has never been asked.
    let mut alone = Profile::new(0, vec![(0, "a".to_owned(), part(a))], Vec::new());
    alone.know([(0, "a".to_owned()), (1, "b".to_owned()), (2, "c".to_owned())]);
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

#[test]
fn the_page_gets_the_steps_of_a_training_loop() {
    let mut events = vec![event(1, 0, 0, Kind::Scope, "profile", (0, 1000))];
    for n in 0..3 {
        let start = 100 + n * 300;
        let span = 10 + n * 10;
        events.extend([
            event(span, 1, 0, Kind::Scope, "train step", (start, start + 200)),
            event(span + 1, span, 0, Kind::Scope, "forward", (start, start + 50)),
            event(
                span + 2,
                span,
                0,
                Kind::Scope,
                "forward",
                (start + 50, start + 90),
            ),
            event(span + 3, 1, 0, Kind::Operator, "log", (start + 200, start + 210)),
        ]);
    }
    let view = super::view(&of(events));
    let steps = view["steps"].as_array().unwrap();
    let found: Vec<_> = steps
        .iter()
        .map(|step| {
            (
                &step["name"],
                &step["event"],
                &step["start"],
                &step["duration"],
                &step["worker"],
            )
        })
        .collect();
    let expected = [(1, 100_000), (5, 400_000), (9, 700_000)].map(|(number, start)| {
        [
            "train step".into(),
            number.into(),
            start.into(),
            200_000.into(),
            "a".into(),
        ]
    });
    let expected: Vec<_> = expected
        .iter()
        .map(|[a, b, c, d, e]: &[Value; 5]| (a, b, c, d, e))
        .collect();
    assert_eq!(found, expected);
    // Two forwards, and what the step did besides.
    let critical = serde_json::json!({ "event": [2, 3, 1], "took": [50_000, 40_000, 110_000] });
    assert_eq!(steps[0]["critical"], critical);
    assert_eq!(view["step"]["critical"]["event"][0], 0);
    assert_eq!(view["step"]["name"], "profile");
    // What is within no event is part of none.
    let apart = of(vec![
        event(1, 0, 0, Kind::Scope, "x", (0, 10)),
        event(2, 0, 0, Kind::Operator, "y", (20, 30)),
    ]);
    let view = super::view(&apart);
    let critical = serde_json::json!({ "event": [0, -1, 1], "took": [10_000, 10_000, 10_000] });
    assert_eq!(view["step"]["critical"], critical);
    assert_eq!(view["steps"], serde_json::json!([]));
}

#[test]
fn the_page_gets_no_more_steps_than_anybody_looks_at() {
    let events = (1..=500).map(|n| event(n, 0, 0, Kind::Scope, "train step", (n * 10, n * 10 + 5)));
    let view = view(&of(events.collect()));
    let steps = view["steps"].as_array().unwrap();
    assert_eq!((steps.len(), &view["all_steps"]), (200, &500.into()));
    // They say which they are, from the first to the last.
    for (step, number) in [(&steps[0], 1), (&steps[199], 500)] {
        assert_eq!((&step["number"], &step["count"]), (&number.into(), &500.into()));
    }
}
