//! Worlds that continue without a killed worker: the other workers are shown and recorded.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};
use telegrad::prelude::*;

use super::*;

#[remote]
fn twice(number: u64) -> u64 {
    2 * number
}

/// A worker of the worlds below. It calls itself once its fifo `GO` is written to.
#[test]
fn a_survivor() {
    let (Ok(name), Ok(mut go)) = (std::env::var("TELEGRAD_NAME"), std::env::var("GO")) else {
        return;
    };
    let world = telegrad::init(&name).unwrap();
    // On a line of its own, after the output of the harness.
    writeln!(std::io::stdout(), "\nprocess {}", std::process::id()).unwrap();
    go += &name;
    File::open(go)
        .unwrap()
        .read_to_string(&mut String::new())
        .unwrap();
    assert_eq!(world.rpc_sync(name.as_str(), twice, (3,)).unwrap(), 6);
    // Without the others: one of them was killed.
    world.shutdown_now();
}

/// Three workers that continue after one of them was killed.
struct Survivors {
    launcher: Child,
    errors: BufReader<ChildStderr>,
    folder: tempfile::TempDir,
}

impl Survivors {
    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn start(command: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let go = folder.path().join("go-").into_os_string().into_string().unwrap();
        for name in Self::NAMES {
            let made = Command::new("mkfifo").arg(format!("{go}{name}")).status();
            assert!(made.unwrap().success());
        }
        let names = ["--names", "a,b,c", "--keep-going", "--"];
        let mut launcher = telegrad(folder.path(), &[command, &names].concat())
            .arg(std::env::current_exe().unwrap())
            .args(["survivors::a_survivor", "--exact", "--nocapture"])
            .env("GO", go)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = BufReader::new(launcher.stderr.take().unwrap());
        Self {
            launcher,
            errors,
            folder,
        }
    }

    /// Kills `b` once all workers run, and waits for the message of the launcher.
    fn kill(&mut self) {
        let mut lines = BufReader::new(self.launcher.stdout.take().unwrap()).lines();
        let mut process = String::new();
        for _ in Self::NAMES {
            let found = lines.find_map(|line| {
                let line = line.unwrap();
                let (name, process) = line.split_once(" | process ")?;
                Some((name == "b", process.to_owned()))
            });
            if let Some((true, found)) = found {
                process = found;
            }
        }
        thread::spawn(move || lines.for_each(drop));
        let killed = Command::new("kill").args(["-KILL", &process]).status();
        assert!(killed.unwrap().success());
        let expected = "telegrad: worker `b` (rank 1) was killed by signal 9 (SIGKILL); 2 others continue";
        let mut errors = self.errors.by_ref().lines();
        assert!(errors.any(|line| line.unwrap() == expected));
    }

    /// Lets the others end; returns the messages of the launcher from then on.
    fn end(&mut self) -> String {
        for name in ["a", "c"] {
            std::fs::write(self.folder.path().join(format!("go-{name}")), "").unwrap();
        }
        let mut messages = String::new();
        self.errors.read_to_string(&mut messages).unwrap();
        assert_eq!(self.launcher.wait().unwrap().code(), Some(1), "{messages}");
        let expected = "telegrad: worker `b` (rank 1) was killed by signal 9 (SIGKILL)\n";
        assert!(messages.contains(expected), "{messages}");
        messages
    }
}

impl Drop for Survivors {
    fn drop(&mut self) {
        let process = self.launcher.id().to_string();
        if let Ok(None) = self.launcher.try_wait() {
            let _ = Command::new("kill").arg(process).status();
            let _ = self.launcher.wait();
        }
    }
}

#[test]
fn the_dashboard_shows_the_survivors_of_a_killed_worker() {
    let mut world = Survivors::start(&["run", "--dashboard"]);
    let address = dashboard_of(&mut world.errors);
    world.kill();
    let status: Value = until(|| {
        let status: Value = serde_json::from_str(&get(&address, "/status.json").1).unwrap();
        if status["silent"] == json!([1]) {
            Ok(status)
        } else {
            Err(status.to_string())
        }
    });
    let shown = status["world"].as_array().unwrap().iter();
    let shown: Vec<_> = shown.map(|worker| &worker["name"]).collect();
    assert_eq!(shown, ["a", "c"]);
    let metrics = get(&address, "/metrics").1;
    assert!(
        metrics.contains("worker=\"c\"") && !metrics.contains("worker=\"b\""),
        "{metrics}"
    );
    world.end();
}

#[test]
fn events_of_survivors_are_recorded() {
    let mut world = Survivors::start(&["trace", "record", "-o", "t.json"]);
    world.kill();
    let messages = world.end();
    assert!(
        messages.contains("events of `b` are missing: its recording is incomplete"),
        "{messages}"
    );
    let summary = printed(&mut telegrad(
        world.folder.path(),
        &["trace", "summary", "t.json"],
    ));
    for worker in ["a", "c"] {
        let call = format!("twice({worker} -> {worker})");
        assert!(summary.contains(&call), "no {call} in\n{summary}");
    }
}

#[test]
fn keep_going_needs_workers_or_names() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["trace", "record", "--keep-going", "--", "true"];
    let output = telegrad(folder.path(), &args).output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("--workers <N>|--names <NAME,…>"), "{errors}");
}
