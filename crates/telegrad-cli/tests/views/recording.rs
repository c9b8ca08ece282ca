//! `telegrad trace record` of worlds that end well, badly, or are interrupted (S57).

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, ExitStatus, Stdio};

use serde_json::Value;
use telegrad::prelude::*;

use super::*;

#[remote]
fn double(number: u64) -> u64 {
    2 * number
}

/// A worker of the worlds that are started here: this program itself, as [`record_workers`] has it run. The client calls the server
/// as often as it is told, or until one of them is ended.
#[test]
fn a_worker() {
    let Ok(name) = std::env::var("TELEGRAD_NAME") else {
        return;
    };
    // In a line of its own, whatever the harness has begun to print.
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

/// What has been recorded.
fn trace(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// How many events each worker has there.
fn counts(trace: &Value) -> [usize; 2] {
    let entries = trace["traceEvents"].as_array().unwrap();
    let of = |rank: u32| {
        entries
            .iter()
            .filter(move |entry| entry["ph"] == "X" && entry["pid"] == rank)
    };
    [0, 1].map(|rank| of(rank).count())
}

/// What `telegrad trace record` keeps of itself goes there.
fn in_folder(folder: &Path, args: &[&str]) -> Command {
    let mut command = telegrad(folder, args);
    command.env("TMPDIR", folder);
    command
}

/// The folder that the workers write to.
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

/// A recording that goes on, ended when this is dropped.
struct Going(Child);

impl Going {
    fn start(command: &mut Command) -> Self {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(piped.spawn().unwrap())
    }

    /// What the program prints.
    fn lines(&mut self) -> std::io::Lines<BufReader<ChildStdout>> {
        BufReader::new(self.0.stdout.take().unwrap()).lines()
    }

    /// What has been said when it is over, and how it ended.
    fn end(&mut self) -> (String, ExitStatus) {
        let mut said = String::new();
        let mut errors = self.0.stderr.take().unwrap();
        errors.read_to_string(&mut said).unwrap();
        (said, self.0.wait().unwrap())
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // It passes that on to the program.
            let _ = Command::new("kill").arg(self.0.id().to_string()).status();
            let _ = self.0.wait();
        }
    }
}

#[test]
fn a_world_that_is_started_by_names_is_recorded_whole() {
    let folder = tempfile::tempdir().unwrap();
    let output = record_workers(folder.path(), &["--names", "client,server"])
        .env("CALLS", "30")
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(
        said.matches("events of 2 workers are in t.json").count(),
        1,
        "{said}"
    );
    assert!(!said.contains("not all events"), "{said}");
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
fn a_world_of_so_many_workers_is_recorded_whole() {
    let folder = tempfile::tempdir().unwrap();
    let output = record_workers(folder.path(), &["-n", "3"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("events of 3 workers are in t.json"), "{said}");
    assert!(!said.contains("not all events"), "{said}");
}

#[test]
fn what_a_worker_did_before_it_was_killed_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording = Going::start(&mut record_workers(folder.path(), &["--names", "client,server"]));
    let mut lines = recording.lines();
    let server = lines.find_map(|line| line.unwrap().strip_prefix("server | process ").map(str::to_owned));
    let server = server.expect("it says who it is");
    // It has answered calls.
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
    // Whatever the others say, so that they can.
    let rest = thread::spawn(move || lines.for_each(drop));
    let (said, status) = recording.end();
    rest.join().unwrap();
    assert!(!status.success(), "{said}");
    let expected = "not all events of `server` are there: its recording is incomplete";
    assert!(said.contains(expected), "{said}");
    let [client, server] = counts(&trace(&folder.path().join("t.json")));
    assert!(client > 20 && server > 20, "{client} {server}");
    let summary = printed(&mut telegrad(folder.path(), &["trace", "summary", "t.json"]));
    assert!(summary.contains(expected), "{summary}");
}

#[test]
fn a_worker_that_can_write_no_more_goes_on_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    // As if the disk was full: files of more than so many blocks are refused.
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
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let trace = trace(&folder.path().join("t.json"));
    let missing = trace["telegrad"]["missing"].as_array().unwrap();
    let client = missing.iter().find(|missing| missing[0] == "client");
    let why = client.unwrap_or_else(|| panic!("{missing:?}"))[1]
        .as_str()
        .unwrap();
    assert!(why.starts_with("its recording stopped: File too large"), "{why}");
    assert_eq!(
        said.matches("recording stopped: the file cannot be written").count(),
        missing.len(),
        "{said}"
    );
    let [client, _] = counts(&trace);
    assert!(client > 10, "{client}");
}

#[test]
fn whether_it_can_be_written_is_known_before_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("before.json"), "before").unwrap();
    for (output, said) in [
        ("nowhere/t.json", "cannot write nowhere/t.json: No such file"),
        (".", "cannot write .: Is a directory"),
    ] {
        let args = ["trace", "record", "-o", output, "--", "touch", "ran"];
        let output = telegrad(folder, &args).output().unwrap();
        let errors = text(&output.stderr);
        assert!(
            output.status.code() == Some(1) && errors.contains(said),
            "{errors}"
        );
        assert!(!folder.join("ran").exists());
    }
    // What was there stays there as long as there is nothing new, and nothing is made of nothing.
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
fn what_the_workers_have_written_is_kept_when_it_cannot_be_put_together() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo nonsense > $TELEGRAD_TRACE/0-a-1.jsonl; exit ";
    for code in [0, 7] {
        let script = format!("{script}{code}");
        let output = in_folder(folder.path(), &["trace", "record", "--", "sh", "-c", &script])
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(if code == 0 { 1 } else { code }),
            "{said}"
        );
        assert_eq!(said.contains("sh failed: exit status: 7"), code == 7, "{said}");
        assert!(
            said.contains("is not a recording: line 1 is invalid"),
            "{said}"
        );
        let kept = written(folder.path()).expect("it is kept");
        assert!(
            said.contains(&format!("what the workers have written is in {}", kept.display())),
            "{said}"
        );
        assert_eq!(
            std::fs::read_to_string(kept.join("0-a-1.jsonl")).unwrap(),
            "nonsense\n"
        );
        std::fs::remove_dir_all(kept).unwrap();
    }
}

