//! The pages in a browser: that they draw what they are given, without an error.
//!
//! Chromium is needed; where there is none, these tests have nothing to say. `.ci/run` installs it. The variable
//! `TELEGRAD_CHROMIUM` says which program it is, and that there must be one.

use std::ffi::OsString;
use std::fs::File;
use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};

use super::*;

/// The program, if there is one.
fn browser() -> Option<OsString> {
    let told = std::env::var_os("TELEGRAD_CHROMIUM");
    told.or_else(|| {
        let usual = ["chromium", "chromium-browser", "google-chrome"];
        let found = usual
            .into_iter()
            .find(|name| Command::new(name).arg("--version").output().is_ok());
        found.map(OsString::from)
    })
}

/// A process that does not go on after the test.
pub(super) struct Ended(pub(super) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Loads a page, lets it run for seven seconds of its own clock, and gives what it has become and what it has said to its
/// console. Nothing without a browser.
#[track_caller]
fn loaded(url: &str) -> Option<(String, String)> {
    let browser = browser()?;
    let folder = tempfile::tempdir().unwrap();
    let [page, said] = ["page", "said"].map(|name| folder.path().join(name));
    let process = Command::new(&browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ])
        .args(["--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync"])
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        ))
        .args(["--enable-logging=stderr", "--window-size=1400,900"])
        .args(["--virtual-time-budget=7000", "--dump-dom", url])
        .stdout(File::create(&page).unwrap())
        .stderr(File::create(&said).unwrap())
        .spawn();
    let mut process = Ended(process.unwrap_or_else(|error| panic!("{browser:?}: {error}")));
    let read = |path| text(&std::fs::read(path).unwrap());
    until(|| {
        let ended = process.0.try_wait().unwrap();
        ended.ok_or_else(|| format!("{url} is not shown: {}", read(&said)))
    });
    let (page, said) = (read(&page), read(&said));
    assert!(page.contains("</html>"), "there is no page: {said}");
    let console = said.lines().filter(|line| line.contains("CONSOLE"));
    Some((page, console.collect::<Vec<_>>().join("\n")))
}

/// What is between the first of one text and the next of another.
fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let rest = page.split_once(from).map_or("", |(_, rest)| rest);
    rest.split_once(to).map_or("", |(found, _)| found)
}

/// A number that a page has as an attribute.
#[track_caller]
fn number(page: &str, attribute: &str) -> f64 {
    let value = between(page, &format!("data-{attribute}=\""), "\"");
    value
        .parse()
        .unwrap_or_else(|_| panic!("data-{attribute} is {value:?}"))
}

/// The page, with something that it does a while after it has begun. It paints by the clock: the browser has one of its own that
/// is ahead of its screen.
fn with_script(page: &str, script: &str) -> String {
    let clock = "<script>window.requestAnimationFrame = (paint) => setTimeout(paint, 16);</script><style>";
    let script = format!("<script>setTimeout(() => {{ {script} }}, 2500);</script></body>");
    page.replacen("<style>", clock, 1).replacen("</body>", &script, 1)
}

/// Counts the pixels of a canvas that are in a colour, and not grey as frames and text are.
fn count_colours(canvas: &str, attribute: &str) -> String {
    format!(
        "{{ const canvas = document.querySelector('{canvas}'), pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data; \
         let count = 0; \
         for (let at = 0; at < pixels.length; at += 4) {{ \
             const [red, green, blue, alpha] = pixels.slice(at, at + 4); \
             if (alpha > 99 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) count++; \
         }} \
         document.body.dataset.{attribute} = count; }}"
    )
}

/// The page of a recording that is at this path, after a script, on one of its tabs.
fn shown(path: &Path, tab: &str, script: &str) -> Option<String> {
    let page = with_script(&std::fs::read_to_string(path).unwrap(), script);
    let changed = path.with_extension("changed.html");
    std::fs::write(&changed, page).unwrap();
    let (page, console) = loaded(&format!("file://{}#tab={tab}", changed.display()))?;
    assert_eq!(console, "", "on {tab}");
    assert!(page.contains("data-ready=\"true\""), "{tab} is not drawn");
    Some(page)
}

