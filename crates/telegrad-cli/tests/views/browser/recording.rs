//! The page of `telegrad trace view`.

use serde_json::{Value, json};

use super::super::*;
use super::*;

/// Loads the page at this path on one of its tabs, with a script.
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
fn every_tab_of_a_recording_is_drawn() {
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
        // Both directions, and the sums.
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

/// Writes a recording whose workers each make concurrent calls to the next one.
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

/// Loads the page of such a recording with a script.
fn recording_shown(workers: u64, calls: u64, tab: &str, script: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path(), workers, calls);
    page_shown(folder.path(), tab, script)
}

/// Loads the page of the recording in a folder with a script.
fn page_shown(folder: &Path, tab: &str, script: &str) -> Option<String> {
    let view = ["trace", "view", "t.jsonl", "-o", "page.html"];
    printed(&mut telegrad(folder, &view));
    shown(&folder.join("page.html"), tab, script)
}

#[test]
fn rows_are_limited_until_expanded() {
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
        "events of hidden rows are drawn as density: {events}"
    );

    let all = format!("document.querySelector('[data-testid=rows-0]').click(); {scroll}");
    let page = recording_shown(2, 500, "timeline", &all).unwrap();
    assert!(button(&page).contains("fewer rows"), "{}", button(&page));
    // Only the names of visible rows are written.
    assert!((10..60).contains(&rows(&page)), "{} rows", rows(&page));
    assert!(
        labels(&page) < 60 && page.contains(">main (170)<"),
        "{} names",
        labels(&page)
    );
}

#[test]
fn a_recording_of_many_workers_is_condensed() {
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
    // Requests to the next worker, and replies back.
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
fn an_empty_recording_is_reported() {
    let Some(page) = recording_shown(2, 0, "traffic", "") else {
        return;
    };
    assert!(between(&page, "id=\"no-traffic\"", "</p>").contains("No worker called another."));
    let page = recording_shown(2, 0, "critical", "").unwrap();
    assert!(page.contains("the recording has no events"));
}

/// Writes a recording of two workers. In each of three steps, the first makes eight concurrent calls to the second and waits for one of
/// them. The parameters are the missing workers, the dropped events, and whether the second worker has known events.
fn record_steps(folder: &Path, (missing, dropped, known): (Value, u64, bool)) {
    let mut lines = vec![
        json!({ "profile": { "world": 7, "missing": missing, "events": 30 } }),
        json!({ "rank": 0, "name": "a", "ahead": 0, "threads": [[0, "main"]], "dropped": dropped }),
        json!({
            "rank": 1, "name": "b", "ahead": 0, "threads": [], "dropped": 0, "known": known,
            "alignment": if known { "agrees" } else { "unrelated" },
        }),
    ];
    let mut event = |span: u64, parent: u64, name: &str, kind: Value, (start, end): (u64, u64)| {
        lines.push(json!({
            "span": span, "parent": parent, "name": name, "kind": kind, "worker": 0, "thread": 0, "start": start * 1000,
            "end": end * 1000, "status": "ok", "shapes": [], "link": 0,
        }));
    };
    for number in 0..3 {
        let (start, step) = (number * 1000, number * 100 + 1);
        event(
            step,
            0,
            "train step",
            json!("scope"),
            (start, start + 500 + number),
        );
        for call in 0..8 {
            let kind = json!({ "call": {
                "verb": "rpc_async", "callee": 1, "sent": start * 1000, "received": 0, "sent_bytes": 8, "received_bytes": 0,
            } });
            let end = if call == 3 { 400 } else { 900 };
            event(step + 1 + call, step, "work", kind, (start, start + end));
        }
        let wait = json!({ "wait": { "call": step + 4 } });
        event(step + 9, step, "wait for work", wait, (start, start + 400));
    }
    let lines = lines.iter().map(|line| format!("{line}\n"));
    std::fs::write(folder.join("t.jsonl"), lines.collect::<String>()).unwrap();
}

/// Loads the page of such a recording.
fn steps_shown(about: (Value, u64, bool), tab: &str, script: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    record_steps(folder.path(), about);
    page_shown(folder.path(), tab, script)
}

/// The parameters of a complete recording.
fn complete() -> (Value, u64, bool) {
    (json!([]), 0, true)
}

#[test]
fn a_page_tolerates_invalid_addresses() {
    let folder = tempfile::tempdir().unwrap();
    record_steps(folder.path(), complete());
    for wanted in [
        "select=length",
        "select=-1&step=x",
        "select=1e9&tab=nothing&step=99",
    ] {
        // After a valid tab.
        let Some(page) = page_shown(folder.path(), &format!("timeline&{wanted}"), "") else {
            return;
        };
        let details = between(&page, "data-testid=\"details\"", "</aside>");
        assert!(details.contains("Kinds of events"), "{wanted}: {details}");
    }
    let page = page_shown(folder.path(), "timeline&select=1&step=2", "").unwrap();
    let details = between(&page, "data-testid=\"details\"", "</aside>");
    assert!(details.contains("<h2>work</h2>"), "{details}");
    assert!(between(&page, "data-testid=\"step-facts\"", "</dl>").contains("2 of 3"));
}

#[test]
fn a_page_reports_which_of_many_steps_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines =
        vec![json!({ "rank": 0, "name": "a", "ahead": 0, "threads": [[0, "main"]], "dropped": 0 })];
    lines.extend((1..=500_u64).map(|n| {
        json!({
            "span": n, "parent": 0, "name": "train step", "kind": "scope", "worker": 0, "thread": 0, "start": n * 1000,
            "end": n * 1000 + 500 + u64::from(n == 123), "status": "ok", "shapes": [], "link": 0,
        })
    }));
    let lines = lines.iter().map(|line| format!("{line}\n"));
    std::fs::write(folder.path().join("t.jsonl"), lines.collect::<String>()).unwrap();
    let Some(page) = page_shown(folder.path(), "critical", "") else {
        return;
    };
    let select = between(&page, "id=\"step\"", "</select>");
    assert_eq!(
        select.matches("<option").count(),
        201,
        "200 steps, and the whole recording"
    );
    for choice in ["step 1 of 500,", "step 123 of 500,", "step 500 of 500,"] {
        assert!(select.contains(choice), "no {choice} in {select}");
    }
    let note = between(&page, "data-testid=\"steps-note\"", "</span>");
    assert!(note.contains("200 of 500 steps are on this page"), "{note}");
}

