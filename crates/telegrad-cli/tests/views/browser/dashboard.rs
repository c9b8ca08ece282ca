//! The page of `telegrad run --dashboard`.

use std::net::TcpListener;

use serde_json::{Value, json};

use super::super::*;
use super::*;

#[test]
fn the_dashboard_draws_the_workers() {
    let mut running = Running::start(&["--dashboard"]);
    let address = running.dashboard();
    until(|| {
        let (_, status) = get(&address, "/status.json");
        let has_both = status.contains("\"client\"") && status.contains("\"server\"");
        has_both.then_some(()).ok_or(status)
    });
    let Some((page, console)) = loaded(&format!("http://{address}/")) else {
        return;
    };
    assert_eq!(console, "");
    for shown in [
        "data-testid=\"worker-0\"",
        "data-testid=\"worker-1\"",
        ">client<",
        ">server<",
    ] {
        let rows = between(&page, "id=\"workers\"", "</table>");
        assert!(rows.contains(shown), "no {shown} in\n{rows}");
    }
    let chart = between(&page, "data-testid=\"chart-inflight\"", ">");
    assert!(number(chart, "points") > 1.0, "{chart}");
}

/// Serves the page of a dashboard with a generated status per request, until the process ends.
fn serve_with_status(page: String, status: impl Fn(u64) -> Value + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut answers = 0;
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).unwrap();
            let (kind, body) = if request.contains("/status.json") {
                answers += 1;
                ("application/json", status(answers - 1).to_string())
            } else {
                ("text/html", page.clone())
            };
            let length = body.len();
            // A browser may close the connection early.
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    address
}

/// Loads a dashboard with generated statuses and a script; returns the document.
fn dashboard_shown(script: &str, status: impl Fn(u64) -> Value + Send + 'static) -> Option<String> {
    let mut running = Running::start(&["--dashboard"]);
    let (_, page) = get(&running.dashboard(), "/");
    let address = serve_with_status(with_script(&page, script), status);
    let (page, console) = loaded(&format!("http://{address}/"))?;
    assert_eq!(console, "");
    Some(page)
}

/// The row of a worker.
fn row_of(page: &str, rank: u64) -> &str {
    between(page, &format!("data-testid=\"worker-{rank}\""), "</tr>")
}

/// The status of a world whose workers each call the next. Two of them are in a cycle, and one only waits.
fn example_world(size: u64) -> Value {
    let worker = |rank: u64| {
        let next = (rank + 1) % size;
        json!({
            "rank": rank, "name": format!("worker{rank}"), "process": 1000 + rank, "size": size, "time": 1e9,
            "counters": { "calls_made": rank, "calls_served": 0, "bytes_in": 0, "bytes_out": 0, "calls_out": 1, "calls_in": 1 },
            "latency": [{ "to": next, "counts": [[0.001, 3]] }],
        })
    };
    let in_flight = |rank: u64| {
        json!({
            "caller": rank, "callee": (rank + 1) % size, "call": 7, "function": "a::b", "age": 2.5, "within": null, "makes": false,
            "state": "runs",
        })
    };
    let call = |caller: u64, on: u64, state: &str, is_stuck: bool| json!({ "function": "a::b", "caller": caller, "on": on, "age": 9.0, "state": state, "is_stuck": is_stuck });
    let round = "`worker0` has waited for 9.0 s\n  for `a::b` on `worker1`, called 9.0 s ago, which waits\n    \
                 for `a::b` on `worker0`, called 8.0 s ago, which has not begun: it waits for a thread";
    // Passes a worker twice and ends with a call that has not begun, like a cycle.
    let queued = "`worker2` has waited for 12.0 s\n  for `a::b` on `worker1`, called 12.0 s ago, which waits\n    \
                  for `a::b` on `worker1`, called 12.0 s ago, which has not begun";
    json!({
        "id": "1f", "time": 1e9, "world": (0..size).map(worker).collect::<Vec<_>>(), "silent": [], "more_chains": 17, "cycles": [],
        "calls": (0..size).map(in_flight).collect::<Vec<_>>(), "all_calls": 1234,
        "pairs": (0..size).map(|rank| json!([rank, (rank + 1) % size, 1, 2.5])).collect::<Vec<_>>(),
        "barriers": ["`worker0` has waited at a barrier: `worker1` has not arrived"],
        "suspects": ["`worker2` waits for `a::b` on `worker1`"],
        "chains": [
            { "from": 0, "age": 9.0, "is_cycle": true, "text": round,
              "calls": [call(2, 1, "waits", false), call(1, 2, "has not begun", true)] },
            { "from": 2, "age": 12.5, "is_cycle": false, "text": queued,
              "calls": [call(2, 1, "waits", false), call(1, 1, "has not begun", false)] },
        ],
    })
}

