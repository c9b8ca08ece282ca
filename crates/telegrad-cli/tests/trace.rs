//! `telegrad trace` as a person or a script uses it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

fn telegrad(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().expect("the command starts")
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_telegrad"));
    command.args(args).current_dir(folder);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What it prints.
#[track_caller]
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Records a short training run, of a client and a server.
fn record(folder: &Path, file: &str) {
    let program = env!("CARGO_BIN_EXE_telegrad");
    let run = [
        "demo",
        "split-learning",
        "--epochs",
        "1",
        "--batch",
        "400",
        "--json",
    ];
    let output = telegrad(
        folder,
        &[&["trace", "record", "-o", file, "--", program], &run[..]].concat(),
    );
    let out = printed(&output);
    assert!(
        out.contains("\"loss\""),
        "the program's own output is there: {out}"
    );
    let said = text(&output.stderr);
    assert!(said.contains("events of 2 workers are in"), "{said}");
}

#[test]
fn a_recorded_world_can_be_summed_up_merged_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    record(folder, "t.json");
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

    let summary = printed(&telegrad(
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
    let steps = printed(&telegrad(
        folder,
        &["trace", "summary", "t.json", "--step", "backward"],
    ));
    assert!(steps.matches("bubble: ").count() >= 3, "{steps}");

    let merged = telegrad(folder, &["trace", "merge", "t.json", "t.json", "-o", "m.jsonl"]);
    assert_eq!(printed(&merged), "");
    let lines = std::fs::read_to_string(folder.join("m.jsonl")).unwrap();
    assert_eq!(
        lines.lines().count(),
        slices.len() + 2,
        "each event once, and two workers"
    );
    let again = printed(&telegrad(
        folder,
        &["trace", "summary", "m.jsonl", "--sort", "self", "--limit", "0"],
    ));
    assert_eq!(again, summary);

    assert_eq!(
        printed(&telegrad(
            folder,
            &["trace", "view", "m.jsonl", "-o", "page.html"]
        )),
        ""
    );
    let page = std::fs::read_to_string(folder.join("page.html")).unwrap();
    assert!(page.contains("\"title\":\"m.jsonl\"") && page.contains("DistributedOptimizer::step"));
    for fetched in ["https://", "src=\"", "href=\"http", "@import", "fetch("] {
        assert!(!page.contains(fetched), "it needs no network, and has {fetched}");
    }
}

#[test]
fn the_page_is_served_and_allows_nothing_from_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), "t.json");
    let mut view = command(folder.path(), &["trace", "view", "t.json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(view.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line
        .strip_prefix("http://")
        .and_then(|rest| rest.split('/').next());
    let mut page = TcpStream::connect(address.unwrap_or_else(|| panic!("{line}"))).unwrap();
    page.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    page.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    page.read_to_string(&mut answer).unwrap();
    view.kill().unwrap();
    view.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        answer
            .to_lowercase()
            .contains("content-security-policy: default-src 'none'")
    );
    assert!(answer.contains("\"title\":\"t.json\""));
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
            "no worker has written anything",
        ),
        (&["trace", "record", "--", "sh", "-c", "exit 7"], 7, ""),
        (&["trace", "record"], 2, "required"),
        (&["trace"], 2, "Usage"),
    ] {
        let output = telegrad(folder, args);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(said), "{args:?}: {errors}");
    }
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
    );
    let out = text(&output.stdout);
    assert!(out.contains("a | a") && out.contains("b | b"), "{out}");
    // Neither of them was a worker of a world.
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no worker has written anything"));
}
