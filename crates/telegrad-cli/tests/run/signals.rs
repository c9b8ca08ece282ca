//! Signals to the launcher alone.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::launcher::{Launcher, open_pidfd, run_sh, telegrad, wait_for};

/// A worker that prints `ready`, and `got NAME` for a signal. Its sleep must not hold the output open.
const POLITE: &str = "trap 'echo got INT; exit 0' INT; trap 'echo got TERM; exit 0' TERM;
    sleep 1000 >/dev/null 2>&1 & echo ready; wait";

#[test]
fn an_interrupt_is_passed_on_to_every_worker() {
    let world = run_sh("-n 2", POLITE);
    assert_eq!(world.lines(2), ["worker0 | ready", "worker1 | ready"]);
    world.signal(Signal::INT);
    assert_eq!(world.lines(2), ["worker0 | got INT", "worker1 | got INT"]);
    let outcome = world.wait();
    assert_eq!((outcome.code, outcome.stderr), (Some(0), vec![]));
}

#[test]
fn a_request_to_terminate_is_passed_on_to_every_worker() {
    let world = run_sh("-n 2", POLITE);
    world.lines(2);
    world.signal(Signal::TERM);
    assert_eq!(world.lines(2), ["worker0 | got TERM", "worker1 | got TERM"]);
    assert_eq!(world.wait().code, Some(0));
}

#[test]
fn an_interrupted_world_exits_like_an_interrupted_program() {
    for (signal, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM")] {
        let world = run_sh("-n 2", "echo ready; exec sleep 1000");
        world.lines(2);
        world.signal(signal);
        let outcome = world.wait();
        assert_eq!(outcome.code, Some(128 + signal.as_raw()));
        assert_eq!(
            outcome.stderr,
            [format!("telegrad: ended by signal {} ({name})", signal.as_raw())]
        );
    }
}

#[test]
fn a_second_interrupt_kills() {
    // A shell defers a signal while it runs a program in the foreground, but not in `wait`.
    let script = "trap 'echo no' INT; sleep 1000 >/dev/null 2>&1 & echo ready; while :; do wait; done";
    let world = run_sh("-n 2 --grace 1000", script);
    world.lines(2);
    world.signal(Signal::INT);
    assert_eq!(world.lines(2), ["worker0 | no", "worker1 | no"]);
    world.signal(Signal::INT);
    let outcome = world.wait();
    assert_eq!(outcome.code, Some(130));
    assert_eq!(outcome.stderr, ["telegrad: ended by signal 2 (SIGINT)"]);
}

#[test]
fn the_grace_period_ends_workers_that_ignore_an_interrupt() {
    let world = run_sh(
        "-n 1 --grace 0.1",
        "trap '' INT; echo ready; while :; do sleep 1000; done",
    );
    world.line();
    world.signal(Signal::INT);
    let outcome = world.wait();
    assert_eq!(outcome.code, Some(130));
    assert_eq!(
        outcome.stderr,
        ["telegrad: ended by signal 2 (SIGINT); killed after the grace period: `worker0`"]
    );
}

#[test]
fn a_blocked_reader_does_not_delay_signals() {
    let mut command = telegrad([
        "run",
        "-n",
        "1",
        "--",
        "sh",
        "-c",
        "trap '' INT; echo go >&2; exec yes",
    ]);
    // Open, but never read.
    let (_reader, writer) = std::io::pipe().unwrap();
    command.stdout(writer);
    let world = Launcher::start(command);
    assert_eq!(world.error_line(), "worker0 | go");
    world.signal(Signal::INT);
    world.signal(Signal::TERM);
    assert!(world.wait().code > Some(128));
}

#[test]
fn a_world_started_with_nohup_survives_its_terminal() {
    let mut command = Command::new("sh");
    let script = "trap '' HUP; exec \"$@\"";
    let run = telegrad(["run", "-n", "1", "--", "sh", "-c", POLITE]);
    command.args(["-c", script, "sh"]).arg(run.get_program());
    command
        .args(run.get_args())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let world = Launcher::start(command);
    assert_eq!(world.line(), "worker0 | ready");
    world.signal(Signal::HUP);
    // A launcher that had ended on the hangup could not pass this on.
    world.signal(Signal::INT);
    assert_eq!(world.line(), "worker0 | got INT");
    assert_eq!(world.wait().code, Some(0));
}

#[test]
fn workers_die_with_a_killed_launcher() {
    let world = run_sh("-n 3", "echo $$; trap '' INT TERM HUP; exec sleep 1000");
    let workers: Vec<_> = world
        .lines(3)
        .iter()
        .map(|line| open_pidfd(line.split_once(" | ").unwrap().1.parse().unwrap()))
        .collect();
    world.signal(Signal::KILL);
    for worker in workers {
        wait_for(worker, "a worker of a killed launcher");
    }
}