#[test]
fn the_page_of_a_recording_draws_everything() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    record(folder, "t.json");
    printed(&mut telegrad(
        folder,
        &["trace", "view", "t.json", "-o", "page.html"],
    ));
    let panels = ["timeline", "table", "traffic", "critical"];
    for tab in panels {
        let count = count_colours("#canvas", "pixels");
        let Some(page) = shown(&folder.join("page.html"), tab, &count) else {
            return;
        };
        for panel in panels {
            let attributes = between(&page, &format!("id=\"panel-{panel}\""), ">");
            assert_eq!(!attributes.contains("hidden"), tab == panel, "{panel} on {tab}");
        }
        if tab != "timeline" {
            continue;
        }
        assert!(number(&page, "events") > 20.0 && number(&page, "rows") >= 2.0);
        assert!(
            number(&page, "pixels") > 1000.0,
            "{} pixels",
            number(&page, "pixels")
        );
        let labels = between(&page, "id=\"worker-labels\">", "</div>");
        assert!(
            labels.contains(">client<") && labels.contains(">server<"),
            "{labels}"
        );

        let table = between(&page, "id=\"averages\"", "</table>");
        let rows = between(table, "<tbody>", "</tbody>");
        for shown in [">DistributedOptimizer::step<", ">backward<", ">server<"] {
            assert!(rows.contains(shown), "no {shown} in {rows}");
        }
        // From one to the other and back, and the sums.
        let traffic = between(&page, "id=\"traffic\"", "</table>");
        let cells = between(traffic, "<tbody>", "</tbody>");
        assert!(cells.matches("<b>").count() >= 4, "{cells}");
        assert!(
            cells.contains("B</b>") && cells.contains(" calls</small>"),
            "{cells}"
        );
        let usage = between(&page, "data-testid=\"usage\"", "</tbody>");
        assert!(
            usage.contains(">client<") && usage.contains(">server<"),
            "{usage}"
        );
        let path = between(&page, "data-testid=\"critical\"", "</ol>");
        assert!(path.matches("<li>").count() > 10, "{path}");
        assert!(path.contains(">client<") && path.contains(">server<"), "{path}");
    }
}

