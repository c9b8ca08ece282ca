//! The output of workers.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};

use crate::launcher::{Launcher, open_pidfd, run_sh, telegrad, wait_for};

#[test]
fn standard_output_and_error_stay_separate() {
    let outcome = run_sh("-n 1", "echo out; echo err >&2").wait();
    assert_eq!(outcome.stdout, ["worker0 | out"]);
    assert_eq!(outcome.stderr, ["worker0 | err"]);
}

#[test]
fn a_last_line_without_newline_is_printed() {
    let outcome = run_sh("-n 1", "echo one; printf two").wait();
    assert_eq!(outcome.stdout, ["worker0 | one", "worker0 | two"]);
}

#[test]
fn bytes_other_than_utf8_are_passed_on() {
    let mut command = telegrad(["run", "-n", "1", "--", "printf", "\\377\\001\\n"]);
    assert_eq!(command.output().unwrap().stdout, b"worker0 | \xff\x01\n");
}

#[test]
fn long_lines_of_many_workers_are_not_interleaved() {
    // Lines larger than a pipe buffer, from workers that write concurrently.
    let script = "i=0; while [ $i -lt 20 ]; do printf '%0100000d%s\\n' 7 $TELEGRAD_NAME; i=$((i+1)); done";
    let outcome = run_sh("--names a,b,c,d", script).wait();
    assert_eq!(outcome.stdout.len(), 80);
    for line in outcome.stdout {
        let (name, rest) = line.split_once(" | ").unwrap();
        assert_eq!(rest.len(), 100_001);
        assert!(
            rest.ends_with(&format!("07{name}")),
            "a line of `{name}` ends with another's"
        );
    }
}

#[test]
fn output_before_a_failure_is_complete() {
    let outcome = run_sh("-n 1", "seq 1 20000; exit 3").wait();
    assert_eq!(outcome.stdout.len(), 20_000);
    assert_eq!(outcome.stdout.last().unwrap(), "worker0 | 20000");
    assert_eq!(outcome.code, Some(3));
}

#[test]
fn workers_continue_when_the_reader_is_closed() {
    let mut command = telegrad(["run", "-n", "1", "--", "sh", "-c", "seq 1 100000; echo end >&2"]);
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdout(writer);
    let world = Launcher::start(command);
    drop(reader);
    let outcome = world.wait();
    assert_eq!(outcome.stderr, ["worker0 | end"]);
    assert_eq!(outcome.code, Some(0));
}

#[test]
fn processes_that_a_worker_leaves_behind_are_killed() {
    // The sleeping process keeps the output open after its worker has ended.
    let world = run_sh("-n 1 --grace 0.1", "sleep 1000 & echo $!; exit 0");
    let left_behind = open_pidfd(world.line().strip_prefix("worker0 | ").unwrap().parse().unwrap());
    assert_eq!(world.wait().code, Some(0));
    wait_for(left_behind, "the process left behind");
}

#[test]
fn a_pipe_gets_no_colours() {
    let outcome = run_sh("-n 1", "echo x; echo y >&2").wait();
    assert_eq!(
        (outcome.stdout, outcome.stderr),
        (vec!["worker0 | x".into()], vec!["worker0 | y".into()])
    );
}

#[test]
fn a_terminal_gets_a_colour_for_each_worker() {
    let text = on_a_terminal(None);
    assert!(text.contains("\x1b[36ma |\x1b[0m x\r\n"), "{text:?}");
    assert!(text.contains("\x1b[33mb |\x1b[0m x\r\n"), "{text:?}");
}

#[test]
fn no_color_is_respected() {
    let text = on_a_terminal(Some("1"));
    assert!(text.contains("a | x\r\n") && !text.contains('\x1b'), "{text:?}");
}

/// The output of two workers that print `x`, on a terminal.
fn on_a_terminal(no_color: Option<&str>) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&terminal).unwrap();
    let inside = ioctl_tiocgptpeer(&terminal, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    let mut command = telegrad(["run", "--names", "a,b", "--", "sh", "-c", "echo x"]);
    command
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .stdout(Stdio::from(inside));
    command.envs(no_color.map(|value| ("NO_COLOR", value)));
    assert_eq!(Launcher::start(command).wait().code, Some(0));
    // Once all handles of the terminal are closed, reading ends with an error after the last byte.
    let mut bytes = Vec::new();
    let _ = File::from(terminal).read_to_end(&mut bytes);
    String::from_utf8(bytes).unwrap()
}