#[test]
fn a_dashboard_of_many_workers_is_condensed() {
    let filter = "const field = document.getElementById('worker-filter'); field.value = 'worker6'; \
                  field.dispatchEvent(new Event('input')); document.querySelector('summary').click();";
    let shown = |size| dashboard_shown(filter, move |_| example_world(size));
    let Some(page) = shown(64) else { return };
    let chart = between(&page, "data-testid=\"chart-inflight\"", ">");
    assert!(
        chart.contains("data-drawn=\"6\"") && chart.contains("data-others=\"58\""),
        "{chart}"
    );
    assert!(page.contains("58 others"));
    let map = between(&page, "id=\"map\"", ">");
    assert!(
        map.contains("data-cells=\"64\"") && map.contains("data-workers=\"64\""),
        "{map}"
    );
    // The filter leaves 6 and 60 to 63.
    let workers = between(&page, "id=\"workers\"", "</table>");
    assert_eq!(workers.matches("data-testid=\"worker-").count(), 5);
    assert!(workers.contains("data-testid=\"worker-63\"") && page.contains("5 of 64"));

    // Few workers have a line each, and a table of pairs.
    let page = shown(3).unwrap();
    let chart = between(&page, "data-testid=\"chart-inflight\"", ">");
    assert!(
        chart.contains("data-drawn=\"3\"") && chart.contains("data-others=\"0\""),
        "{chart}"
    );
    let matrix = between(&page, "id=\"matrix\"", "</table>");
    assert!(
        matrix.contains("<b>1</b>") && matrix.contains("2.50&nbsp;s"),
        "{matrix}"
    );
    assert_eq!(
        matrix.matches("class=\"stuck\"").count(),
        1,
        "only the pair of the cycle: {matrix}"
    );
    assert_eq!(between(&page, "id=\"calls-note\">", "<"), "3 of 1\u{202f}234");
}

#[test]
fn only_cycles_are_deadlocks() {
    let open = "document.querySelector('summary').click();";
    let Some(page) = dashboard_shown(open, |_| example_world(3)) else {
        return;
    };
    let chains = between(&page, "id=\"chains\"", "</ol>");
    let mut chains = chains.split("<li").skip(1);
    // The cycle comes first, and the script opens it.
    let first = chains.next().unwrap();
    for part in [
        "class=\"round\"",
        "⟳ deadlock",
        "open=\"\"",
        "called 8.0 s ago",
        "worker0<i> → </i>worker1<i> → </i>worker2",
    ] {
        assert!(first.contains(part), "no {part} in {first}");
    }
    let second = chains.next().unwrap();
    assert!(
        second.contains("has not begun") && second.contains("12.5&nbsp;s"),
        "{second}"
    );
    assert!(
        !second.contains("round") && !second.contains("deadlock"),
        "{second}"
    );
    assert!(chains.next().is_none());
    let note = between(&page, "id=\"chains-note\">", "<");
    assert_eq!(note, "2 of 19: cycles first, then the longest waits");
    let notes = between(&page, "id=\"notes\"", "</ul>");
    for text in [
        "<code>worker1</code> has not arrived",
        "Possible cycle: <code>worker2</code> waits",
    ] {
        assert!(notes.contains(text), "no {text} in {notes}");
    }
    assert!(
        between(&page, "id=\"cycles\"", ">").contains("hidden"),
        "the status has no cycle"
    );
}

