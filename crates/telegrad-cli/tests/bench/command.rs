//! The built command.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Far more than a quick run takes, even unoptimised on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs it to its end.
pub(crate) fn bench(args: &[&str]) -> Output {
    bench_with(args, &[])
}

/// As [`bench`], with these variables in its environment.
pub(crate) fn bench_with(args: &[&str], env: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_telegrad"));
    command
        .arg("bench")
        .args(args)
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    // Small enough for the pipes, so the child can be waited for before its output is read.
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("`telegrad bench {}` did not end within {LIMIT:?}", args.join(" "));
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

/// The lines that it prints for machines.
pub(crate) fn lines(args: &[&str]) -> Vec<Value> {
    let output = bench(args);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    lines_of(&output)
}

/// The lines that it has printed for machines.
pub(crate) fn lines_of(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The line of a value.
pub(crate) fn find<'a>(lines: &'a [Value], metric: &str, key: &str, value: &str) -> &'a Value {
    let found = lines
        .iter()
        .find(|line| line["metric"] == metric && (key.is_empty() || line["params"][key] == value));
    found.unwrap_or_else(|| panic!("no {metric} with {key}={value} in {lines:#?}"))
}
