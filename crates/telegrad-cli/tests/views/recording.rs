//! `telegrad trace record` of worlds that succeed, fail or are interrupted (S57).

mod signals;

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, ExitStatus, Stdio};

use serde_json::Value;
use telegrad::prelude::*;

use super::*;

#[remote]
fn double(number: u64) -> u64 {
    2 * number
}

/// A worker of the worlds of this file, which [`record_workers`] starts. The client calls the server `CALLS` times, or until one of
/// them is killed.
#[test]
fn a_worker() {
    let Ok(name) = std::env::var("TELEGRAD_NAME") else {
        return;
    };
    // On a line of its own, after the output of the harness.
    writeln!(std::io::stdout(), "\nprocess {}", std::process::id()).unwrap();
    let world = telegrad::init(&name).unwrap();
    let calls = std::env::var("CALLS").map_or(u64::MAX, |calls| calls.parse().unwrap());
    for number in 0..if name == "client" { calls } else { 0 } {
        telegrad::record_function!("step");
        assert_eq!(world.rpc_sync("server", double, (number,)).unwrap(), 2 * number);
    }
    world.shutdown().unwrap();
}

/// Records a world of the workers above.
fn record_workers(folder: &Path, more: &[&str]) -> Command {
    let program = std::env::current_exe().unwrap();
    let record = ["trace", "record", "-o", "t.json"];
    let mut command = in_folder(folder, &[&record, more, &["--"]].concat());
    command
        .arg(program)
        .args(["recording::a_worker", "--exact", "--nocapture"]);
    command
}

const DEMO: [&str; 2] = ["demo", "split-learning"];

const SHORT: [&str; 5] = ["--epochs", "1", "--batch", "400", "--json"];

/// Reads a recording.
fn trace(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// Counts the events of each worker.
fn counts(trace: &Value) -> [usize; 2] {
    let entries = trace["traceEvents"].as_array().unwrap();
    let of = |rank: u32| {
        entries
            .iter()
            .filter(move |entry| entry["ph"] == "X" && entry["pid"] == rank)
    };
    [0, 1].map(|rank| of(rank).count())
}

/// The command, with its temporary files in the folder.
fn in_folder(folder: &Path, args: &[&str]) -> Command {
    let mut command = telegrad(folder, args);
    command.env("TMPDIR", folder);
    command
}

/// The folder that the workers write to, if it is left.
fn written(folder: &Path) -> Option<std::path::PathBuf> {
    let mut entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries.find(|path| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("telegrad-trace-")
    })
}

/// A recording in progress; ended on drop.
struct Recording(Child);

impl Recording {
    fn start(command: &mut Command) -> Self {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(piped.spawn().unwrap())
    }

    /// The output of the program.
    fn lines(&mut self) -> std::io::Lines<BufReader<ChildStdout>> {
        BufReader::new(self.0.stdout.take().unwrap()).lines()
    }

    /// Waits for the end; returns standard error and the exit status.
    fn end(&mut self) -> (String, ExitStatus) {
        let mut messages = String::new();
        let mut errors = self.0.stderr.take().unwrap();
        errors.read_to_string(&mut messages).unwrap();
        (messages, self.0.wait().unwrap())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // Forwarded to the program.
            let _ = Command::new("kill").arg(self.0.id().to_string()).status();
            let _ = self.0.wait();
        }
    }
}