#[test]
fn the_dashboard_draws_the_workers() {
    let mut running = Running::start(&["--dashboard"]);
    let address = running.dashboard();
    until(|| {
        let (_, seen) = get(&address, "/status.json");
        let has_both = seen.contains("\"client\"") && seen.contains("\"server\"");
        has_both.then_some(()).ok_or(seen)
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

/// A recording in which each of some workers makes calls of the next one, all at once.
fn recording(folder: &Path, workers: u64, calls: u64) {
    let mut lines = String::new();
    let mut line = |value: Value| lines.extend([value.to_string(), "\n".into()]);
    for rank in 0..workers {
        let threads = json!([[rank, "main"]]);
        line(
            json!({ "rank": rank, "name": format!("worker{rank}"), "ahead": 0, "threads": threads, "dropped": 0 }),
        );
    }
    for number in 0..workers * calls {
        let (rank, at) = (number % workers, number / workers * 10);
        let call = json!({
            "verb": "rpc_async", "callee": (rank + 1) % workers, "sent": at + 1, "received": at + 90_000,
            "sent_bytes": 1000, "received_bytes": 10, "tensor_bytes": 0,
        });
        line(json!({
            "span": number + 1, "parent": 0, "name": "next", "kind": { "call": call }, "worker": rank, "thread": rank,
            "start": at, "end": at + 100_000, "status": "ok", "shapes": [], "link": 0,
        }));
    }
    std::fs::write(folder.join("t.jsonl"), lines).unwrap();
}

/// Shows such a recording, does something with the page, and gives what it has become.
fn recording_shown(workers: u64, calls: u64, tab: &str, script: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path(), workers, calls);
    let view = ["trace", "view", "t.jsonl", "-o", "page.html"];
    printed(&mut telegrad(folder.path(), &view));
    shown(&folder.path().join("page.html"), tab, script)
}

#[test]
fn of_many_rows_only_some_are_drawn_until_all_are_asked_for() {
    let labels = |page: &str| {
        between(page, "id=\"row-labels\">", "<div class=\"corner\"")
            .matches("<div")
            .count()
    };
    let button = |page: &str| between(page, "data-testid=\"rows-0\"", "</button>").to_owned();
    let rows = |page: &str| -> usize { between(page, "data-rows=\"", "\"").parse().unwrap_or(0) };
    let scroll = "const scroller = document.getElementById('scroller'), button = document.querySelector('[data-testid=rows-0]'); \
                  scroller.scrollTop = Math.min(button.offsetTop, 5200) - 200; scroller.dispatchEvent(new Event('scroll'));";
    let Some(page) = recording_shown(2, 500, "timeline", scroll) else {
        return;
    };
    assert!(button(&page).contains("+ 468 more rows"), "{}", button(&page));
    let events: usize = between(&page, "data-events=\"", "\"").parse().unwrap();
    assert!(
        events > 468,
        "those that have no row are drawn together: {events}"
    );

    let all = format!("document.querySelector('[data-testid=rows-0]').click(); {scroll}");
    let page = recording_shown(2, 500, "timeline", &all).unwrap();
    assert!(button(&page).contains("fewer rows"), "{}", button(&page));
    // Whatever there is, names are written of what is in sight.
    assert!((10..60).contains(&rows(&page)), "{} rows", rows(&page));
    assert!(
        labels(&page) < 60 && page.contains(">main (170)<"),
        "{} names",
        labels(&page)
    );
}

#[test]
fn a_recording_of_many_workers_is_summed_up() {
    let Some(page) = recording_shown(20, 3, "timeline", "") else {
        return;
    };
    assert_eq!(
        page.matches("aria-expanded=\"false\"").count(),
        20,
        "all are collapsed"
    );
    let open = "document.getElementById('fold').click();";
    let page = recording_shown(20, 3, "timeline", open).unwrap();
    assert_eq!(page.matches("aria-expanded=\"true\"").count(), 20);

    let page = recording_shown(20, 3, "traffic", "").unwrap();
    let map = between(&page, "id=\"traffic-map\"", ">");
    // Requests go from each to the next, and answers back.
    assert!(
        map.contains("data-cells=\"40\"") && map.contains("data-workers=\"20\""),
        "{map}"
    );
    assert!(between(&page, "id=\"flows\"", "</table>").contains("worker3 → worker4"));

    let page = recording_shown(20, 3, "table", "").unwrap();
    let table = between(&page, "<tbody>", "</tbody>");
    assert!(
        table.contains("20 workers") && table.matches("<tr").count() == 1,
        "{table}"
    );
}

#[test]
fn a_recording_of_nothing_says_so() {
    let Some(page) = recording_shown(2, 0, "traffic", "") else {
        return;
    };
    assert!(between(&page, "id=\"no-traffic\"", "</p>").contains("No worker called another."));
    let page = recording_shown(2, 0, "critical", "").unwrap();
    assert!(page.contains("nothing was recorded"));
}

/// A recording as its page is given it: two workers, of which the first makes eight calls of the second at once in each of three
/// steps. Of each step, one of the calls is on the critical path, and something of which the event is not known.
fn made_up_recording() -> Value {
    let mut events = Vec::new();
    let mut steps = Vec::new();
    let segment = |step: u64, event: Value, from: u64, to: u64| {
        let at = step * 1000;
        json!({ "worker": "a", "name": "work", "start": at + from, "end": at + to, "event": event })
    };
    let mut critical = Vec::new();
    for step in 0..3 {
        for call in 0..8 {
            events.push(json!({
                "id": format!("{step}-{call}"), "parent": null, "name": "work", "key": "work", "kind": "call", "worker": 0,
                "row": call, "start": step * 1000, "end": step * 1000 + 500, "status": "ok", "bytes": 8, "tensor_bytes": 0,
                "peer": 1, "shapes": [], "link": null, "phases": null,
            }));
        }
        let path = vec![
            segment(step, json!(format!("{step}-3")), 0, 400),
            segment(step, Value::Null, 400, 500),
        ];
        critical.extend(path.clone());
        steps.push(json!({
            "name": "train step", "start": step * 1000, "duration": 500 + step, "bubble": 0.25, "critical": path,
            "workers": [{ "worker": "a", "busy": 100 * (step + 1), "waiting": 0, "idle": 500 - 100 * (step + 1) + step }],
        }));
    }
    json!({
        "title": "made up", "duration": 2500, "events": events, "averages": [], "traffic": [], "steps": steps, "missing": [],
        "workers": [
            { "rank": 0, "name": "a", "rows": (0..8).map(|row| format!("row {row}")).collect::<Vec<_>>(), "dropped": 0, "known": true },
            { "rank": 1, "name": "b", "rows": [], "dropped": 0, "known": true },
        ],
        "step": {
            "name": "everything", "start": 0, "duration": 2500, "bubble": 0.5, "critical": critical,
            "workers": [{ "worker": "a", "busy": 1500, "waiting": 0, "idle": 1000 }],
        },
    })
}

/// Shows made-up data of a recording.
fn made_up_shown(data: &Value, tab: &str, script: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path(), 1, 0);
    let view = ["trace", "view", "t.jsonl", "-o", "page.html"];
    printed(&mut telegrad(folder.path(), &view));
    let path = folder.path().join("page.html");
    let page = std::fs::read_to_string(&path).unwrap();
    let place = "<script id=\"data\" type=\"application/json\">";
    let page = page.replacen(between(&page, place, "</script>"), &data.to_string(), 1);
    std::fs::write(&path, page).unwrap();
    shown(&path, tab, script)
}

#[test]
fn only_what_is_on_the_critical_path_is_marked_as_critical() {
    let script = "document.getElementById('show-critical').click();";
    let Some(page) = made_up_shown(&made_up_recording(), "timeline", script) else {
        return;
    };
    // One call of each step, of the eight that went on at the same time.
    assert_eq!(number(&page, "critical"), 3.0);
    assert_eq!(page.matches("data-testid=\"critical\"").count(), 1);
    let path = between(&page, "data-testid=\"critical\"", "</ol>");
    assert_eq!(path.matches("<li>").count(), 6);
    assert_eq!(
        path.matches("<button").count(),
        3,
        "only what is known leads to its event"
    );
}

#[test]
fn a_step_can_be_chosen_and_shown_in_the_timeline() {
    let script = "const select = document.getElementById('step'); select.value = 2; select.dispatchEvent(new Event('change')); \
                  document.getElementById('step-timeline').click();";
    let Some(page) = made_up_shown(&made_up_recording(), "critical", script) else {
        return;
    };
    let select = between(&page, "id=\"step\"", "</select>");
    assert_eq!(select.matches("<option").count(), 4, "{select}");
    for choice in [
        "whole recording, 2.50&nbsp;ms",
        "train step 1 of 3, 500&nbsp;µs",
        "train step 3 of 3",
    ] {
        assert!(select.contains(choice), "no {choice} in {select}");
    }
    let facts = between(&page, "data-testid=\"step-facts\"", "</dl>");
    for fact in ["train step", "2 of 3", "2 pieces", "501&nbsp;µs", "25.0&nbsp;%"] {
        assert!(facts.contains(fact), "no {fact} in {facts}");
    }
    let usage = between(&page, "data-testid=\"usage\"", "</tbody>");
    assert!(usage.contains("title=\"200&nbsp;µs\""), "{usage}");
    // The timeline is there now, shows that step and little else, and marks what is critical in it.
    assert!(!between(&page, "id=\"panel-timeline\"", ">").contains("hidden"));
    let (from, to) = (number(&page, "from"), number(&page, "to"));
    assert!((980.0..1000.0).contains(&from), "from {from}");
    assert!((1501.0..1520.0).contains(&to), "to {to}");
    assert_eq!(number(&page, "critical"), 1.0);
}

#[test]
fn a_recording_says_what_it_leaves_out() {
    let mut data = made_up_recording();
    let says = |data: &Value| {
        let page = made_up_shown(data, "critical", "")?;
        let notice = between(&page, "id=\"missing\"", "<main");
        let usage = between(&page, "data-testid=\"usage\"", "</tbody>");
        Some((notice.to_owned(), usage.to_owned()))
    };
    let Some((notice, _)) = says(&data) else { return };
    assert!(
        notice.contains("hidden") && !notice.contains("<strong>"),
        "{notice}"
    );

    data["workers"][0]["dropped"] = json!(12_345);
    data["workers"][1]["known"] = json!(false);
    data["missing"] = json!([["c", "it was killed"]]);
    let (notice, usage) = says(&data).unwrap();
    assert!(!notice.contains("hidden"), "{notice}");
    for said in [
        "12\u{202f}345 events were dropped",
        "No events are known of 1 worker",
        "<b>b</b>",
        "Not all events of 1 worker are there",
        "<b>c</b>: it was killed",
    ] {
        assert!(notice.contains(said), "no {said} in {notice}");
    }
    assert!(usage.contains("no events of it are known"), "{usage}");
}

/// Serves the page of a dashboard, with a status for each time that somebody asks, until the process ends.
fn serve_made_up(page: String, status: impl Fn(u64) -> Value + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut answers = 0;
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = String::new();
            BufReader::new(&stream).read_line(&mut asked).unwrap();
            let (kind, body) = if asked.contains("/status.json") {
                answers += 1;
                ("application/json", status(answers - 1).to_string())
            } else {
                ("text/html", page.clone())
            };
            let length = body.len();
            // A browser may change its mind.
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    address
}

/// What a dashboard becomes that is given such statuses and runs a script.
fn dashboard_shown(script: &str, status: impl Fn(u64) -> Value + Send + 'static) -> Option<String> {
    let mut running = Running::start(&["--dashboard"]);
    let (_, page) = get(&running.dashboard(), "/");
    let address = serve_made_up(with_script(&page, script), status);
    let (page, console) = loaded(&format!("http://{address}/"))?;
    assert_eq!(console, "");
    Some(page)
}

/// The row of a worker.
fn row_of(page: &str, rank: u64) -> &str {
    between(page, &format!("data-testid=\"worker-{rank}\""), "</tr>")
}

/// A world of workers that each call the next. Two wait for each other, and one only waits.
fn made_up_world(size: u64) -> Value {
    let worker = |rank: u64| {
        let next = (rank + 1) % size;
        json!({
            "rank": rank, "name": format!("worker{rank}"), "process": 1000 + rank, "size": size, "time": 1e9,
            "counters": { "calls_made": rank, "calls_served": 0, "bytes_in": 0, "bytes_out": 0, "calls_out": 1, "calls_in": 1 },
            "latency": [{ "to": next, "counts": [[0.001, 3]] }],
            "made": [{ "call": 7, "function": "a::b", "callee": next, "age": 2.5, "within": null, "is_awaited": true }],
            "served": [{
                "caller": (rank + size - 1) % size, "call": 7, "function": "a::b", "age": 2.0, "has_begun": true, "makes": false,
            }],
        })
    };
    let call = |on: u64, state: &str| json!({ "function": "a::b", "on": on, "age": 9.0, "state": state });
    let round = "`worker0` has been waiting for 9.0 s\n  for `a::b` on `worker1`, called 9.0 s ago, which waits\n    \
                 for `a::b` on `worker0`, called 8.0 s ago, which has not begun: it waits for a thread";
    // It passes a worker twice and ends with what has not begun, as if it came round.
    let queued = "`worker2` has been waiting for 12.0 s\n  for `a::b` on `worker1`, called 12.0 s ago, which waits\n    \
                  for `a::b` on `worker1`, called 12.0 s ago, which has not begun";
    json!({
        "time": 1e9, "world": (0..size).map(worker).collect::<Vec<_>>(), "silent": [], "more_chains": 17, "cycles": [],
        "chains": [
            { "from": 2, "age": 12.5, "is_cycle": false, "text": queued, "calls": [call(1, "waits"), call(1, "has not begun")] },
            { "from": 0, "age": 9.0, "is_cycle": true, "text": round, "calls": [call(1, "waits"), call(0, "has not begun")] },
        ],
    })
}

#[test]
fn a_dashboard_of_many_workers_is_summed_up() {
    let filter = "const field = document.getElementById('worker-filter'); field.value = 'worker6'; \
                  field.dispatchEvent(new Event('input')); document.querySelector('summary').click();";
    let shown = |size| dashboard_shown(filter, move |_| made_up_world(size));
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

    // Of few, each has a line and the pairs have numbers.
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
        "from 0 to 1: {matrix}"
    );
}

