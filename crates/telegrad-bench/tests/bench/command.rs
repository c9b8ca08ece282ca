//! Runs the built program.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Far longer than a quick run takes, even unoptimised on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the benchmark to its end.
pub(crate) fn bench(args: &[&str]) -> Output {
    bench_with(args, &[])
}

/// As [`bench`], with these variables in its environment.
pub(crate) fn bench_with(args: &[&str], env: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_telegrad-bench"));
    command
        .args(args)
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    // The output fits into the pipes, so the child can end before it is read.
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("`telegrad-bench {}` did not end within {LIMIT:?}", args.join(" "));
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

/// Runs the benchmark and parses its JSON lines.
pub(crate) fn lines(args: &[&str]) -> Vec<Value> {
    let output = bench(args);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    lines_of(&output)
}

/// Parses the JSON lines of an output.
pub(crate) fn lines_of(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Finds the line of a metric with a parameter.
pub(crate) fn find<'a>(lines: &'a [Value], metric: &str, key: &str, value: &str) -> &'a Value {
    let found = lines
        .iter()
        .find(|line| line["metric"] == metric && (key.is_empty() || line["params"][key] == value));
    found.unwrap_or_else(|| panic!("no {metric} with {key}={value} in {lines:#?}"))
}