#[test]
fn a_world_started_by_names_is_recorded_completely() {
    let folder = tempfile::tempdir().unwrap();
    let output = record_workers(folder.path(), &["--names", "client,server"])
        .env("CALLS", "30")
        .output()
        .unwrap();
    let messages = text(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert_eq!(
        messages.matches("events of 2 workers to t.json").count(),
        1,
        "{messages}"
    );
    assert!(!messages.contains("are missing"), "{messages}");
    let trace = trace(&folder.path().join("t.json"));
    assert_eq!(trace["telegrad"]["missing"], serde_json::json!([]));
    assert!(trace["telegrad"]["world"].is_u64());
    let of = |kind: &str, rank: u32| {
        let entries = trace["traceEvents"].as_array().unwrap().iter();
        let slices =
            entries.filter(|entry| entry["ph"] == "X" && entry["pid"] == rank && entry["cat"] == kind);
        let names = slices.map(|slice| slice["args"]["name"].as_str().unwrap());
        names.filter(|name| name.ends_with("double")).count()
    };
    assert_eq!((of("call", 0), of("execution", 1)), (30, 30));
    assert_eq!(written(folder.path()), None, "nothing is left behind");
    let summary = ["trace", "summary", "t.json", "--step", "step"];
    let steps = printed(&mut telegrad(folder.path(), &summary));
    assert_eq!(steps.matches("bubble: ").count(), 30, "{steps}");
}

#[test]
fn a_world_started_by_size_is_recorded_completely() {
    let folder = tempfile::tempdir().unwrap();
    let output = record_workers(folder.path(), &["-n", "3"]).output().unwrap();
    let messages = text(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert!(messages.contains("events of 3 workers to t.json"), "{messages}");
    assert!(!messages.contains("are missing"), "{messages}");
}

#[test]
fn events_of_a_killed_worker_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording = Recording::start(&mut record_workers(folder.path(), &["--names", "client,server"]));
    let mut lines = recording.lines();
    let server = lines.find_map(|line| line.unwrap().strip_prefix("server | process ").map(str::to_owned));
    let server = server.expect("the server prints its process id");
    // Waits until the server has recorded calls.
    until(|| {
        let files = written(folder.path()).map(|path| std::fs::read_dir(path).unwrap());
        let mut files = files.into_iter().flatten().map(|file| file.unwrap().path());
        let of_server = files.find(|file| {
            let name = file.file_name().unwrap().to_string_lossy();
            name.starts_with("1-server-")
        });
        let text = of_server.map(|file| std::fs::read_to_string(file).unwrap());
        let text = text.unwrap_or_default();
        (text.lines().count() > 20).then_some(()).ok_or(text)
    });
    let killed = Command::new("kill").args(["-KILL", &server]).status().unwrap();
    assert!(killed.success());
    // Drains the output, so that the others are not blocked.
    let rest = thread::spawn(move || lines.for_each(drop));
    let (messages, status) = recording.end();
    rest.join().unwrap();
    assert!(!status.success(), "{messages}");
    let expected = "events of `server` are missing: its recording is incomplete";
    assert!(messages.contains(expected), "{messages}");
    let [client, server] = counts(&trace(&folder.path().join("t.json")));
    assert!(client > 20 && server > 20, "{client} {server}");
    let summary = printed(&mut telegrad(folder.path(), &["trace", "summary", "t.json"]));
    assert!(summary.contains(expected), "{summary}");
}

#[test]
fn a_worker_whose_disk_is_full_continues_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    // Simulates a full disk: files above a number of blocks are refused.
    let script = format!(
        "trap '' XFSZ; ulimit -f 32; exec {PROGRAM} {}",
        [&DEMO[..], &SHORT].concat().join(" ")
    );
    let output = in_folder(
        folder.path(),
        &["trace", "record", "-o", "t.json", "--", "sh", "-c", &script],
    )
    .output()
    .unwrap();
    let messages = text(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let trace = trace(&folder.path().join("t.json"));
    let missing = trace["telegrad"]["missing"].as_array().unwrap();
    let client = missing.iter().find(|missing| missing[0] == "client");
    let why = client.unwrap_or_else(|| panic!("{missing:?}"))[1]
        .as_str()
        .unwrap();
    assert!(why.starts_with("its recording stopped: File too large"), "{why}");
    assert_eq!(
        messages
            .matches("recording stopped: the file cannot be written")
            .count(),
        missing.len(),
        "{messages}"
    );
    let [client, _] = counts(&trace);
    assert!(client > 10, "{client}");
}

#[test]
fn the_output_is_checked_before_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("before.json"), "before").unwrap();
    for (output, messages) in [
        ("nowhere/t.json", "cannot write nowhere/t.json: No such file"),
        (".", "cannot write .: Is a directory"),
    ] {
        let args = ["trace", "record", "-o", output, "--", "touch", "ran"];
        let output = telegrad(folder, &args).output().unwrap();
        let errors = text(&output.stderr);
        assert!(
            output.status.code() == Some(1) && errors.contains(messages),
            "{errors}"
        );
        assert!(!folder.join("ran").exists());
    }
    // Without a recording, an existing file stays and a new one is not created.
    for output in ["before.json", "new.json"] {
        let args = ["trace", "record", "-o", output, "--", "true"];
        assert!(!telegrad(folder, &args).status().unwrap().success());
    }
    assert_eq!(
        std::fs::read_to_string(folder.join("before.json")).unwrap(),
        "before"
    );
    assert!(!folder.join("new.json").exists());
}

#[test]
fn an_unmerged_recording_is_kept_when_the_merge_fails() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo nonsense > $TELEGRAD_TRACE/0-a-1.jsonl; exit ";
    for code in [0, 7] {
        let script = format!("{script}{code}");
        let output = in_folder(folder.path(), &["trace", "record", "--", "sh", "-c", &script])
            .output()
            .unwrap();
        let messages = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(if code == 0 { 1 } else { code }),
            "{messages}"
        );
        assert_eq!(
            messages.contains("sh failed: exit status: 7"),
            code == 7,
            "{messages}"
        );
        assert!(
            messages.contains("is not a recording: line 1 is invalid"),
            "{messages}"
        );
        let kept = written(folder.path()).expect("the folder is kept");
        assert!(
            messages.contains(&format!("the unmerged recording is in {}", kept.display())),
            "{messages}"
        );
        assert_eq!(
            std::fs::read_to_string(kept.join("0-a-1.jsonl")).unwrap(),
            "nonsense\n"
        );
        std::fs::remove_dir_all(kept).unwrap();
    }
}

#[test]
fn recordings_of_two_worlds_are_not_merged() {
    let folder = tempfile::tempdir().unwrap();
    let demo = format!("{PROGRAM} {}", [&DEMO[..], &SHORT].concat().join(" "));
    let script = format!("{demo} && {demo}");
    let record = ["trace", "record", "-o", "t.json", "--", "sh", "-c", &script];
    std::fs::write(folder.path().join("t-2.json"), "another file").unwrap();
    let messages = text(&in_folder(folder.path(), &record).output().unwrap().stderr);
    assert!(messages.contains("to t-3.json"), "{messages}");
    let other = std::fs::read_to_string(folder.path().join("t-2.json")).unwrap();
    assert_eq!(other, "another file");
    let merge = ["trace", "merge", "t.json", "t-3.json", "-o", "both.json"];
    let output = telegrad(folder.path(), &merge).output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("t.json and t-3.json are recordings of different worlds"),
        "{errors}"
    );
    assert!(!folder.path().join("both.json").exists());
}

#[test]
fn shapes_sets_the_variable_of_the_workers() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo shapes=$TELEGRAD_TRACE_SHAPES";
    for (more, shown) in [(&["--shapes"][..], "shapes=1\n"), (&[], "shapes=\n")] {
        let args = [&["trace", "record"], more, &["--", "sh", "-c", script]].concat();
        let output = telegrad(folder.path(), &args).output().unwrap();
        assert_eq!(text(&output.stdout), shown);
    }
}
