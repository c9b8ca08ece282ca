//! `--against torch`, with shell scripts in place of a Python with torch.

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

/// Runs one repetition of sections against a script.
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

/// Checks that a run failed with an error text that contains all of `parts`.
fn assert_failed(output: &Output, parts: &[&str]) {
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    for part in parts {
        assert!(errors.contains(part), "no `{part}` in: {errors}");
    }
}

/// Checks that the table has our values.
fn assert_ours_shown(output: &Output) {
    let table = text(&output.stdout);
    assert!(
        table.contains("rpc_sync_latency") && table.contains("× floor"),
        "{table}"
    );
}

#[test]
fn the_table_has_both_values_and_their_ratio() {
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
fn json_has_the_values_of_each_side_in_turn_and_then_the_ratios() {
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
    // Sections take turns: ours, then theirs.
    let position = |metric: &str, theirs: bool| {
        let is_it = |line: &Value| line["metric"] == metric && (line["framework"] != "telegrad") == theirs;
        lines.iter().position(is_it).unwrap()
    };
    let order = [
        position("rpc_sync_latency", false),
        position("rpc_sync_latency", true),
        position("rpc_async_throughput", false),
        position("rpc_async_throughput", true),
    ];
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn the_chart_and_the_markdown_table_replace_those_of_the_last_run() {
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
        let chart = std::fs::read_to_string(&svg).unwrap();
        assert!(chart.contains("1000000 µs") && chart.contains("9.9"), "{chart}");
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
fn markdown_does_not_overwrite_a_file_with_other_text() {
    let folder = TempDir::new().unwrap();
    let page = folder.path().join("page.md");
    std::fs::write(&page, "other text\n").unwrap();
    let output = against(&peer("good"), "latency", &["--markdown", page.to_str().unwrap()]);
    assert_failed(&output, &["page.md", "<!-- bench: begin -->"]);
    assert!(output.stdout.is_empty());
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "other text\n");
}

#[test]
fn a_missing_python_is_an_error_before_any_measurement() {
    let output = against(Path::new("/nowhere/python3"), "latency", &[]);
    assert_failed(
        &output,
        &["/nowhere/python3", "apt install python3-torch", "--python"],
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn a_python_without_torch_is_an_error_that_tells_what_to_install() {
    let output = against(&peer("no_torch"), "latency", &[]);
    assert_failed(
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
fn an_invalid_line_is_an_error_and_earlier_values_count() {
    let output = against(&peer("garbage"), "latency", &[]);
    assert_failed(&output, &["`latency`", "Hello from a library!"]);
    assert_ours_shown(&output);
    assert!(text(&output.stdout).contains("1000000"));
}

#[test]
fn a_failed_section_reports_its_error_and_the_others_run() {
    let output = against(&peer("fails"), "latency,throughput", &[]);
    assert_failed(
        &output,
        &["`latency`", "exit status: 3", "the agent is not there"],
    );
    assert_ours_shown(&output);
    let table = text(&output.stdout);
    let row = table
        .lines()
        .find(|line| line.contains("call=user_function outstanding=64"))
        .unwrap();
    assert!(row.contains("0.50"), "{row}");
}

#[test]
fn a_section_without_values_is_an_error() {
    let output = against(&peer("good"), "rref", &[]);
    assert_failed(&output, &["`rref`", "without a value"]);
}

#[test]
fn a_section_that_hangs_is_killed_with_its_children_at_the_limit() {
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
    assert_failed(&output, &["`latency`", "within 1s", "--limit"]);
    assert_ours_shown(&output);
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

/// Whether a process runs. A zombie does not.
fn is_alive(number: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

#[test]
fn options_of_a_comparison_need_against() {
    for option in ["--svg", "--python", "--limit"] {
        let output = bench(&["--only", "latency", option, "1"]);
        assert_eq!(output.status.code(), Some(2), "{option}");
        assert!(text(&output.stderr).contains("--against"), "{option}");
    }
}
