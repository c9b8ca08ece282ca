//! `telegrad doctor` on worlds of this process (S59).
//!
//! Deadlocked worlds stay so until the process ends, so that slow machines have enough time.

mod waiting;

use std::process::{Command, Output};
use std::sync::mpsc::channel;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use telegrad::prelude::*;
use telegrad::status;

use super::{LIMIT, PROGRAM, Running, text, until};
use waiting::*;

/// The program of a worker.
type Body = Box<dyn FnOnce(&World) + Send>;

/// Starts a world of workers `a`, `b` and `c`, of which `a` runs a program; returns the id of the world.
fn world(name: &str, body: impl FnOnce(&World) + Send + 'static) -> String {
    let nothing = || Box::new(|_: &World| ()) as Body;
    world_of(name, [Box::new(body), nothing(), nothing()])
}

/// Starts a world of workers `a`, `b` and `c` with these programs; returns the id of the world.
fn world_of(world_name: &str, bodies: [Body; 3]) -> String {
    let (sender, number) = channel();
    for ((rank, name), body) in ["a", "b", "c"].into_iter().enumerate().zip(bodies) {
        let options = Options {
            init_method: format!("mem://{world_name}?rank={rank}&world_size=3"),
            show_status: true,
            // Small, so that requests have to queue.
            num_worker_threads: 1,
            window: 64 << 10,
            ..Options::default()
        };
        let sender = sender.clone();
        thread::spawn(move || {
            let world = telegrad::init_with(name, options).unwrap();
            // The receiver takes only the first.
            let _ = sender.send(format!("{:x}", world.status().world));
            body(&world);
            // May not return: the process does not wait for it.
            let _ = world.shutdown();
        });
    }
    number.recv_timeout(LIMIT).unwrap()
}

pub(super) fn doctor(args: &[&str]) -> Output {
    Command::new(PROGRAM)
        .arg("doctor")
        .args(args)
        .output()
        .expect("it starts")
}

/// Runs `doctor` on a world until it exits with this code; returns the report.
fn report_with_code(code: i32, world: &str, older: &str) -> String {
    until(|| {
        let output = doctor(&["--world", world, "--older", older]);
        let report = text(&output.stdout);
        match output.status.code() {
            Some(found) if found == code => Ok(report),
            found => Err(format!("{found:?}\n{report}{}", text(&output.stderr))),
        }
    })
}

/// Runs `doctor` until it exits with this code and its report has this text.
fn report_with_text(code: i32, world: &str, expected: &str) -> String {
    until(|| {
        let report = report_with_code(code, world, "0.3");
        if report.contains(expected) {
            Ok(report)
        } else {
            Err(format!("no {expected} in\n{report}"))
        }
    })
}

fn of(function: &str) -> String {
    format!("`views::doctor::waiting::{function}`")
}

#[test]
fn a_cycle_is_reported() {
    let stuck = world("cycle", |world| {
        let slot = world.remote("a", Slot::new, ()).unwrap();
        let _ = slot.rpc_sync(Slot::first, (slot.clone(),));
    });
    let cycle = format!(
        "cycle: {} on `a` waits for {} on `b` waits for {} on `c` waits for {} on `a`, which cannot begin before the first \
         has returned",
        of("Slot::first"),
        of("second"),
        of("third"),
        of("Slot::last"),
    );
    let report = report_with_text(4, &stuck, &cycle);
    assert!(report.starts_with("3 of 3 workers answer"), "{report}");
    let leaving = "2 of 3 workers are in shutdown and wait for the others: `b`, `c`";
    assert!(report.contains(leaving), "{report}");
    for line in [
        "`a` has waited for ",
        "  for `views::doctor::waiting::Slot::first` on `a`",
        "      for `views::doctor::waiting::third` on `c`",
        "which has not begun",
    ] {
        assert!(report.contains(line), "no {line} in\n{report}");
    }
}

/// Creates a value whose constructor waits for the value itself.
fn endless(world: &World) -> Result<RRef<Egg>> {
    let nest = world.remote("c", Nest::build, ())?;
    let egg = world.remote("b", Egg::lay, (nest.clone(),))?;
    nest.rpc_sync(Nest::put, (egg.clone(),))?;
    Ok(egg)
}

