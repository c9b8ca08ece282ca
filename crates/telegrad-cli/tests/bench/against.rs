//! `telegrad bench --against torch`, with shell scripts in place of a Python that has torch.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{bench, bench_with, lines_of};

/// One of the scripts in `tests/peers`.
fn peer(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/peers")
        .join(name)
}

/// One repetition of sections against a script.
fn against(python: &Path, only: &str, more: &[&str]) -> Output {
    let python = python.to_str().unwrap();
    let args = [
        "--quick",
        "--against",
        "torch",
        "--python",
        python,
        "--only",
        only,
        "--reps",
        "1",
    ];
    bench(&[&args[..], more].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What went wrong, after all of `parts` have been found in it.
fn failure(output: &Output, parts: &[&str]) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in parts {
        assert!(said.contains(part), "no `{part}` in: {said}");
    }
    said
}

/// The table of ours is there, whatever became of theirs.
fn ours_is_shown(output: &Output) {
    let table = text(&output.stdout);
    assert!(
        table.contains("rpc_sync_latency") && table.contains("× floor"),
        "{table}"
    );
}

#[test]
fn both_values_and_their_ratio_are_in_the_table() {
    let output = against(&peer("good"), "latency", &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let mut rows = table.lines().filter(|line| line.contains("builtin_add_ones2"));
    let row = rows.next().unwrap();
    let cells: Vec<_> = row.split(['│', '┆']).map(str::trim).collect();
    let number = |cell: usize| cells[cell].parse::<f64>().unwrap();
    assert_eq!(number(4), 1_000_000.0, "the better of two: {row}");
    assert!((number(6) * number(3) / 1_000_000.0 - 1.0).abs() < 0.01, "{row}");
}

#[test]
fn machines_get_the_values_of_both_as_they_come_and_then_what_they_make() {
    let output = against(&peer("good"), "latency,throughput", &["--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = lines_of(&output);
    let joined: Vec<_> = lines.iter().filter(|line| line["against"].is_string()).collect();
    assert_eq!(joined.len(), 2, "{joined:#?}");
    assert_eq!(joined[0]["against"], "torch.distributed.rpc 9.9");
    assert_eq!(joined[0]["theirs"], 1_000_000.0);
    let ratio = |line: &Value| line["ratio"].as_f64().unwrap();
    assert!(joined.iter().all(|line| ratio(line) > 1.0), "{joined:#?}");
    assert_eq!(joined[1]["params"]["outstanding"], 64);
    // Ours of a section, then theirs of the same.
    let place = |metric: &str, theirs: bool| {
        let is_it = |line: &Value| line["metric"] == metric && (line["framework"] != "telegrad") == theirs;
        lines.iter().position(is_it).unwrap()
    };
    let order = [
        place("rpc_sync_latency", false),
        place("rpc_sync_latency", true),
        place("rpc_async_throughput", false),
        place("rpc_async_throughput", true),
    ];
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn a_picture_and_a_table_are_written_and_written_again_in_their_place() {
    let folder = TempDir::new().unwrap();
    let (svg, markdown) = (folder.path().join("a.svg"), folder.path().join("a.md"));
    std::fs::write(
        &markdown,
        "# Before\n<!-- bench: begin -->\n<!-- bench: end -->\nafter\n",
    )
    .unwrap();
    for _ in 0..2 {
        let files = [
            "--svg",
            svg.to_str().unwrap(),
            "--markdown",
            markdown.to_str().unwrap(),
        ];
        let output = against(&peer("good"), "latency", &files);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let picture = std::fs::read_to_string(&svg).unwrap();
        assert!(
            picture.contains("1000000 µs") && picture.contains("9.9"),
            "{picture}"
        );
        let page = std::fs::read_to_string(&markdown).unwrap();
        assert!(
            page.starts_with("# Before\n") && page.ends_with("after\n"),
            "{page}"
        );
        assert_eq!(
            page.matches("| rpc_sync_latency | call=builtin_add_ones2 |")
                .count(),
            1,
            "{page}"
        );
    }
}

#[test]
fn a_file_with_other_text_is_not_overwritten() {
    let folder = TempDir::new().unwrap();
    let page = folder.path().join("page.md");
    std::fs::write(&page, "what somebody wrote\n").unwrap();
    let output = against(&peer("good"), "latency", &["--markdown", page.to_str().unwrap()]);
    failure(&output, &["page.md", "<!-- bench: begin -->"]);
    assert!(output.stdout.is_empty());
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "what somebody wrote\n");
}

#[test]
fn a_python_that_is_not_there_is_said_before_anything_is_measured() {
    let output = against(Path::new("/nowhere/python3"), "latency", &[]);
    failure(
        &output,
        &["/nowhere/python3", "apt install python3-torch", "--python"],
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn a_python_without_torch_is_said_with_what_to_install() {
    let output = against(&peer("no_torch"), "latency", &[]);
    failure(
        &output,
        &[
            "No module named 'torch'",
            "apt install python3-torch",
            "pip install",
            "--python",
        ],
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn what_is_no_value_is_an_error_and_the_values_before_it_count() {
    let output = against(&peer("garbage"), "latency", &[]);
    failure(&output, &["`latency`", "Hello from a library!"]);
    ours_is_shown(&output);
    assert!(text(&output.stdout).contains("1000000"));
}

#[test]
fn a_section_that_fails_says_why_and_the_others_go_on() {
    let output = against(&peer("fails"), "latency,throughput", &[]);
    failure(
        &output,
        &["`latency`", "exit status: 3", "the agent is not there"],
    );
    ours_is_shown(&output);
    let table = text(&output.stdout);
    let row = table
        .lines()
        .find(|line| line.contains("call=python_udf outstanding=64"))
        .unwrap();
    assert!(row.contains("0.50"), "{row}");
}

#[test]
fn a_section_without_any_value_is_an_error() {
    let output = against(&peer("good"), "rref", &[]);
    failure(&output, &["`rref`", "without a value"]);
}

#[test]
fn a_section_that_hangs_is_ended_at_the_limit_with_all_that_it_has_started() {
    let folder = TempDir::new().unwrap();
    let (started, temporary) = (folder.path().join("started"), folder.path().join("tmp"));
    std::fs::create_dir(&temporary).unwrap();
    let python = peer("hangs");
    let args = [
        "--quick",
        "--against",
        "torch",
        "--only",
        "latency",
        "--limit",
        "1",
        "--python",
    ];
    let args = [&args[..], &[python.to_str().unwrap()]].concat();
    let output = bench_with(&args, &[("PEER_STARTED", &started), ("TMPDIR", &temporary)]);
    failure(&output, &["`latency`", "after 1s", "--limit"]);
    ours_is_shown(&output);
    assert_eq!(
        std::fs::read_dir(&temporary).unwrap().count(),
        0,
        "files are left"
    );
    let number = std::fs::read_to_string(started).unwrap();
    let start = Instant::now();
    while is_alive(number.trim()) {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{number} is still there"
        );
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Whether a process runs; one that nobody has waited for yet does not.
fn is_alive(number: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

#[test]
fn what_only_makes_sense_against_somebody_is_refused_alone() {
    for option in ["--svg", "--python", "--limit"] {
        let output = bench(&["--only", "latency", option, "1"]);
        assert_eq!(output.status.code(), Some(2), "{option}");
        assert!(text(&output.stderr).contains("--against"), "{option}");
    }
}