#[test]
fn only_events_on_the_critical_path_are_marked() {
    let script = "document.getElementById('show-critical').click();";
    let Some(page) = steps_shown(complete(), "timeline", script) else {
        return;
    };
    // Each step, and one of its eight concurrent calls.
    assert_eq!(number(&page, "critical"), 6.0);
    assert_eq!(page.matches("data-testid=\"critical\"").count(), 1);
    let path = between(&page, "data-testid=\"critical\"", "</ol>");
    // And the pieces between and after the steps.
    assert_eq!(path.matches("<li>").count(), 9);
    assert_eq!(path.matches("<button").count(), 6, "only events have a link");
}

#[test]
fn a_step_can_be_chosen_and_shown_in_the_timeline() {
    let script = "const select = document.getElementById('step'); select.value = 2; select.dispatchEvent(new Event('change')); \
                  document.getElementById('step-timeline').click();";
    let Some(page) = steps_shown(complete(), "critical", script) else {
        return;
    };
    let select = between(&page, "id=\"step\"", "</select>");
    assert_eq!(select.matches("<option").count(), 4, "{select}");
    for choice in [
        "whole recording, 2.90&nbsp;ms",
        "train step 1 of 3, 500&nbsp;µs",
        "train step 3 of 3",
    ] {
        assert!(select.contains(choice), "no {choice} in {select}");
    }
    let facts = between(&page, "data-testid=\"step-facts\"", "</dl>");
    for fact in ["train step", "2 of 3", "2 pieces", "501&nbsp;µs", "89.9&nbsp;%"] {
        assert!(facts.contains(fact), "no {fact} in {facts}");
    }
    let usage = between(&page, "data-testid=\"usage\"", "</tbody>");
    for time in ["101&nbsp;µs", "400&nbsp;µs"] {
        assert!(
            usage.contains(&format!("title=\"{time}\"")),
            "no {time} in {usage}"
        );
    }
    // The timeline shows that step, and marks its critical path.
    assert!(!between(&page, "id=\"panel-timeline\"", ">").contains("hidden"));
    let (from, to) = (number(&page, "from"), number(&page, "to"));
    assert!((980.0..1000.0).contains(&from), "from {from}");
    assert!((1501.0..1520.0).contains(&to), "to {to}");
    assert_eq!(number(&page, "critical"), 2.0);
}

#[test]
fn a_recording_reports_missing_data() {
    let notes = |about| {
        let page = steps_shown(about, "critical", "")?;
        let notice = between(&page, "id=\"missing\"", "<main");
        let usage = between(&page, "data-testid=\"usage\"", "</tbody>");
        Some((notice.to_owned(), usage.to_owned()))
    };
    let Some((notice, _)) = notes(complete()) else {
        return;
    };
    assert!(
        notice.contains("hidden") && !notice.contains("<strong>"),
        "{notice}"
    );

    let missing = json!([["c", "it was killed"]]);
    let (notice, usage) = notes((missing, 12_345, false)).unwrap();
    assert!(!notice.contains("hidden"), "{notice}");
    for text in [
        "12\u{202f}345 events were dropped",
        "The events of 1 worker are unknown",
        "<b>b</b>",
        "Events of 1 worker are missing",
        "<b>c</b>: it was killed",
        "Some clocks could not be aligned",
        "no calls connect these workers to the others, so that their clocks cannot be compared unless they are on one host: `b`",
    ] {
        assert!(notice.contains(text), "no {text} in {notice}");
    }
    assert!(usage.contains("its events are unknown"), "{usage}");
}
