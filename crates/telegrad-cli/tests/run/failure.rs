//! Workers that fail, and the end of the others.

use crate::launcher::{Fifo, Launcher, open_pidfd, run_sh, telegrad, wait_for};

#[test]
fn the_exit_code_is_that_of_the_worker_that_failed() {
    // The others would run for long.
    let outcome = run_sh("--names a,b,c", "test $RANK = 1 && exit 3; exec sleep 1000").wait();
    assert_eq!(
        outcome.stderr,
        ["telegrad: worker `b` (rank 1) exited with status 3"]
    );
    assert_eq!(outcome.code, Some(3));
}

#[test]
fn a_worker_that_only_fails_a_test_fails_the_world() {
    let outcome = run_sh("-n 2", "test $RANK = 0").wait();
    assert_eq!(
        outcome.stderr,
        ["telegrad: worker `worker1` (rank 1) exited with status 1"]
    );
    assert_eq!(outcome.code, Some(1));
}

#[test]
fn a_worker_killed_by_a_signal_is_reported_with_the_signal() {
    let outcome = run_sh("-n 2", "test $RANK = 0 && kill -9 $$; exec sleep 1000").wait();
    assert_eq!(
        outcome.stderr,
        ["telegrad: worker `worker0` (rank 0) was killed by signal 9 (SIGKILL)"]
    );
    assert_eq!(outcome.code, Some(1));
}

#[test]
fn the_others_have_time_to_end() {
    let script = "test $RANK = 0 && { read x < $0; exit 1; }
        trap 'echo saved; exit 0' TERM; echo ready; sleep 1000 >/dev/null 2>&1 & echo go > $0; wait";
    let fifo = Fifo::new("others_end");
    let world = run_sh("-n 2", &fifo.in_script(script));
    assert_eq!(world.line(), "worker1 | ready");
    assert_eq!(world.line(), "worker1 | saved");
    assert_eq!(
        world.wait().stderr,
        ["telegrad: worker `worker0` (rank 0) exited with status 1"]
    );
}

#[test]
fn a_worker_that_does_not_end_in_time_is_killed() {
    let script = "test $RANK = 0 && { read x < $0; exit 1; }
        trap '' TERM; echo $$; echo go > $0; while :; do sleep 1000; done";
    let fifo = Fifo::new("killed");
    let world = run_sh("-n 2 --grace 0.2", &fifo.in_script(script));
    let stubborn = open_pidfd(world.line().strip_prefix("worker1 | ").unwrap().parse().unwrap());
    let outcome = world.wait();
    wait_for(stubborn, "the stubborn worker");
    let text = "exited with status 1; killed after the grace period: `worker1`";
    assert_eq!(
        outcome.stderr,
        [format!("telegrad: worker `worker0` (rank 0) {text}")]
    );
    assert_eq!(outcome.code, Some(1));
}

#[test]
fn a_program_that_cannot_start_is_reported_with_the_reason() {
    for (program, why) in [
        ("no-such-program", "there is no such program in PATH"),
        ("./no-such-program", "No such file or directory (os error 2)"),
        ("/", "Permission denied (os error 13)"),
    ] {
        let command = telegrad(["run", "-n", "2", "--", program]);
        let outcome = Launcher::start(command).wait();
        let line = format!("telegrad: cannot start `{program}` as worker `worker0` (rank 0): {why}");
        assert_eq!(outcome.stderr, [line]);
        assert_eq!(outcome.code, Some(1));
    }
}