#[test]
fn it_can_be_interrupted_while_it_writes() {
    let folder = tempfile::tempdir().unwrap();
    // A pipe that nobody reads from.
    let made = Command::new("mkfifo")
        .arg(folder.path().join("pipe"))
        .status()
        .unwrap();
    assert!(made.success());
    let script = format!("{PROGRAM} {}; echo over", [&DEMO[..], &SHORT].concat().join(" "));
    let mut recording = Going::start(&mut in_folder(
        folder.path(),
        &["trace", "record", "-o", "pipe", "--", "sh", "-c", &script],
    ));
    let mut lines = recording.lines();
    assert!(lines.any(|line| line.unwrap() == "over"));
    let rest = thread::spawn(move || lines.for_each(drop));
    // As long as the shell is not quite over, it is passed on to that.
    until(|| {
        let process = recording.0.id().to_string();
        let _ = Command::new("kill").args(["-INT", &process]).status();
        recording.0.try_wait().unwrap().ok_or_else(|| "it goes on".into())
    });
    rest.join().unwrap();
    let (said, code) = recording.end();
    assert_eq!(code.code(), Some(130), "{said}");
    let kept = written(folder.path()).expect("it is kept");
    assert!(
        said.contains(&format!(
            "interrupted; what the workers have written is in {}",
            kept.display()
        )),
        "{said}"
    );
    let summary = printed(telegrad(folder.path(), &["trace", "summary"]).arg(kept));
    assert!(
        summary.contains("(client -> server)") && !summary.contains("not all events"),
        "{summary}"
    );
}

/// Whether a process ignores `SIGHUP`, as one that was started with `nohup` does.
fn ignores_hangup(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap() & 1 == 1
}

