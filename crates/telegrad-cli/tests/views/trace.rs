//! `telegrad trace` as a person or a script uses it.

use std::process::Stdio;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::browser::{Ended, between};
use super::*;

#[test]
fn a_recorded_world_can_be_summed_up_merged_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let recorded = record(folder, "t.json");
    let (out, said) = (text(&recorded.stdout), text(&recorded.stderr));
    assert!(
        out.contains("\"loss\""),
        "the program's own output is there: {out}"
    );
    assert!(said.contains("events of 2 workers are in"), "{said}");
    let trace: Value = serde_json::from_slice(&std::fs::read(folder.join("t.json")).unwrap()).unwrap();
    let slices = trace["traceEvents"].as_array().unwrap().iter();
    let slices: Vec<_> = slices.filter(|event| event["ph"] == "X").collect();
    for (worker, name) in [
        (0, "backward"),
        (1, "Optimizer::step"),
        (0, "DistributedOptimizer::step"),
    ] {
        let found = slices
            .iter()
            .any(|slice| slice["pid"] == worker && slice["name"] == name);
        assert!(found, "no {name} on worker {worker}");
    }

    let summary = printed(&mut telegrad(
        folder,
        &["trace", "summary", "t.json", "--sort", "self", "--limit", "0"],
    ));
    for shown in [
        "#remote_op: ",
        "(client -> server)",
        "waiting",
        "bubble: ",
        "critical path",
    ] {
        assert!(summary.contains(shown), "no {shown} in\n{summary}");
    }
    let names = slices.iter().map(|slice| slice["name"].as_str().unwrap());
    let of_shutdown: Vec<&str> = names.filter_map(|name| name.strip_prefix("shutdown ")).collect();
    assert!(!of_shutdown.is_empty(), "it is recorded");
    for hidden in of_shutdown {
        assert!(!summary.contains(hidden), "{hidden} in\n{summary}");
    }
    for line in summary.lines() {
        assert!(line.chars().count() <= 120, "{line}");
    }
    let steps = printed(&mut telegrad(
        folder,
        &["trace", "summary", "t.json", "--step", "backward"],
    ));
    assert!(steps.matches("bubble: ").count() >= 3, "{steps}");

    let merge = ["trace", "merge", "t.json", "t.json", "-o", "m.jsonl"];
    let merged = telegrad(folder, &merge).output().unwrap();
    let said = format!("{} events of 2 workers are in m.jsonl", slices.len());
    assert!(
        merged.status.success() && text(&merged.stderr).contains(&said),
        "{merged:?}"
    );
    let lines = std::fs::read_to_string(folder.join("m.jsonl")).unwrap();
    assert_eq!(
        lines.lines().count(),
        slices.len() + 3,
        "each event once, two workers, and the whole"
    );
    let again = printed(&mut telegrad(
        folder,
        &["trace", "summary", "m.jsonl", "--sort", "self", "--limit", "0"],
    ));
    assert_eq!(again, summary);

    assert_eq!(
        printed(&mut telegrad(
            folder,
            &["trace", "view", "m.jsonl", "-o", "page.html"]
        )),
        ""
    );
    let page = std::fs::read_to_string(folder.join("page.html")).unwrap();
    let data = page_data(&page);
    assert_eq!(data["title"], "m.jsonl");
    assert!(data.to_string().contains("DistributedOptimizer::step"));
    assert_needs_no_network(&page);
}

/// What a page has to show.
fn page_data(page: &str) -> Value {
    let letters = between(page, "<script id=\"data\" type=\"text/plain\">", "</script>");
    let packed = BASE64_STANDARD.decode(letters).unwrap();
    serde_json::from_reader(GzDecoder::new(&*packed)).unwrap()
}

/// Serves the page of a recording in a folder; where it is.
fn serve_page(folder: &Path, file: &str) -> (Ended, String) {
    let mut command = telegrad(folder, &["trace", "view", file, "--listen", "localhost:0"]);
    let mut view = Ended(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(view.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line
        .strip_prefix("http://")
        .and_then(|rest| rest.split('/').next());
    (view, address.unwrap_or_else(|| panic!("{line}")).to_owned())
}

#[test]
fn the_page_is_served_and_allows_nothing_from_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), "t.json");
    let (_view, address) = serve_page(folder.path(), "t.json");
    let (head, page) = get(&address, "/");
    // Under a name that somebody else has made to lead here, there is nothing.
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let ask = "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    stream.write_all(ask.as_bytes()).unwrap();
    let mut refused = String::new();
    stream.read_to_string(&mut refused).unwrap();
    assert!(
        head.contains("content-security-policy: default-src 'none'"),
        "{head}"
    );
    assert_eq!(page_data(&page)["title"], "t.json");
    assert!(
        refused.starts_with("HTTP/1.1 403") && !refused.contains("t.json"),
        "{refused}"
    );
}