#[test]
fn a_dashboard_draws_rates_and_latencies_over_time() {
    // Between answers: 500 calls in two seconds of the worker's own clock. Of the calls that ended, 100 took a millisecond, 99 took two,
    // and one took half a second.
    let status = |answer: u64| {
        let counters = |made: u64, queued: u64, references: u64, contexts: u64| {
            json!({
                "calls_made": made * answer, "calls_served": 0, "bytes_in": 0, "bytes_out": 1_000_000 * answer, "calls_out": 1 + answer,
                "calls_in": 0, "queued": queued, "running": 1, "blocked": 0, "threads": 4, "idle_threads": 3,
                "references_owned": references, "references_held": references + 1, "contexts": contexts,
            })
        };
        // Calls before the first answer must not count.
        let fast =
            json!({ "to": 1, "counts": [[0.001, 100 * answer], [0.002, 99 * answer], [10.0, 1_000_000]] });
        let slow = json!({ "to": 2, "counts": [[0.5, 1 + answer]] });
        let other = json!({ "to": 0, "counts": [[0.008, 100 * answer]] });
        let time = 1e9 + 2.0 * answer as f64;
        json!({
            "time": 1e9 + 4.0 * answer as f64, "silent": [], "chains": [], "more_chains": 0, "cycles": [],
            "calls": [
                { "caller": 0, "callee": 1, "call": 5, "function": "making", "age": 2.5, "within": null, "makes": true, "state": "has not begun" },
                { "caller": 0, "callee": 1, "call": 4, "function": "asked", "age": 1.5, "within": null, "makes": false, "state": "runs" },
            ],
            "world": [
                { "rank": 0, "name": "a", "process": 1, "size": 3, "time": time, "counters": counters(500, 17, 123, 5), "latency": [fast, slow] },
                { "rank": 1, "name": "b", "process": 2, "size": 3, "time": time, "counters": counters(0, 0, 7, 0), "latency": [other] },
                // A worker whose status is that of the first request.
                { "rank": 2, "name": "c", "process": 3, "size": 3, "time": 1e9 + f64::from(answer > 0), "latency": [],
                  "counters": { "calls_made": if answer > 0 { 40 } else { 0 }, "calls_served": 0, "bytes_in": 0, "bytes_out": 0 } },
            ],
        })
    };
    let calls = "[data-testid=chart-calls] canvas";
    let script = [
        count_colours(calls, "lines"),
        count_colours("[data-testid=worker-0] canvas", "small"),
    ];
    let Some(page) = dashboard_shown(&script.concat(), status) else {
        return;
    };
    // At least five requests; a rate needs two answers.
    assert!(number(&page, "polls") >= 5.0);
    let chart = between(&page, "data-testid=\"chart-calls\"", ">");
    assert!(number(chart, "points") >= 3.0 * 4.0, "{chart}");
    assert!(number(&page, "lines") > 50.0, "{} pixels", number(&page, "lines"));
    assert!(number(&page, "small") > 10.0, "{} pixels", number(&page, "small"));

    let row = row_of(&page, 0);
    for (shown, name) in [
        (">250/s<", "calls made"),
        (">500&nbsp;kB/s<", "bytes sent"),
        (">1.00&nbsp;ms<", "the median of all calls"),
        (">2.00&nbsp;ms<", "the 99th percentile"),
        (">17<", "queued"),
        (">1 / 0<", "running and blocked"),
        (">123 / 124<", "references"),
        (">5<", "contexts"),
    ] {
        assert!(row.contains(shown), "{name}: no {shown} in {row}");
    }
    assert!(row_of(&page, 1).contains(">7 / 8<") && row_of(&page, 1).contains(">8.00&nbsp;ms<"));
    assert!(
        row_of(&page, 2).contains(">40/s<"),
        "the last rate: {}",
        row_of(&page, 2)
    );
    // Of the 300 calls of all workers.
    let total = between(&page, "data-testid=\"total-latency\">", "<");
    assert_eq!(total, "2.00&nbsp;ms / 8.00&nbsp;ms");

    let calls = between(&page, "id=\"calls\"", "</table>");
    let calls: Vec<&str> = between(calls, "<tbody>", "</tbody>")
        .split("<tr")
        .skip(1)
        .collect();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(
        calls[0].contains("making") && calls[0].contains("a → b") && calls[0].contains("has not begun"),
        "{}",
        calls[0]
    );
    assert!(
        calls[1].contains("asked") && calls[1].contains(">runs<"),
        "{}",
        calls[1]
    );
}

#[test]
fn the_last_answer_is_shown_while_the_next_one_is_slow() {
    let hang = "window.fetch = () => new Promise(() => {});";
    let Some(page) = dashboard_shown(hang, |_| example_world(3)) else {
        return;
    };
    let state = between(&page, "<span class=\"state late\"", "</span>");
    assert!(state.contains("Slow answer"), "{page}");
    assert!(
        row_of(&page, 2).contains("worker2") && !page.contains("<body class=\"stale\""),
        "the last answer is not shown"
    );
}

#[test]
fn a_dashboard_tolerates_incomplete_answers() {
    let status = |_| {
        json!({
            "world": [{ "rank": 0 }, { "rank": 1, "latency": [{ "to": 0 }, null] }, {}, null], "calls": [{}, null], "pairs": [[0, 1], null],
            "barriers": [null], "suspects": [7],
            "chains": ["some text", null, {}, { "from": 0 }, { "from": 1, "calls": [{ "on": 0 }, {}] }], "cycles": ["`a` waits"],
        })
    };
    let open = "document.querySelectorAll('summary, .name').forEach((one) => one.click());";
    let Some(page) = dashboard_shown(open, status) else {
        return;
    };
    assert!(row_of(&page, 0).contains("rank 0") && row_of(&page, 1).contains("rank 1"));
    let chains = between(&page, "id=\"chains\"", "</ol>");
    assert_eq!(chains.matches("<li").count(), 2, "{chains}");
    assert!(between(&page, "id=\"cycles\"", "</section>").contains("<code>a</code> waits"));
}

#[test]
fn another_world_has_a_history_of_its_own() {
    // The same ranks in the same process, with counters that continue those of the other world.
    let status = |answer: u64| {
        let mut status = example_world(3);
        status["id"] = answer.to_string().into();
        status["time"] = (1e9 + answer as f64).into();
        for worker in status["world"].as_array_mut().unwrap() {
            worker["time"] = (5 + answer).into();
            worker["counters"]["calls_made"] = (1000 * answer).into();
        }
        status
    };
    let Some(page) = dashboard_shown("", status) else {
        return;
    };
    assert!(number(&page, "polls") >= 2.0);
    let row = row_of(&page, 0);
    assert!(!row.contains("k/s") && !row.contains("000/s"), "{row}");
}