fn cycle_of_an_egg() -> String {
    format!(
        "cycle: {} on `b` waits for {} on `c` waits for {} on `b`, which cannot begin before the first has returned",
        of("Egg::lay"),
        of("Nest::hatch"),
        of("Egg::hatch"),
    )
}

#[test]
fn a_cycle_that_a_caller_waits_for_is_reported() {
    let endless = world("awaited", |world| {
        let egg = endless(world).unwrap();
        let _ = egg.rpc_sync(Egg::hatch, ());
    });
    let report = report_with_text(4, &endless, &cycle_of_an_egg());
    assert!(
        report.contains("for `views::doctor::waiting::Egg::lay` on `b`, requested "),
        "{report}"
    );
}

#[test]
fn a_cycle_that_no_caller_waits_for_is_reported() {
    let endless = world("unattended", |world| {
        let _egg = endless(world).unwrap();
        GATE.wait();
    });
    report_with_text(4, &endless, &cycle_of_an_egg());
}

#[test]
fn a_cycle_through_credit_is_reported() {
    let full = world("credit", |world| {
        let slot = world.remote("b", Slot::new, ()).unwrap();
        let _ = slot.rpc_sync(Slot::ask, (slot.clone(),));
    });
    let take = format!("{} on `b`", of("Slot::take"));
    let cycle = format!(
        "cycle: {} on `b` waits for {} on `a` waits for {take} waits for {take}, which cannot begin before the first has returned",
        of("Slot::ask"),
        of("flood"),
    );
    let report = report_with_text(4, &full, &cycle);
    assert_eq!(report.matches("cycle: ").count(), 1, "{report}");
    assert!(
        report.contains("which has not been sent: it waits for credit from the callee"),
        "{report}"
    );
}

#[test]
fn a_slow_call_is_not_a_cycle() {
    let slow = world("slow", |world| world.rpc_sync("b", hold, ()).unwrap());
    let report = report_with_code(3, &slow, "0.2");
    assert!(
        report.contains("for `views::doctor::waiting::hold` on `b`") && report.contains("which runs"),
        "{report}"
    );
    assert!(!report.contains("cycle"), "{report}");
    let report = report_with_code(0, &slow, "1000");
    assert!(report.contains("no call has been in flight for long"), "{report}");
}

#[test]
fn calls_without_a_waiter_are_not_a_cycle() {
    let busy = world("busy", |world| {
        let slot = world.remote("b", Slot::new, ()).unwrap();
        slot.rpc_sync(Slot::proceed, (slot.clone(),)).unwrap();
    });
    // Waits until all three calls are old.
    let report = until(|| {
        let report = report_with_code(3, &busy, "0.3");
        let last = report
            .matches("for `views::doctor::waiting::Slot::last` on `b`")
            .count();
        if last == 2 { Ok(report) } else { Err(report) }
    });
    // Not even a possible one: a call that waits for its turn holds nothing.
    assert!(!report.contains("cycle"), "{report}");
    assert!(report.contains("`b` has had a call in flight for "), "{report}");
}

#[test]
fn a_chain_that_returns_to_its_start_is_a_possible_cycle() {
    let back = world("back", |world| {
        let _ = world.rpc_sync("b", round, (vec!["c".to_owned(), "a".to_owned()],));
    });
    let report = report_with_text(
        3,
        &back,
        "possible cycle: `a` waits for `views::doctor::waiting::round` on `b` waits for `views::doctor::waiting::round` on `c` waits for \
         `views::doctor::waiting::round` on `a`: if the last call waits for a resource that the first holds, such as a lock, none of them can \
         proceed",
    );
    assert!(!report.contains("\ncycle"), "{report}");
}

