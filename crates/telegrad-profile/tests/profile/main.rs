//! Profiles of events made by hand.

mod averages;
mod files;
mod merging;
mod steps;
mod view;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use telegrad_profile::{Phases, Profile, SortBy};
use telegrad_trace::{Call, Collected, Event, Execution, Kind, Status};

/// Creates an event, with times in microseconds.
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
        is_shutdown: false,
    })
}

fn execution(caller: u32, (arrived, replied): (u64, u64)) -> Kind {
    Kind::Execution(Execution {
        caller,
        arrived: arrived * 1000,
        decoded: 0,
        returned: 0,
        replied: replied * 1000,
        is_gathering: false,
    })
}

/// A step of 100 µs on `a`, which computes for 20 µs and waits for `b` for 60 µs.
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
    Profile::new(0, parts, vec![("c".into(), "it was lost".into())])
}

#[test]
fn names_start_with_the_calls_on_whose_behalf_events_ran() {
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
    // Without 35 µs of execution, and 1 µs of `autograd::send`.
    assert_eq!(f.self_time, 24_000);
    // Without 55 µs of waiting, 2 µs of receiving gradients, and 1 µs of `autograd::send`. Open calls do not count.
    assert_eq!(averages.get("step").unwrap().self_time, 42_000);
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
    // One name is frequent and short, one rare and mostly short; their workers sort the other way round.
    let times = |name, worker, times: Vec<u64>| {
        let ends = times.into_iter().zip(1..);
        ends.map(move |(end, n)| {
            event(
                n + 1000 * u64::from(worker),
                0,
                worker,
                Kind::Scope,
                name,
                (0, end),
            )
        })
    };
    let often = times("often", 1, vec![3; 100]);
    let seldom = times("seldom", 0, vec![1, 1, 40]);
    let part = |rank, name: &str, events| {
        let collected = Collected {
            events,
            ..Collected::default()
        };
        (rank, name.to_owned(), collected)
    };
    let parts = vec![part(0, "z", seldom.collect()), part(1, "y", often.collect())];
    let both = Profile::new(0, parts, Vec::new()).key_averages();
    for (by, first) in [
        (SortBy::Name, "often"),
        (SortBy::Calls, "often"),
        (SortBy::Total, "often"),
        (SortBy::Mean, "seldom"),
        (SortBy::P50, "often"),
        (SortBy::P99, "seldom"),
        (SortBy::Worker, "often"),
    ] {
        assert_eq!(both.clone().sorted(by).0[0].name, first, "{by:?}");
    }
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
fn percentiles_are_exact() {
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

/// Returns the entries of the profile in Chrome's format.
fn chrome(profile: &Profile) -> Vec<Value> {
    let mut file = Vec::new();
    profile.write_chrome(&mut file).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    file["traceEvents"].as_array().unwrap().clone()
}

#[test]
fn chrome_files_have_rows_slices_and_arrows() {
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
    // One arrow for the call, one for the link. Perfetto identifies arrows by number, and binds each end to the slice that began
    // last in that row.
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
fn slices_of_a_row_nest_or_are_disjoint() {
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
        let open_at = |at: u64| {
            profile
                .events
                .iter()
                .filter(move |e| e.start <= at && at < e.end)
                .count()
        };
        let most = profile.events.iter().map(|event| open_at(event.start)).max();
        assert!(rows.len() <= most.unwrap(), "{} rows", rows.len());
    }
}

/// Returns the data of the page.
fn view(profile: &Profile) -> Value {
    serde_json::to_value(profile.view("p.json")).unwrap()
}

#[test]
fn invalid_events_are_repaired() {
    let scope = |span, parent, times| event(span, parent, 0, Kind::Scope, "x", times);
    let events = vec![
        scope(1, 1, (0, 10)),
        scope(2, 3, (1, 9)),
        scope(3, 2, (2, 8)),
        scope(4, 3, (3, 7)),
        // Ends before it begins, and has an unknown parent.
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
