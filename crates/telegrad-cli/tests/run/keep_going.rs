//! `--keep-going`: workers that fail, and others that continue.

use rustix::process::Signal;

use crate::launcher::{Fifo, run_sh};

#[test]
fn the_others_continue_and_the_exit_code_is_that_of_the_failure() {
    let fifo = Fifo::new("go_on");
    let script = "test $RANK = 1 && exit 3; read x < $0; echo done $x";
    let world = run_sh("--names a,b --keep-going", &fifo.in_script(script));
    let message = "telegrad: worker `b` (rank 1) exited with status 3";
    assert_eq!(world.error_line(), format!("{message}; 1 other continues"));
    // The other one can end only now, so it has survived the failure.
    fifo.write("now\n");
    assert_eq!(world.line(), "a | done now");
    let outcome = world.wait();
    assert_eq!(
        (outcome.code, outcome.stderr),
        (Some(3), vec![message.to_owned()])
    );
}

#[test]
fn failures_are_reported_in_the_order_of_their_ends() {
    let fifo = Fifo::new("order");
    let script = "case $RANK in 2) kill -9 $$;; 0) read x < $0; exit 7;; esac; exec sleep 1000";
    let world = run_sh("-n 3 --keep-going", &fifo.in_script(script));
    let last = "`worker2` (rank 2) was killed by signal 9 (SIGKILL)";
    assert_eq!(
        world.error_line(),
        format!("telegrad: worker {last}; 2 others continue")
    );
    fifo.write("now\n");
    let first = "`worker0` (rank 0) exited with status 7";
    assert_eq!(
        world.error_line(),
        format!("telegrad: worker {first}; 1 other continues")
    );
    world.signal(Signal::TERM);
    let outcome = world.wait();
    assert_eq!(
        outcome.stderr,
        [format!("telegrad: 2 workers failed: {last}, {first}")]
    );
    assert_eq!(
        outcome.code,
        Some(1),
        "the first was killed by a signal, so it has no status"
    );
}

#[test]
fn the_failure_of_the_only_worker_reports_no_others() {
    let outcome = run_sh("-n 1 --keep-going", "exit 4").wait();
    let message = "telegrad: worker `worker0` (rank 0) exited with status 4";
    assert_eq!(
        outcome.stderr,
        [message, message],
        "once at the failure, and once at the end"
    );
    assert_eq!(outcome.code, Some(4));
}

#[test]
fn a_world_without_failures_succeeds() {
    let outcome = run_sh("-n 2 --keep-going", "exit 0").wait();
    assert_eq!((outcome.code, outcome.stderr), (Some(0), vec![]));
}

#[test]
fn an_interrupt_after_a_failure_ends_the_others() {
    let script = "test $RANK = 0 && exit 3; trap 'echo got INT; exit 0' INT;
        sleep 1000 >/dev/null 2>&1 & echo ready; wait";
    let world = run_sh("-n 3 --keep-going", script);
    world.error_line();
    assert_eq!(world.lines(2), ["worker1 | ready", "worker2 | ready"]);
    world.signal(Signal::INT);
    assert_eq!(world.lines(2), ["worker1 | got INT", "worker2 | got INT"]);
    let outcome = world.wait();
    assert_eq!(
        outcome.stderr,
        ["telegrad: worker `worker0` (rank 0) exited with status 3"]
    );
    assert_eq!(outcome.code, Some(3), "the others have succeeded");
}

#[test]
fn an_interrupted_world_exits_like_an_interrupted_program() {
    let world = run_sh("-n 2 --keep-going", "echo ready; exec sleep 1000");
    world.lines(2);
    world.signal(Signal::INT);
    let outcome = world.wait();
    // The signal that was passed on is not a failure of the workers.
    assert_eq!(outcome.stderr, ["telegrad: ended by signal 2 (SIGINT)"]);
    assert_eq!(outcome.code, Some(130));
}
