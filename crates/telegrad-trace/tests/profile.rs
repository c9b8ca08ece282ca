//! What can be seen in a profile, of events that are made by hand.

use std::collections::BTreeMap;

use serde_json::Value;
use telegrad_trace::{Call, Collected, Event, Execution, Kind, Profile, SortBy, Status, read, read_worlds};

/// An event on a worker, from one microsecond to another.
fn event(
    span: u64,
    parent: u64,
    worker: u32,
    kind: Kind,
    name: &'static str,
    (start, end): (u64, u64),
) -> Event {
    Event {
        span,
        parent,
        name: name.into(),
        kind,
        worker,
        thread: 100 + u64::from(worker),
        start: start * 1000,
        end: end * 1000,
        status: Status::Ok,
        shapes: Vec::new(),
        tensor_bytes: 0,
        link: 0,
    }
}

fn call(callee: u32, (sent, received): (u64, u64)) -> Kind {
    Kind::Call(Call {
        verb: "rpc_sync".into(),
        callee,
        sent: sent * 1000,
        received: received * 1000,
        sent_bytes: 100,
        received_bytes: 50,
    })
}

fn execution(caller: u32, (arrived, replied): (u64, u64)) -> Kind {
    Kind::Execution(Execution {
        caller,
        arrived: arrived * 1000,
        replied: replied * 1000,
    })
}

/// A step of 100 µs on `a`, of which it computes for 20, and waits for `b` for 60.
fn events() -> Vec<Event> {
    let mut failed = event(6, 1, 0, call(1, (91, 0)), "g", (90, 95));
    failed.status = Status::TimedOut;
    let mut sent = event(7, 2, 0, Kind::Autograd, "autograd::send", (21, 22));
    let mut received = event(8, 1, 0, Kind::Autograd, "autograd::receive gradient", (84, 86));
    (sent.link, received.link) = (77, 77);
    vec![
        event(1, 0, 0, Kind::Scope, "step", (0, 100)),
        event(2, 1, 0, call(1, (25, 80)), "f", (20, 80)),
        event(3, 1, 0, Kind::Wait { call: 2 }, "wait for f", (25, 80)),
        event(4, 2, 1, execution(0, (30, 72)), "f", (35, 70)),
        event(5, 4, 1, Kind::Operator, "matmul", (40, 60)),
        failed,
        sent,
        received,
    ]
}

fn profile() -> Profile {
    let (a, b): (Vec<_>, Vec<_>) = events().into_iter().partition(|event| event.worker == 0);
    let part = |events, thread: u64| Collected {
        events,
        threads: vec![(thread, "main".to_owned())],
        ..Collected::default()
    };
    let parts = vec![
        (0, "a".to_owned(), part(a, 100)),
        (1, "b".to_owned(), part(b, 101)),
    ];
    Profile::new(0, parts, vec![("c".into(), "it is gone".into())])
}

#[test]
fn averages_are_named_after_the_calls_that_they_were_for() {
    let averages = profile().key_averages();
    let names: Vec<_> = averages.0.iter().map(|row| &*row.name).collect();
    assert_eq!(
        names,
        [
            "step",
            "rpc_sync#f(a -> b)",
            "wait for f",
            "rpc_sync#f(a -> b)#remote_op: f",
            "rpc_sync#f(a -> b)#remote_op: matmul",
            "rpc_sync#g(a -> b)",
            "autograd::receive gradient",
            "autograd::send",
        ]
    );
    let f = averages.get("rpc_sync#f(a -> b)").unwrap();
    assert_eq!(
        (f.calls, f.failed, f.total, f.mean, f.p99, f.bytes),
        (1, 0, 60_000, 60_000, 60_000, 150)
    );
    // 35 µs of it were the execution, and 1 µs in which a tensor was noted.
    assert_eq!(f.self_time, 24_000);
    let phases = f.phases.unwrap();
    let parts = [
        phases.encode,
        phases.wire,
        phases.queue,
        phases.execute,
        phases.reply,
    ];
    assert_eq!(parts, [5_000, 5_000, 5_000, 35_000, 10_000]);
    assert_eq!(averages.get("rpc_sync#g(a -> b)").unwrap().failed, 1);
    assert_eq!(
        averages.get("rpc_sync#f(a -> b)#remote_op: f").unwrap().worker,
        "b"
    );
}

#[test]
fn averages_can_be_sorted_and_printed() {
    let averages = profile().key_averages();
    let first = |by: SortBy| averages.clone().sorted(by).0[0].name.clone();
    assert_eq!(first(SortBy::Name), "autograd::receive gradient");
    assert_eq!(first(SortBy::SelfTime), "wait for f");
    assert_eq!(first(SortBy::Bytes), "rpc_sync#f(a -> b)");
    assert_eq!(first(SortBy::P50), "step");
    let text = averages.to_string();
    for shown in [
        "p99",
        "#remote_op: matmul",
        "60.0 µs",
        "150 B",
        "queue",
        "35.0 µs",
    ] {
        assert!(text.contains(shown), "no {shown} in\n{text}");
    }
}

