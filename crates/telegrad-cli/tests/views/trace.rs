//! `telegrad trace` on the command line.

use std::process::Stdio;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::browser::{KillOnDrop, between};
use super::*;

#[test]
fn a_recording_can_be_summarised_merged_and_viewed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let recorded = record(folder, "t.json");
    let (out, messages) = (text(&recorded.stdout), text(&recorded.stderr));
    assert!(
        out.contains("\"loss\""),
        "the output of the program is missing: {out}"
    );
    assert!(messages.contains("events of 2 workers to t.json"), "{messages}");
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
    assert!(!of_shutdown.is_empty(), "the shutdown is not recorded");
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
    let messages = format!("wrote {} events of 2 workers to m.jsonl", slices.len());
    assert!(
        merged.status.success() && text(&merged.stderr).contains(&messages),
        "{merged:?}"
    );
    let lines = std::fs::read_to_string(folder.join("m.jsonl")).unwrap();
    assert_eq!(
        lines.lines().count(),
        slices.len() + 3,
        "one line per event and worker, and one for the profile"
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

/// The data of a page.
fn page_data(page: &str) -> Value {
    let letters = between(page, "<script id=\"data\" type=\"text/plain\">", "</script>");
    let packed = BASE64_STANDARD.decode(letters).unwrap();
    serde_json::from_reader(GzDecoder::new(&*packed)).unwrap()
}

/// Serves the page of a recording; returns its address.
fn serve_page(folder: &Path, file: &str) -> (KillOnDrop, String) {
    let mut command = telegrad(folder, &["trace", "view", file, "--listen", "localhost:0"]);
    let mut view = KillOnDrop(command.stdout(Stdio::piped()).spawn().unwrap());
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
fn the_page_is_served_with_a_strict_policy_to_local_hosts_only() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), "t.json");
    let (_view, address) = serve_page(folder.path(), "t.json");
    let (head, page) = get(&address, "/");
    // A foreign name that resolves to this machine.
    let refused = answer(&address, "evil.example", "/");
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
fn ctrl_c_ends_the_server_during_a_response() {
    let folder = tempfile::tempdir().unwrap();
    let worker = r#"{ "rank": 0, "name": "a", "ahead": 0, "threads": [[0, "main"]], "dropped": 0 }"#;
    // Megabytes in eight events: more than the socket buffers hold.
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
    let status = until(|| {
        view.0
            .try_wait()
            .unwrap()
            .ok_or_else(|| "the server still runs".to_owned())
    });
    assert!(status.success(), "{status}");
}

#[test]
fn failures_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("x.json"), "nonsense").unwrap();
    for (args, code, messages) in [
        (
            &["trace", "summary", "x.json"][..],
            1,
            "x.json is not a recording",
        ),
        (
            &["trace", "summary", "missing.json"],
            1,
            "cannot read missing.json",
        ),
        (&["trace", "view", "x.json"], 1, "x.json is not a recording"),
        (&["trace", "merge", "x.json"], 1, "x.json is not a recording"),
        (
            &["trace", "record", "--", "no-such-program"],
            1,
            "cannot run `no-such-program`",
        ),
        (
            &["trace", "record", "--", "true"],
            1,
            "nothing was recorded: the program has started no worker of Telegrad\n",
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
        assert!(errors.contains(messages), "{args:?}: {errors}");
    }
}

/// Names and error texts come from other processes.
#[test]
fn control_characters_in_a_recording_are_escaped() {
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
    let messages = text(&record.unwrap().stderr);
    let note = "events of `a␛[2J` are missing: why␊not␇\u{fffd}\n";
    for text in [&summary, &messages] {
        assert!(text.contains(note), "{text:?}");
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{text:?}");
    }
    assert!(summary.contains("3 events of `b␛c` were dropped"), "{summary:?}");
    // So are those in a file name.
    let output = telegrad(folder, &["trace", "summary", "\u{1b}c.json"]).output();
    let errors = text(&output.unwrap().stderr);
    assert!(errors.contains("cannot read ␛c.json"), "{errors:?}");
}

#[test]
fn record_starts_workers_by_names() {
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
    // Neither of them joined a world.
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("the program has started no worker"));
}