#[test]
fn the_page_is_served_until_ctrl_c_whoever_has_not_read_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let worker = r#"{ "rank": 0, "name": "a", "ahead": 0, "threads": [[0, "main"]], "dropped": 0 }"#;
    // Sixteen megabytes: more than what is kept between two processes for whoever reads later.
    let event = |span: usize| {
        let name = "x".repeat(1 << 20);
        format!(
            r#"{{ "span": {span}, "parent": 0, "name": "{name}", "kind": "scope", "worker": 0, "thread": 0, "start": {span}, "end": 100, "status": "ok", "shapes": [], "link": 0 }}"#
        )
    };
    let lines: Vec<String> = [worker.to_owned()]
        .into_iter()
        .chain((1..=8).map(event))
        .collect();
    std::fs::write(folder.path().join("t.jsonl"), lines.join("\n")).unwrap();
    let (mut view, address) = serve_page(folder.path(), "t.jsonl");
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut first = [0; 15];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    let interrupt = Command::new("kill")
        .args(["-INT", &view.0.id().to_string()])
        .status();
    assert!(interrupt.unwrap().success());
    let status = until(|| view.0.try_wait().unwrap().ok_or_else(|| "it goes on".to_owned()));
    assert!(status.success(), "{status}");
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("x.json"), "nonsense").unwrap();
    for (args, code, said) in [
        (
            &["trace", "summary", "x.json"][..],
            1,
            "x.json is not a recording",
        ),
        (&["trace", "summary", "nobody.json"], 1, "cannot read nobody.json"),
        (&["trace", "view", "x.json"], 1, "x.json is not a recording"),
        (&["trace", "merge", "x.json"], 1, "x.json is not a recording"),
        (
            &["trace", "record", "--", "no-such-program"],
            1,
            "cannot run no-such-program",
        ),
        (
            &["trace", "record", "--", "true"],
            1,
            "nothing was recorded: no worker has written anything, so the program has started none\n",
        ),
        (
            &["trace", "record", "--", "sh", "-c", "exit 7"],
            7,
            "sh failed: exit status: 7\ntelegrad: ",
        ),
        (&["trace", "record"], 2, "required"),
        (&["trace"], 2, "Usage"),
    ] {
        let output = telegrad(folder, args).output().unwrap();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(said), "{args:?}: {errors}");
    }
}

/// Names and reasons come from other processes.
#[test]
fn what_is_recorded_does_nothing_to_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let missing = json!([["a\u{1b}[2J", "why\nnot\u{7}\u{9b}"]]);
    let lines = [
        json!({ "profile": { "world": 7, "missing": missing, "events": 0 } }),
        json!({ "rank": 0, "name": "b\u{1b}c", "ahead": 0, "threads": [], "dropped": 3, "known": false }),
    ];
    let lines = lines.map(|line| format!("{line}\n"));
    std::fs::write(folder.join("t.jsonl"), lines.concat()).unwrap();
    let summary = printed(&mut telegrad(folder, &["trace", "summary", "t.jsonl"]));
    let script = "cp t.jsonl $TELEGRAD_TRACE/";
    let record = telegrad(folder, &["trace", "record", "--", "sh", "-c", script]).output();
    let said = text(&record.unwrap().stderr);
    let lacks = "not all events of `a␛[2J` are there: why␊not␇\u{fffd}\n";
    for text in [&summary, &said] {
        assert!(text.contains(lacks), "{text:?}");
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{text:?}");
    }
    assert!(summary.contains("3 events of `b␛c` are missing"), "{summary:?}");
    // Nor does what is wrong with it.
    let output = telegrad(folder, &["trace", "summary", "\u{1b}c.json"]).output();
    let errors = text(&output.unwrap().stderr);
    assert!(errors.contains("cannot read ␛c.json"), "{errors:?}");
}

#[test]
fn workers_can_be_started_as_run_does() {
    let folder = tempfile::tempdir().unwrap();
    let output = telegrad(
        folder.path(),
        &[
            "trace",
            "record",
            "--names",
            "a,b",
            "--",
            "sh",
            "-c",
            "echo $TELEGRAD_NAME; test -d $TELEGRAD_TRACE",
        ],
    )
    .output()
    .unwrap();
    let out = text(&output.stdout);
    assert!(out.contains("a | a") && out.contains("b | b"), "{out}");
    // Neither of them was a worker of a world.
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no worker has written anything"));
}