#[test]
fn percentiles_are_those_of_the_times() {
    let events = (1..=200)
        .map(|n| event(n, 0, 0, Kind::Scope, "x", (0, n)))
        .collect();
    let collected = Collected {
        events,
        ..Collected::default()
    };
    let profile = Profile::new(0, vec![(0, "a".into(), collected)], Vec::new());
    let averages = profile.key_averages();
    let row = &averages.0[0];
    assert_eq!((row.calls, row.p50, row.p99), (200, 100_000, 198_000));
    assert_eq!(row.mean, 100_500);
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
    assert_eq!(of("rpc_sync#g(a -> b)"), Some(5_000));
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
}

/// The trace as a viewer reads it.
fn chrome(profile: &Profile) -> Vec<Value> {
    let mut file = Vec::new();
    profile.write_chrome(&mut file).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    file["traceEvents"].as_array().unwrap().clone()
}

#[test]
fn a_trace_in_chromes_format_has_rows_slices_and_arrows() {
    let entries = chrome(&profile());
    let of = |ph: &str| {
        entries
            .iter()
            .filter(|entry| entry["ph"] == *ph)
            .collect::<Vec<_>>()
    };
    let slices = of("X");
    assert_eq!(slices.len(), 8);
    let f = slices.iter().find(|slice| slice["cat"] == "execution").unwrap();
    assert_eq!(
        (&f["pid"], &f["ts"], &f["dur"]),
        (&Value::from(1), &Value::from(35.0), &Value::from(35.0))
    );
    let names: Vec<_> = of("M")
        .iter()
        .map(|entry| entry["args"]["name"].clone())
        .collect();
    assert!(
        names.contains(&"a".into()) && names.contains(&"main".into()),
        "{names:?}"
    );
    // One arrow for the call, one for what was linked. Perfetto knows them by numbers, and takes an end of one to be at the slice
    // that began last in that row.
    let (starts, ends) = (of("s"), of("f"));
    let at = |end: &Value| {
        let began = |slice: &&&Value| slice["ts"].as_f64() <= end["ts"].as_f64();
        let mut in_row = slices
            .iter()
            .filter(|slice| slice["pid"] == end["pid"] && slice["tid"] == end["tid"]);
        let last = in_row.rfind(began);
        last.unwrap_or_else(|| panic!("{end} is on no slice"))["name"].clone()
    };
    let arrows: Vec<_> = starts
        .iter()
        .zip(&ends)
        .map(|(start, end)| {
            assert_eq!((&start["id"], &start["name"]), (&end["id"], &end["name"]));
            assert!(start["id"].is_u64() && end["bp"] == "e", "{start} {end}");
            (at(start), at(end))
        })
        .collect();
    assert_eq!(
        arrows,
        [
            ("rpc_sync f".into(), "f".into()),
            ("autograd::send".into(), "autograd::receive gradient".into())
        ]
    );
    assert_eq!(ends.len(), 2);
    assert_ne!(starts[0]["id"], starts[1]["id"]);
}

#[test]
fn slices_of_one_row_never_overlap_without_one_being_within_the_other() {
    let mut random = fastrand::Rng::with_seed(3);
    for (count, longest) in [(500, 200), (3000, 50), (3000, 5000)] {
        let events = (1..=count).map(|span| {
            let parent = random.u64(0..span);
            let start = random.u64(0..1000);
            let end = start + random.u64(1..longest);
            event(span, parent, 0, call(1, (start, 0)), "f", (start, end))
        });
        let collected = Collected {
            events: events.collect(),
            ..Collected::default()
        };
        let profile = Profile::new(0, vec![(0, "a".into(), collected)], Vec::new());
        let mut rows: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for slice in chrome(&profile).iter().filter(|entry| entry["ph"] == "X") {
            let time = |name: &str| slice["args"][name].as_u64().unwrap();
            let row = rows.entry(slice["tid"].as_u64().unwrap()).or_default();
            row.push((time("start"), time("end")));
        }
        assert_eq!(rows.values().map(Vec::len).sum::<usize>() as u64, count);
        for row in rows.values() {
            for a in row {
                for b in row {
                    let apart = a.1 <= b.0 || b.1 <= a.0;
                    let within = a.0 <= b.0 && b.1 <= a.1 || b.0 <= a.0 && a.1 <= b.1;
                    assert!(apart || within, "{a:?} {b:?}");
                }
            }
        }
        let going_on = |at: u64| {
            profile
                .events
                .iter()
                .filter(move |e| e.start <= at && at < e.end)
                .count()
        };
        let most = profile.events.iter().map(|event| going_on(event.start)).max();
        assert!(rows.len() <= most.unwrap(), "{} rows", rows.len());
    }
}

