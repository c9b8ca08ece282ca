//! `telegrad doctor`, with worlds of this very process to look at.

use std::process::{Command, Output};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use telegrad::prelude::*;

/// Something that one method at a time runs on.
struct Slot;

#[remote]
impl Slot {
    fn new() -> Result<Self> {
        Ok(Self)
    }

    /// Has `b` do the rest.
    fn first(&mut self, this: RRef<Slot>) -> Result<u32> {
        World::current()?.rpc_sync("b", second, (this,))
    }

    fn last(&mut self) -> u32 {
        4
    }
}

#[remote]
fn second(slot: RRef<Slot>) -> Result<u32> {
    World::current()?.rpc_sync("c", third, (slot,))
}

/// Comes back to where it all began.
#[remote]
fn third(slot: RRef<Slot>) -> Result<u32> {
    slot.rpc_sync(Slot::last, ())
}

#[remote]
fn sleep(milliseconds: u64) {
    thread::sleep(Duration::from_millis(milliseconds));
}

/// The worlds of workers `a`, `b` and `c`, of which `a` does something; and how to end it.
fn world(place: &str, body: impl FnOnce(&World) + Send + 'static) -> Vec<JoinHandle<()>> {
    let mut body = Some(body);
    let members = ["a", "b", "c"].into_iter().enumerate();
    members
        .map(|(rank, name)| {
            let options = Options {
                init_method: format!("mem://{place}?rank={rank}&world_size=3"),
                show_status: true,
                ..Options::default()
            };
            let body = body.take();
            thread::spawn(move || {
                let world = telegrad::init_with(name, options).unwrap();
                if let Some(body) = body {
                    body(&world);
                }
                world.shutdown().unwrap();
            })
        })
        .collect()
}

fn doctor(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_telegrad"));
    command.arg("doctor").args(args).output().expect("it starts")
}

/// Asks until the exit code is this one; what it says then.
fn until(code: i32, args: &[&str]) -> String {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let output = doctor(args);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.code() == Some(code) {
            return text;
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(Instant::now() < end, "{:?}\n{text}{errors}", output.status);
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_cycle_is_named_and_what_only_takes_long_is_not() {
    let process = std::process::id().to_string();
    let stuck = world("cycle", |world| {
        let slot = world.remote("a", Slot::new, ()).unwrap();
        let hasty = slot.with_timeout(Duration::from_secs(5));
        hasty.rpc_sync(Slot::first, (slot.clone(),)).unwrap_err();
    });
    let text = until(4, &[&process, "--older", "0"]);
    let of = |function: &str| format!("`doctor::{function}`");
    let cycle = format!(
        "cycle: {} on `a` waits for {} on `b` waits for {} on `c` waits for {} on `a`, which cannot begin before the first \
         has returned",
        of("Slot::first"),
        of("second"),
        of("third"),
        of("Slot::last"),
    );
    assert!(text.contains(&cycle), "{text}");
    assert!(text.starts_with("3 of 3 workers answer"), "{text}");
    let gathered = "2 of 3 workers wait for all others, at a barrier or in the shutdown: `b`, `c`";
    assert!(text.contains(gathered), "{text}");
    for line in [
        "`a` has been waiting for ",
        "  for `doctor::Slot::first` on `a`",
        "      for `doctor::third` on `c`",
        "which has not begun",
    ] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
    for member in stuck {
        member.join().unwrap();
    }

    let slow = world("slow", |world| {
        world.rpc_sync("b", sleep, (3000,)).unwrap();
    });
    let text = until(3, &[&process, "--older", "0.2"]);
    assert!(
        text.contains("for `doctor::sleep` on `b`") && text.contains("which runs"),
        "{text}"
    );
    assert!(!text.contains("cycle"), "{text}");
    let text = until(0, &[&process, "--older", "1000"]);
    assert!(text.contains("nothing has been under way for long"), "{text}");
    for member in slow {
        member.join().unwrap();
    }
    let gone = doctor(&[&process]);
    assert_eq!(gone.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&gone.stderr);
    assert!(errors.contains("has no worker that can be seen"), "{errors}");
}