#[test]
fn whoever_ends_it_ends_the_program() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 143)] {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo begun; exec sleep 1000";
        let mut recording = Going::start(&mut in_folder(
            folder.path(),
            &["trace", "record", "--", "sh", "-c", script],
        ));
        let mut lines = recording.lines();
        assert_eq!(lines.next().unwrap().unwrap(), "begun");
        // Once, and to this process alone, as a supervisor does.
        let process = recording.0.id().to_string();
        let send = |signal: &str| {
            let sent = Command::new("kill").args(["-s", signal, &process]).status();
            assert!(sent.unwrap().success());
        };
        send(signal);
        if signal == "HUP" && ignores_hangup("self") {
            // These tests run under `nohup`: what they start goes on.
            assert!(ignores_hangup(&process), "it has undone `nohup`");
            send("TERM");
        }
        until(|| {
            let ended = recording.0.try_wait().unwrap();
            ended.ok_or_else(|| format!("it goes on after {signal}"))
        });
        let (said, status) = recording.end();
        assert_eq!(status.code(), Some(code), "{said}");
        assert!(said.contains("sh failed: signal"), "{said}");
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "nothing is left behind");
    }
}

#[test]
fn it_outlives_its_terminal_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("trap '' HUP; exec {PROGRAM} trace record -- sh -c 'echo begun; exec sleep 1000'");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(folder.path());
    let mut recording = Going::start(command.env("TMPDIR", folder.path()));
    assert_eq!(recording.lines().next().unwrap().unwrap(), "begun");
    assert!(
        ignores_hangup(&recording.0.id().to_string()),
        "SIGHUP is ignored still"
    );
}

#[test]
fn the_program_is_told_once_that_the_terminal_wants_it_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let [said, process] = ["said", "process"].map(|name| folder.path().join(name));
    // It would be ended at once by a second one, as `telegrad run` is, and says what comes, and goes on until it is told otherwise.
    let script = format!(
        "trap \"echo INT >> {0}\" INT; trap \"echo TERM >> {0}; exit 0\" TERM; echo $PPID > {1}; echo begun; while :; do sleep 0.1; done",
        said.display(),
        process.display(),
    );
    let command = format!(
        "cd {}; {PROGRAM} trace record -o t.json -- sh -c '{script}'",
        folder.path().display()
    );
    let Some(terminal) = live::Terminal::run("interrupted", &command) else {
        return;
    };
    terminal.shows(&["begun"]);
    let read = || std::fs::read_to_string(&said).unwrap_or_default();
    for count in 1..=3 {
        terminal.tmux(&["send-keys", "-t", "it", "C-c"]);
        until(|| {
            let said = read();
            (said.lines().count() >= count).then_some(()).ok_or(said)
        });
    }
    let process = std::fs::read_to_string(process).unwrap();
    let sent = Command::new("kill").arg(process.trim()).status();
    assert!(sent.unwrap().success());
    until(|| {
        let said = read();
        said.contains("TERM").then_some(()).ok_or(said)
    });
    assert_eq!(read(), "INT\nINT\nINT\nTERM\n");
}

#[test]
fn recordings_of_two_worlds_are_not_merged() {
    let folder = tempfile::tempdir().unwrap();
    let demo = format!("{PROGRAM} {}", [&DEMO[..], &SHORT].concat().join(" "));
    let script = format!("{demo} && {demo}");
    let record = ["trace", "record", "-o", "t.json", "--", "sh", "-c", &script];
    std::fs::write(folder.path().join("t-2.json"), "of somebody else").unwrap();
    let said = text(&in_folder(folder.path(), &record).output().unwrap().stderr);
    assert!(said.contains("are in t-3.json"), "{said}");
    let other = std::fs::read_to_string(folder.path().join("t-2.json")).unwrap();
    assert_eq!(other, "of somebody else");
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
fn workers_are_told_to_record_shapes() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo shapes=$TELEGRAD_TRACE_SHAPES";
    for (more, shown) in [(&["--shapes"][..], "shapes=1\n"), (&[], "shapes=\n")] {
        let args = [&["trace", "record"], more, &["--", "sh", "-c", script]].concat();
        let output = telegrad(folder.path(), &args).output().unwrap();
        assert_eq!(text(&output.stdout), shown);
    }
}
