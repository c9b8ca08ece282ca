//! The data of the page.

use super::steps::profile_of;
use super::*;

#[test]
fn the_page_gets_rows_and_traffic() {
    let view = view(&profile());
    assert_eq!(view["title"], "p.json");
    assert_eq!(view["workers"][0]["rows"], serde_json::json!(["main"]));
    for column in view["events"].as_object().unwrap().values() {
        assert_eq!(column.as_array().unwrap().len(), 8);
    }
    let traffic = serde_json::json!([
        { "from": 0, "to": 1, "calls": 2, "bytes": 200 },
        { "from": 1, "to": 0, "calls": 0, "bytes": 100 },
    ]);
    assert_eq!(view["traffic"], traffic);
    assert_eq!(view["missing"], serde_json::json!([["c", "it was lost"]]));
    assert_eq!(view["step"]["workers"][0]["waiting"], 55_000);
    assert_eq!(view["averages"].as_array().unwrap().len(), 8);
}

#[test]
fn the_page_data_contains_every_event() {
    let profile = profile();
    let view = view(&profile);
    let of = |column: &str, at: usize| &view["events"][column][at];
    let text = |column: &str, at: usize| {
        let number = of(column, at).as_u64().unwrap() as usize;
        view["strings"][number].as_str().unwrap()
    };
    let averages = profile.key_averages();
    let mut start = profile.events[0].start;
    let mut links: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (at, event) in profile.events.iter().enumerate() {
        start += of("start", at).as_u64().unwrap();
        assert_eq!((start, of("took", at)), (event.start, &event.duration().into()));
        assert_eq!(of("worker", at), event.worker);
        assert_eq!(text("kind", at), event.kind.name());
        assert_eq!(text("name", at), event.name);
        assert_eq!(text("status", at), event.status.to_string());
        assert_eq!(text("shapes", at), event.shapes.join(", "));
        assert!(averages.get(text("key", at)).is_some());
        assert_eq!(of("tensor_bytes", at), event.tensor_bytes);
        let parent = of("parent", at).as_i64().unwrap();
        let parent = usize::try_from(parent).map_or(0, |parent| profile.events[parent].span);
        assert_eq!(parent, event.parent);
        let peer = event.as_call().map(|call| call.callee);
        let peer = peer.or_else(|| event.as_execution().map(|execution| execution.caller));
        assert_eq!(of("peer", at).as_i64().unwrap(), peer.map_or(-1, i64::from));
        let bytes = event.as_call().map(|call| call.sent_bytes + call.received_bytes);
        assert_eq!(of("bytes", at), bytes.unwrap_or(0));
        let link = of("link", at).as_u64().unwrap();
        assert_eq!(link == 0, event.link == 0);
        links.entry(link).or_default().insert(event.link);
    }
    assert!(
        links.len() > 1 && links.values().all(|linked| linked.len() == 1),
        "{links:?}"
    );
    let f = averages.get("rpc_sync#f(a -> b)").unwrap().phases.unwrap();
    let expected = serde_json::json!({
        "event": [profile.events.iter().position(|event| event.as_call().is_some()).unwrap()],
        "encode": [f.encode], "wire": [f.wire], "queue": [f.queue], "execute": [f.execute], "reply": [f.reply],
    });
    assert_eq!(view["phases"], expected);
}

#[test]
fn parents_may_be_missing() {
    let scope = |span, parent| event(span, parent, 0, Kind::Scope, "x", (span, span + 1));
    let collected = Collected {
        events: vec![scope(1, 0), scope(2, 9), scope(3, 1)],
        ..Collected::default()
    };
    let profile = Profile::new(0, vec![(0, "a".into(), collected)], Vec::new());
    assert_eq!(view(&profile)["events"]["parent"], serde_json::json!([-1, -2, 0]));
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
    let view = super::view(&profile_of(events));
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
    // Two forward passes, and the step itself.
    let critical = serde_json::json!({ "event": [2, 3, 1], "took": [50_000, 40_000, 110_000] });
    assert_eq!(steps[0]["critical"], critical);
    assert_eq!(view["step"]["critical"]["event"][0], 0);
    assert_eq!(view["step"]["name"], "profile");
    // Gaps belong to no event.
    let unenclosed = profile_of(vec![
        event(1, 0, 0, Kind::Scope, "x", (0, 10)),
        event(2, 0, 0, Kind::Operator, "y", (20, 30)),
    ]);
    let view = super::view(&unenclosed);
    let critical = serde_json::json!({ "event": [0, -1, 1], "took": [10_000, 10_000, 10_000] });
    assert_eq!(view["step"]["critical"], critical);
    assert_eq!(view["steps"], serde_json::json!([]));
}

#[test]
fn the_page_gets_a_sample_of_many_steps() {
    let events = (1..=500).map(|n| event(n, 0, 0, Kind::Scope, "train step", (n * 10, n * 10 + 5)));
    let view = view(&profile_of(events.collect()));
    let steps = view["steps"].as_array().unwrap();
    assert_eq!((steps.len(), &view["all_steps"]), (200, &500.into()));
    // The steps have their numbers, from the first to the last.
    for (step, number) in [(&steps[0], 1), (&steps[199], 500)] {
        assert_eq!((&step["number"], &step["count"]), (&number.into(), &500.into()));
    }
}
