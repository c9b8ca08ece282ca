//! Signals to `telegrad trace record`.

use super::*;

#[test]
fn a_signal_interrupts_the_merge() {
    let folder = tempfile::tempdir().unwrap();
    // A pipe without a reader.
    let made = Command::new("mkfifo")
        .arg(folder.path().join("pipe"))
        .status()
        .unwrap();
    assert!(made.success());
    let script = format!("{PROGRAM} {}; echo over", [&DEMO[..], &SHORT].concat().join(" "));
    let mut recording = Recording::start(&mut in_folder(
        folder.path(),
        &["trace", "record", "-o", "pipe", "--", "sh", "-c", &script],
    ));
    let mut lines = recording.lines();
    assert!(lines.any(|line| line.unwrap() == "over"));
    let rest = thread::spawn(move || lines.for_each(drop));
    // Until the shell has ended, the signal is forwarded to it.
    until(|| {
        let process = recording.0.id().to_string();
        let _ = Command::new("kill").args(["-INT", &process]).status();
        recording
            .0
            .try_wait()
            .unwrap()
            .ok_or_else(|| "the command still runs".into())
    });
    rest.join().unwrap();
    let (messages, code) = recording.end();
    assert_eq!(code.code(), Some(130), "{messages}");
    let kept = written(folder.path()).expect("the folder is kept");
    assert!(
        messages.contains(&format!(
            "interrupted; the unmerged recording is in {}",
            kept.display()
        )),
        "{messages}"
    );
    let summary = printed(telegrad(folder.path(), &["trace", "summary"]).arg(kept));
    assert!(
        summary.contains("(client -> server)") && !summary.contains("are missing"),
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
fn signals_to_the_command_end_the_program() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 143)] {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo begun; exec sleep 1000";
        let mut recording = Recording::start(&mut in_folder(
            folder.path(),
            &["trace", "record", "--", "sh", "-c", script],
        ));
        let mut lines = recording.lines();
        assert_eq!(lines.next().unwrap().unwrap(), "begun");
        // To this process alone, as a supervisor does.
        let process = recording.0.id().to_string();
        let send = |signal: &str| {
            let sent = Command::new("kill").args(["-s", signal, &process]).status();
            assert!(sent.unwrap().success());
        };
        send(signal);
        if signal == "HUP" && ignores_hangup("self") {
            // These tests run under `nohup`, which children inherit.
            assert!(ignores_hangup(&process), "the command has undone `nohup`");
            send("TERM");
        }
        until(|| {
            let ended = recording.0.try_wait().unwrap();
            ended.ok_or_else(|| format!("the command still runs after {signal}"))
        });
        let (messages, status) = recording.end();
        assert_eq!(status.code(), Some(code), "{messages}");
        assert!(messages.contains("sh failed: signal"), "{messages}");
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "nothing is left behind");
    }
}

#[test]
fn the_command_survives_its_terminal_under_nohup() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("trap '' HUP; exec {PROGRAM} trace record -- sh -c 'echo begun; exec sleep 1000'");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(folder.path());
    let mut recording = Recording::start(command.env("TMPDIR", folder.path()));
    assert_eq!(recording.lines().next().unwrap().unwrap(), "begun");
    assert!(
        ignores_hangup(&recording.0.id().to_string()),
        "SIGHUP is not ignored"
    );
}

#[test]
fn the_program_gets_ctrl_c_once() {
    let folder = tempfile::tempdir().unwrap();
    let [messages, process] = ["messages", "process"].map(|name| folder.path().join(name));
    // Writes each signal to a file, and runs until SIGTERM. A second SIGINT per Ctrl-C would show there.
    let script = format!(
        "trap \"echo INT >> {0}\" INT; trap \"echo TERM >> {0}; exit 0\" TERM; echo $PPID > {1}; echo begun; while :; do sleep 0.1; done",
        messages.display(),
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
    let read = || std::fs::read_to_string(&messages).unwrap_or_default();
    for count in 1..=3 {
        terminal.tmux(&["send-keys", "-t", "it", "C-c"]);
        until(|| {
            let messages = read();
            (messages.lines().count() >= count).then_some(()).ok_or(messages)
        });
    }
    let process = std::fs::read_to_string(process).unwrap();
    let sent = Command::new("kill").arg(process.trim()).status();
    assert!(sent.unwrap().success());
    until(|| {
        let messages = read();
        messages.contains("TERM").then_some(()).ok_or(messages)
    });
    assert_eq!(read(), "INT\nINT\nINT\nTERM\n");
}