#[test]
fn only_chains_that_come_round_are_deadlocks() {
    let open = "document.querySelector('summary').click();";
    let Some(page) = dashboard_shown(open, |_| made_up_world(3)) else {
        return;
    };
    let chains = between(&page, "id=\"chains\"", "</ol>");
    let mut chains = chains.split("<li").skip(1);
    // What cannot go on comes first, and is opened by the script.
    let first = chains.next().unwrap();
    for part in [
        "class=\"round\"",
        "⟳ deadlock",
        "open=\"\"",
        "called 8.0 s ago",
        "worker0<i> → </i>worker1<i> → </i>worker0",
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
    assert_eq!(note, "the 2 longest of 19, 17 are left out");
    assert!(
        between(&page, "id=\"cycles\"", ">").contains("hidden"),
        "nobody said that there is a cycle"
    );
}

#[test]
fn a_dashboard_draws_what_it_has_seen_over_time() {
    // From one answer to the next: 500 calls in two seconds of the worker's own time, whatever time the answers have; of those that
    // ended, 100 took a millisecond, 99 two, and one half a second.
    let status = |answer: u64| {
        let counters = |made: u64, queued: u64, references: u64, contexts: u64| {
            json!({
                "calls_made": made * answer, "calls_served": 0, "bytes_in": 0, "bytes_out": 1_000_000 * answer, "calls_out": 1 + answer,
                "calls_in": 0, "queued": queued, "running": 1, "blocked": 0, "threads": 4, "idle_threads": 3,
                "references_owned": references, "references_held": references + 1, "contexts": contexts,
            })
        };
        // What was before anybody looked is not of now.
        let fast =
            json!({ "to": 1, "counts": [[0.001, 100 * answer], [0.002, 99 * answer], [10.0, 1_000_000]] });
        let slow = json!({ "to": 2, "counts": [[0.5, 1 + answer]] });
        let other = json!({ "to": 0, "counts": [[0.008, 100 * answer]] });
        let time = 1e9 + 2.0 * answer as f64;
        json!({
            "time": 1e9 + 4.0 * answer as f64, "silent": [], "chains": [], "more_chains": 0, "cycles": [],
            "world": [
                { "rank": 0, "name": "a", "process": 1, "size": 3, "time": time, "counters": counters(500, 17, 123, 5), "latency": [fast, slow],
                  "made": [{ "call": 4, "function": "asked", "callee": 1, "age": 1.5, "within": null, "is_awaited": true }],
                  "served": [{ "caller": 1, "call": 8, "function": "given_up", "age": 1.0, "has_begun": true, "makes": false }] },
                { "rank": 1, "name": "b", "process": 2, "size": 3, "time": time, "counters": counters(0, 0, 7, 0), "latency": [other], "made": [],
                  "served": [
                      { "caller": 0, "call": 4, "function": "asked", "age": 1.5, "has_begun": true, "makes": false },
                      { "caller": 0, "call": 5, "function": "making", "age": 2.5, "has_begun": false, "makes": true },
                  ] },
                // One that has not been asked again since the first time.
                { "rank": 2, "name": "c", "process": 3, "size": 3, "time": 1e9 + f64::from(answer > 0), "latency": [], "made": [], "served": [],
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
    // The page has asked at least five times, and a rate takes two answers.
    assert!(number(&page, "polls") >= 5.0);
    let chart = between(&page, "data-testid=\"chart-calls\"", ">");
    assert!(number(chart, "points") >= 3.0 * 4.0, "{chart}");
    assert!(number(&page, "lines") > 50.0, "{} pixels", number(&page, "lines"));
    assert!(number(&page, "small") > 10.0, "{} pixels", number(&page, "small"));

    let row = row_of(&page, 0);
    for (shown, what) in [
        (">250/s<", "calls made"),
        (">500&nbsp;kB/s<", "bytes sent"),
        (">1.00&nbsp;ms<", "the median of all calls"),
        (">2.00&nbsp;ms<", "what 99 of 100 did not exceed"),
        (">17<", "queued"),
        (">1 / 0<", "running and blocked"),
        (">123 / 124<", "references"),
        (">5<", "contexts"),
    ] {
        assert!(row.contains(shown), "{what}: no {shown} in {row}");
    }
    assert!(row_of(&page, 1).contains(">7 / 8<") && row_of(&page, 1).contains(">8.00&nbsp;ms<"));
    assert!(
        row_of(&page, 2).contains(">40/s<"),
        "as before: {}",
        row_of(&page, 2)
    );
    // Of everybody's 300 calls.
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
        "nobody waits for it, but it is under way: {}",
        calls[0]
    );
    assert!(
        calls[1].contains("asked") && calls[1].contains(">runs<"),
        "{}",
        calls[1]
    );
}

#[test]
fn while_an_answer_takes_long_the_last_one_is_shown() {
    let hang = "window.fetch = () => new Promise(() => {});";
    let Some(page) = dashboard_shown(hang, |_| made_up_world(3)) else {
        return;
    };
    let state = between(&page, "<span class=\"state late\"", "</span>");
    assert!(state.contains("An answer takes long"), "{page}");
    assert!(
        row_of(&page, 2).contains("worker2") && !page.contains("<body class=\"stale\""),
        "it is shown"
    );
}

#[test]
fn a_dashboard_makes_do_with_what_it_is_told() {
    let status = |_| {
        json!({
            "world": [{ "rank": 0 }, { "rank": 1, "latency": [{ "to": 0 }, null], "made": [{}, null], "served": [{}, null] }, {}, null],
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