#[test]
fn a_wait_for_a_thread_is_not_a_cycle() {
    let busy = world("thread", |world| {
        let slot = world.remote("b", Slot::new, ()).unwrap();
        let look = slot.rpc_async(Slot::look, (slot.clone(),)).unwrap();
        // Takes the thread that the other call releases while it waits.
        let hold = world.rpc_async("b", hold, ()).unwrap();
        let _ = (look.wait(), hold.wait());
    });
    let report = until(|| {
        let report = report_with_code(3, &busy, "0.3");
        let queued = "which has not begun: it waits for a thread";
        if report.contains(&format!("for {} on `b`", of("Slot::glance"))) && report.contains(queued) {
            Ok(report)
        } else {
            Err(report)
        }
    });
    assert!(!report.contains("cycle"), "{report}");
}

#[test]
fn a_call_given_up_is_not_a_cycle() {
    let busy = world("given-up", |world| {
        let slot = world.remote("b", Slot::new, ()).unwrap();
        slot.rpc_sync(Slot::give_up, (slot.clone(),)).unwrap();
    });
    let report = report_with_text(3, &busy, &format!("for {} on `b`", of("Slot::last")));
    assert!(!report.contains("cycle"), "{report}");
}

#[test]
fn a_barrier_with_a_missing_worker_is_reported() {
    let wait = || Box::new(|world: &World| drop(world.barrier())) as Body;
    let other = Box::new(|_: &World| GATE.wait());
    let missing = world_of("barrier", [wait(), other, wait()]);
    let report = report_with_text(
        3,
        &missing,
        "`a`, `c` have waited at a barrier or in a gather for ",
    );
    assert!(report.contains(" s: `b` has not arrived\n"), "{report}");
    assert!(!report.contains("no call has been in flight"), "{report}");
}

#[test]
fn worlds_of_one_process_are_distinguished_by_id() {
    let numbers = ["one", "other"].map(|name| world(name, |_| GATE.wait()));
    let process = std::process::id().to_string();
    let either = until(|| {
        let output = doctor(&[&process]);
        let errors = text(&output.stderr);
        if numbers.iter().all(|number| errors.contains(&**number)) {
            Ok(errors)
        } else {
            Err(errors)
        }
    });
    assert!(either.contains("there are several worlds"), "{either}");
    for number in &numbers {
        let report = report_with_code(0, number, "1000");
        assert!(report.starts_with("3 of 3 workers answer"), "{report}");
    }
    let unknown = doctor(&["--world", "0"]);
    assert_eq!(unknown.status.code(), Some(1));
    let errors = text(&unknown.stderr);
    assert!(errors.contains("no worker of world 0 was found"), "{errors}");
}

/// A stopped process does not answer, and does not delay the answers of the others.
#[test]
fn a_stopped_worker_is_reported_as_silent() {
    let running = Running::start(&[]);
    let of_run = running.process();
    until(|| {
        let report = text(&doctor(&[&of_run]).stdout);
        if report.starts_with("2 of 2 workers answer") {
            Ok(())
        } else {
            Err(report)
        }
    });
    let processes = status::processes().unwrap();
    let started_by = running.run.id();
    let workers = status::ask(&processes, LIMIT, |_| false).unwrap().workers;
    let first = workers
        .iter()
        .find(|worker| worker.started_by == Some(started_by));
    let world = first.expect("it has a worker that answers").world;
    let ours = || workers.iter().filter(|worker| worker.world == world);
    let server = ours().find(|worker| worker.name == "server").unwrap();
    let signal = |process: u32, signal| {
        let process = Pid::from_raw(process as i32).unwrap();
        kill_process(process, signal).unwrap();
    };
    signal(server.process, Signal::STOP);
    // Three times: each request occupies the accept queue of the stopped process, which is bounded.
    for _ in 0..3 {
        let report = text(&doctor(&[&of_run]).stdout);
        assert!(report.starts_with("1 of 2 workers answer"), "{report}");
        assert!(report.contains("no answer from rank "), "{report}");
    }
    // If no process answers, the error names the silent ones.
    ours().for_each(|worker| signal(worker.process, Signal::STOP));
    let report = doctor(&[&of_run]);
    let errors = text(&report.stderr);
    assert_eq!(report.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("does not answer")
            && ours().all(|worker| errors.contains(&worker.process.to_string())),
        "{errors}"
    );
    ours().for_each(|worker| signal(worker.process, Signal::CONT));
}
