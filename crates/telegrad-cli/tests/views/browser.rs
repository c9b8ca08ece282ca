//! The pages in a browser: that they draw what they are given, without an error.
//!
//! Chromium is needed; where there is none, these tests have nothing to say. `.ci/run` installs it.

use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};

use super::*;

/// Loads a page, lets it run for a while, and gives what it has become and what it has said to its console. Nothing
/// without a browser.
fn loaded(url: &str) -> Option<(String, String)> {
    let browser = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok())?;
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--enable-logging=stderr", "--window-size=1400,900"])
        .args(["--virtual-time-budget=5000", "--dump-dom", url])
        .output()
        .expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stderr);
    let console = said.lines().filter(|line| line.contains("CONSOLE"));
    Some((text(&output.stdout), console.collect::<Vec<_>>().join("\n")))
}

#[test]
fn the_page_of_a_recording_draws_everything() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    record(folder, "t.json");
    let written = telegrad(folder, &["trace", "view", "t.json", "-o", "page.html"]).status();
    assert!(written.unwrap().success());
    let page = format!("file://{}/page.html", folder.display());
    for (tab, shown) in [
        ("timeline", "data-testid=\"timeline\""),
        ("table", "DistributedOptimizer::step"),
        ("traffic", "data-testid=\"traffic\""),
        ("critical", "data-testid=\"critical\""),
    ] {
        let Some((page, console)) = loaded(&format!("{page}#tab={tab}")) else {
            return;
        };
        assert_eq!(console, "", "on {tab}");
        assert!(page.contains("data-ready=\"true\""), "{tab} is not drawn");
        let events = page
            .split("data-events=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let events: usize = events.and_then(|count| count.parse().ok()).unwrap_or(0);
        assert!(tab != "timeline" || events > 20, "{events} events are drawn");
        assert!(page.contains(shown), "no {shown} on {tab}");
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
        "client",
        "server",
        "chart-calls",
    ] {
        assert!(page.contains(shown), "no {shown} in\n{page}");
    }
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
    let path = folder.path().join("page.html");
    std::fs::write(
        &path,
        with_script(&std::fs::read_to_string(&path).unwrap(), script),
    )
    .unwrap();
    let (page, console) = loaded(&format!("file://{}#tab={tab}", path.display()))?;
    assert_eq!(console, "", "on {tab}");
    assert!(page.contains("data-ready=\"true\""), "{tab} is not drawn");
    Some(page)
}

/// The page, with something that it does a while after it has begun. It paints by the clock: the browser has one of its own that
/// is ahead of its screen.
fn with_script(page: &str, script: &str) -> String {
    let clock = "<script>window.requestAnimationFrame = (paint) => setTimeout(paint, 16);</script><style>";
    let script = format!("<script>setTimeout(() => {{ {script} }}, 2500);</script></body>");
    page.replacen("<style>", clock, 1).replacen("</body>", &script, 1)
}

/// What is between the first of one text and the next of another.
fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let rest = page.split_once(from).map_or("", |(_, rest)| rest);
    rest.split_once(to).map_or("", |(found, _)| found)
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

/// Serves the page of a dashboard with this status, until the process ends.
fn serve_made_up(page: String, status: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = String::new();
            BufReader::new(&stream).read_line(&mut asked).unwrap();
            let is_status = asked.contains("/status.json");
            let (kind, body) = if is_status {
                ("application/json", &status)
            } else {
                ("text/html", &page)
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

/// A world of workers that each call the next, of which three wait for each other.
fn made_up_world(size: u64) -> Value {
    let worker = |rank: u64| {
        let next = (rank + 1) % size;
        json!({
            "rank": rank, "name": format!("worker{rank}"), "process": 1000 + rank, "size": size,
            "counters": { "calls_made": rank, "calls_served": 0, "bytes_in": 0, "bytes_out": 0, "calls_out": 1, "calls_in": 1 },
            "latency": [{ "to": next, "count": 3, "p50": 0.001, "p99": 0.01 }],
            "made": [{ "call": 7, "function": "a::b", "callee": next, "age": 2.5, "within": null }],
            "served": [{ "caller": (rank + size - 1) % size, "call": 7, "function": "a::b", "age": 2.0, "has_begun": true }],
        })
    };
    let chain = "`worker0` has been waiting for 9.0 s\n  for `a::b` on `worker1`, called 9.0 s ago, which waits\n    \
                 for `a::b` on `worker2`, called 9.0 s ago, which waits\n      \
                 for `a::b` on `worker1`, called 8.0 s ago, which has not begun: it waits for a thread";
    json!({
        "time": 1e9, "world": (0..size).map(worker).collect::<Vec<_>>(), "silent": [], "chains": [chain], "cycles": [],
    })
}

#[test]
fn a_dashboard_of_many_workers_is_summed_up() {
    let mut running = Running::start(&["--dashboard"]);
    let (_, page) = get(&running.dashboard(), "/");
    let filter = "const field = document.getElementById('worker-filter'); field.value = 'worker6'; \
                  field.dispatchEvent(new Event('input')); document.querySelector('summary').click();";
    let shown = |size| {
        let address = serve_made_up(with_script(&page, filter), made_up_world(size).to_string());
        let (page, console) = loaded(&format!("http://{address}/"))?;
        assert_eq!(console, "");
        Some(page)
    };
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
    let chains = between(&page, "id=\"chains\"", "</ol>");
    for part in ["class=\"round\"", "⟳ deadlock", "open=\"\"", "called 8.0 s ago"] {
        assert!(chains.contains(part), "no {part} in {chains}");
    }

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
}