#[test]
fn files_of_both_kinds_are_read_back_as_they_were() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().to_owned();
    let profile = profile();
    let (json, lines) = (folder.join("p.json"), folder.join("p.jsonl"));
    profile
        .write_chrome(std::fs::File::create(&json).unwrap())
        .unwrap();
    profile
        .write_lines(std::fs::File::create(&lines).unwrap())
        .unwrap();
    assert_eq!(read(std::slice::from_ref(&json)).unwrap(), profile);
    let from_lines = read(std::slice::from_ref(&lines)).unwrap();
    assert_eq!(
        (&from_lines.events, &from_lines.workers),
        (&profile.events, &profile.workers)
    );
    // What is in both is there once.
    let both = read(&[json, lines]).unwrap();
    assert_eq!(both.events, profile.events);
    assert_eq!(both.workers, profile.workers);
}

#[test]
fn what_is_no_recording_is_refused_with_the_reason() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().to_owned();
    let file = folder.join("x.json");
    for (content, why) in [
        ("", "it is empty"),
        ("hello", "line 1 makes no sense"),
        (
            "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[]}",
            "not written by telegrad",
        ),
        ("{\"displayTimeUnit\":", "EOF"),
    ] {
        std::fs::write(&file, content).unwrap();
        let error = read(std::slice::from_ref(&file)).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("x.json"), "{error}");
    }
    let error = read(&[folder.join("nobody")]).unwrap_err().to_string();
    assert!(error.starts_with("cannot read "), "{error}");
    let error = read(std::slice::from_ref(&folder)).unwrap_err().to_string();
    assert!(error.contains("no worker has written"), "{error}");
}

#[test]
fn a_worker_that_was_killed_leaves_what_it_had_written() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().to_owned();
    let mut text = String::from("{\"rank\":0,\"of\":\"a\",\"world\":7}\n");
    for event in events().iter().filter(|event| event.worker == 0) {
        text += &(serde_json::to_string(event).unwrap() + "\n");
    }
    let whole = text.len();
    text += "{\"span\":99,\"parent\":0,\"na";
    std::fs::write(folder.join("0-a-1.jsonl"), &text).unwrap();
    let profile = read(std::slice::from_ref(&folder)).unwrap();
    assert_eq!(profile.events.len(), 6);
    // In the middle it would be another matter.
    text.insert(whole - 1, '?');
    std::fs::write(folder.join("0-a-1.jsonl"), &text).unwrap();
    assert!(read(std::slice::from_ref(&folder)).is_err());
}

#[test]
fn the_page_gets_rows_and_traffic() {
    let view = profile().view("p.json");
    assert_eq!(view["title"], "p.json");
    assert_eq!(view["workers"][0]["rows"], serde_json::json!(["main"]));
    assert_eq!(view["events"].as_array().unwrap().len(), 8);
    let traffic = serde_json::json!([
        { "from": 0, "to": 1, "calls": 2, "bytes": 200 },
        { "from": 1, "to": 0, "calls": 0, "bytes": 100 },
    ]);
    assert_eq!(view["traffic"], traffic);
    assert_eq!(view["missing"], serde_json::json!([["c", "it is gone"]]));
    assert_eq!(view["step"]["workers"][0]["waiting"], 55.0);
    assert_eq!(view["averages"].as_array().unwrap().len(), 8);
}

#[test]
fn events_that_make_no_sense_do_no_harm() {
    let scope = |span, parent, times| event(span, parent, 0, Kind::Scope, "x", times);
    let events = vec![
        scope(1, 1, (0, 10)),
        scope(2, 3, (1, 9)),
        scope(3, 2, (2, 8)),
        scope(4, 3, (3, 7)),
        // It ends before it begins, and is under something that is not there.
        scope(5, 99, (8, 4)),
    ];
    let collected = Collected {
        events,
        ..Collected::default()
    };
    let profile = Profile::new(0, vec![(0, "a".into(), collected)], Vec::new());
    assert_eq!(profile.key_averages().0[0].calls, 5);
    assert_eq!(profile.events.iter().map(Event::duration).min(), Some(0));
    assert!(profile.step().is_some() && !profile.steps("x").is_empty());
    assert_eq!(
        chrome(&profile).iter().filter(|entry| entry["ph"] == "X").count(),
        5
    );
}

#[test]
fn recordings_of_several_worlds_are_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let line = serde_json::to_string(&events()[0]).unwrap();
    for world in [7, 8] {
        let text = format!("{{\"rank\":0,\"of\":\"a\",\"world\":{world}}}\n{line}\n");
        std::fs::write(folder.path().join(format!("0-a-{world}.jsonl")), text).unwrap();
    }
    let paths = [folder.path().to_owned()];
    let worlds = read_worlds(&paths).unwrap();
    assert_eq!(
        worlds.iter().map(|world| world.events.len()).collect::<Vec<_>>(),
        [1, 1]
    );
    let error = read(&paths).unwrap_err().to_string();
    assert!(error.contains("it has 2 worlds"), "{error}");
}
