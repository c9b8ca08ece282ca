//! `telegrad doctor`, with worlds of this very process to look at (S59).
//!
//! Those that are stuck stay so until the process ends, so that however slow the machine is, there is time to look.

mod waiting;

use std::process::{Command, Output};
use std::sync::mpsc::channel;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use telegrad::prelude::*;
use telegrad::status;

use super::{LIMIT, PROGRAM, Running, text, until};
use waiting::*;

/// What a worker does.
type Body = Box<dyn FnOnce(&World) + Send>;

/// A world of workers `a`, `b` and `c`, of which `a` does something that does not end; its number.
fn world(place: &str, body: impl FnOnce(&World) + Send + 'static) -> String {
    let nothing = || Box::new(|_: &World| ()) as Body;
    world_of(place, [Box::new(body), nothing(), nothing()])
}

/// A world of workers `a`, `b` and `c` that do this; its number.
fn world_of(place: &str, bodies: [Body; 3]) -> String {
    let (sender, number) = channel();
    for ((rank, name), body) in ["a", "b", "c"].into_iter().enumerate().zip(bodies) {
        let options = Options {
            init_method: format!("mem://{place}?rank={rank}&world_size=3"),
            show_status: true,
            // So that they can be held up.
            num_worker_threads: 1,
            window: 64 << 10,
            ..Options::default()
        };
        let sender = sender.clone();
        thread::spawn(move || {
            let world = telegrad::init_with(name, options).unwrap();
            // Those that come later are not listened to.
            let _ = sender.send(format!("{:x}", world.status().world));
            body(&world);
            // It may be long in coming: the process does not wait for it.
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

/// Asks about a world until the exit code is this one; what it says then.
fn says(code: i32, world: &str, older: &str) -> String {
    until(|| {
        let output = doctor(&["--world", world, "--older", older]);
        let said = text(&output.stdout);
        match output.status.code() {
            Some(found) if found == code => Ok(said),
            found => Err(format!("{found:?}\n{said}{}", text(&output.stderr))),
        }
    })
}

/// Asks until it says this, with this exit code.
fn says_that(code: i32, world: &str, expected: &str) -> String {
    until(|| {
        let said = says(code, world, "0.3");
        if said.contains(expected) {
            Ok(said)
        } else {
            Err(format!("no {expected} in\n{said}"))
        }
    })
}

fn of(function: &str) -> String {
    format!("`views::doctor::waiting::{function}`")
}

#[test]
fn a_cycle_is_named() {
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
    let said = says_that(4, &stuck, &cycle);
    assert!(said.starts_with("3 of 3 workers answer"), "{said}");
    let leaving = "2 of 3 workers wait in the shutdown for all others: `b`, `c`";
    assert!(said.contains(leaving), "{said}");
    for line in [
        "`a` has been waiting for ",
        "  for `views::doctor::waiting::Slot::first` on `a`",
        "      for `views::doctor::waiting::third` on `c`",
        "which has not begun",
    ] {
        assert!(said.contains(line), "no {line} in\n{said}");
    }
}

/// Has an egg laid that needs itself; a reference to it.
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
fn a_cycle_is_named_that_somebody_waits_for() {
    let endless = world("awaited", |world| {
        let egg = endless(world).unwrap();
        let _ = egg.rpc_sync(Egg::hatch, ());
    });
    let said = says_that(4, &endless, &cycle_of_an_egg());
    assert!(
        said.contains("for `views::doctor::waiting::Egg::lay` on `b`, which makes it since"),
        "{said}"
    );
}

#[test]
fn a_cycle_is_named_that_nobody_waits_for() {
    let endless = world("unattended", |world| {
        let _egg = endless(world).unwrap();
        GATE.wait();
    });
    says_that(4, &endless, &cycle_of_an_egg());
}

#[test]
fn a_cycle_is_named_that_goes_by_way_of_room() {
    let full = world("room", |world| {
        let slot = world.remote("b", Slot::new, ()).unwrap();
        let _ = slot.rpc_sync(Slot::ask, (slot.clone(),));
    });
    let take = format!("{} on `b`", of("Slot::take"));
    let cycle = format!(
        "cycle: {} on `b` waits for {} on `a` waits for {take} waits for {take}, which cannot begin before the first has returned",
        of("Slot::ask"),
        of("flood"),
    );
    let said = says_that(4, &full, &cycle);
    assert_eq!(said.matches("cycle: ").count(), 1, "{said}");
    assert!(
        said.contains("which has not been sent: there is no room for more calls there"),
        "{said}"
    );
}

#[test]
fn what_only_takes_long_is_no_cycle() {
    let slow = world("slow", |world| world.rpc_sync("b", hold, ()).unwrap());
    let said = says(3, &slow, "0.2");
    assert!(
        said.contains("for `views::doctor::waiting::hold` on `b`") && said.contains("which runs"),
        "{said}"
    );
    assert!(!said.contains("cycle"), "{said}");
    let said = says(0, &slow, "1000");
    assert!(said.contains("nothing has been under way for long"), "{said}");
}

#[test]
fn what_is_not_waited_for_is_no_cycle() {
    let busy = world("busy", |world| {
        let slot = world.remote("b", Slot::new, ()).unwrap();
        slot.rpc_sync(Slot::go_on, (slot.clone(),)).unwrap();
    });
    // Until all three calls are old.
    let said = until(|| {
        let said = says(3, &busy, "0.3");
        let last = said
            .matches("for `views::doctor::waiting::Slot::last` on `b`")
            .count();
        if last == 2 { Ok(said) } else { Err(said) }
    });
    // Not even a possible one: what waits for its turn holds nothing.
    assert!(!said.contains("cycle"), "{said}");
    assert!(said.contains("`b` has had a call under way for "), "{said}");
}

#[test]
fn what_comes_back_to_where_it_began_may_be_a_cycle() {
    let back = world("back", |world| {
        let _ = world.rpc_sync("b", round, (vec!["c".to_owned(), "a".to_owned()],));
    });
    let said = says_that(
        3,
        &back,
        "possible cycle: `a` waits for `views::doctor::waiting::round` on `b` waits for `views::doctor::waiting::round` on `c` waits for \
         `views::doctor::waiting::round` on `a`: if that waits there for anything that the first holds, a lock say, none of them can go \
         on",
    );
    assert!(!said.contains("\ncycle"), "{said}");
}

#[test]
fn what_waits_for_a_thread_is_no_cycle() {
    let busy = world("thread", |world| {
        let slot = world.remote("b", Slot::new, ()).unwrap();
        let look = slot.rpc_async(Slot::look, (slot.clone(),)).unwrap();
        // It takes the thread that the other gives back while it waits.
        let hold = world.rpc_async("b", hold, ()).unwrap();
        let _ = (look.wait(), hold.wait());
    });
    let said = until(|| {
        let said = says(3, &busy, "0.3");
        let queued = "which has not begun: it waits for a thread";
        if said.contains(&format!("for {} on `b`", of("Slot::glance"))) && said.contains(queued) {
            Ok(said)
        } else {
            Err(said)
        }
    });
    assert!(!said.contains("cycle"), "{said}");
}

#[test]
fn what_is_not_waited_for_any_more_is_no_cycle() {
    let busy = world("given-up", |world| {
        let slot = world.remote("b", Slot::new, ()).unwrap();
        slot.rpc_sync(Slot::give_up, (slot.clone(),)).unwrap();
    });
    let said = says_that(3, &busy, &format!("for {} on `b`", of("Slot::last")));
    assert!(!said.contains("cycle"), "{said}");
}

#[test]
fn a_barrier_that_somebody_does_not_come_to_is_told() {
    let wait = || Box::new(|world: &World| drop(world.barrier())) as Body;
    let other = Box::new(|_: &World| GATE.wait());
    let missing = world_of("barrier", [wait(), other, wait()]);
    let said = says_that(
        3,
        &missing,
        "`a`, `c` have been waiting for all others, at a barrier or in a gathering, for ",
    );
    assert!(said.contains(" s: `b` has not come\n"), "{said}");
    assert!(!said.contains("nothing has been under way"), "{said}");
}

#[test]
fn worlds_of_one_process_are_told_apart() {
    let numbers = ["one", "other"].map(|place| world(place, |_| GATE.wait()));
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
        let said = says(0, number, "1000");
        assert!(said.starts_with("3 of 3 workers answer"), "{said}");
    }
    let gone = doctor(&["--world", "0"]);
    assert_eq!(gone.status.code(), Some(1));
    let errors = text(&gone.stderr);
    assert!(
        errors.contains("world 0 has no worker that can be seen"),
        "{errors}"
    );
}

/// A process that is stopped neither answers nor holds up those that ask the others.
#[test]
fn a_worker_that_is_stopped_is_said_to_be_silent() {
    let running = Running::start(&[]);
    let of_run = running.process();
    until(|| {
        let said = text(&doctor(&[&of_run]).stdout);
        if said.starts_with("2 of 2 workers answer") {
            Ok(())
        } else {
            Err(said)
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
    // More often than there is room for connections that nobody accepts would be too often; a few times must do.
    for _ in 0..3 {
        let said = text(&doctor(&[&of_run]).stdout);
        assert!(said.starts_with("1 of 2 workers answer"), "{said}");
        assert!(said.contains("no answer from rank "), "{said}");
    }
    // Where nobody answers, those that might are named.
    ours().for_each(|worker| signal(worker.process, Signal::STOP));
    let said = doctor(&[&of_run]);
    let errors = text(&said.stderr);
    assert_eq!(said.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("does not answer")
            && ours().all(|worker| errors.contains(&worker.process.to_string())),
        "{errors}"
    );
    ours().for_each(|worker| signal(worker.process, Signal::CONT));
}
