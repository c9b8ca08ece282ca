//! `telegrad doctor`, with worlds of this very process to look at.

use std::process::{Command, Output};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use telegrad::prelude::*;

use super::{PROGRAM, text, until};

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

/// A value that cannot be made without itself.
struct Egg;

/// Where the two meet.
#[derive(Default)]
struct Nest(Option<RRef<Egg>>);

#[remote]
impl Egg {
    fn lay(nest: RRef<Nest>) -> Result<Self> {
        while !nest.rpc_sync(Nest::is_full, ())? {
            thread::sleep(Duration::from_millis(5));
        }
        let hasty = nest.with_timeout(Duration::from_secs(5));
        hasty.rpc_sync(Nest::hatch, ())?;
        Ok(Self)
    }

    fn hatch(&self) -> u32 {
        1
    }
}

#[remote]
impl Nest {
    fn build() -> Result<Self> {
        Ok(Self::default())
    }

    fn put(&mut self, egg: RRef<Egg>) {
        self.0 = Some(egg);
    }

    fn is_full(&self) -> bool {
        self.0.is_some()
    }

    fn hatch(&self) -> Result<u32> {
        let egg = self.0.as_ref().ok_or_else(|| Error::other("it is empty"))?;
        egg.rpc_sync(Egg::hatch, ())
    }
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
    Command::new(PROGRAM)
        .arg("doctor")
        .args(args)
        .output()
        .expect("it starts")
}

/// Asks until the exit code is this one; what it says then.
fn says(code: i32, args: &[&str]) -> String {
    until(|| {
        let output = doctor(args);
        let said = text(&output.stdout);
        match output.status.code() {
            Some(found) if found == code => Ok(said),
            found => Err(format!("{found:?}\n{said}{}", text(&output.stderr))),
        }
    })
}

#[test]
fn a_cycle_is_named_and_what_only_takes_long_is_not() {
    let process = std::process::id().to_string();
    let stuck = world("cycle", |world| {
        let slot = world.remote("a", Slot::new, ()).unwrap();
        let hasty = slot.with_timeout(Duration::from_secs(5));
        hasty.rpc_sync(Slot::first, (slot.clone(),)).unwrap_err();
    });
    let said = says(4, &[&process, "--older", "0.3"]);
    let of = |function: &str| format!("`views::doctor::{function}`");
    let cycle = format!(
        "cycle: {} on `a` waits for {} on `b` waits for {} on `c` waits for {} on `a`, which cannot begin before the first \
         has returned",
        of("Slot::first"),
        of("second"),
        of("third"),
        of("Slot::last"),
    );
    assert!(said.contains(&cycle), "{said}");
    assert!(said.starts_with("3 of 3 workers answer"), "{said}");
    let gathered = "2 of 3 workers wait for all others, at a barrier or in the shutdown: `b`, `c`";
    assert!(said.contains(gathered), "{said}");
    for line in [
        "`a` has been waiting for ",
        "  for `views::doctor::Slot::first` on `a`",
        "      for `views::doctor::third` on `c`",
        "which has not begun",
    ] {
        assert!(said.contains(line), "no {line} in\n{said}");
    }
    for member in stuck {
        member.join().unwrap();
    }

    let endless = world("endless", |world| {
        let nest = world.remote("c", Nest::build, ()).unwrap();
        let egg = world.remote("b", Egg::lay, (nest.clone(),)).unwrap();
        nest.rpc_sync(Nest::put, (egg.clone(),)).unwrap();
        let hasty = egg.with_timeout(Duration::from_secs(5));
        hasty.rpc_sync(Egg::hatch, ()).unwrap_err();
    });
    let said = says(4, &[&process, "--older", "0.3"]);
    let cycle = format!(
        "cycle: {} on `b` waits for {} on `c` waits for {} on `b`, which cannot begin before the first has returned",
        of("Egg::lay"),
        of("Nest::hatch"),
        of("Egg::hatch"),
    );
    assert!(said.contains(&cycle), "{said}");
    assert!(
        said.contains("for `views::doctor::Egg::lay` on `b`, which makes it since"),
        "{said}"
    );
    for member in endless {
        member.join().unwrap();
    }

    let slow = world("slow", |world| {
        world.rpc_sync("b", sleep, (3000,)).unwrap();
    });
    let said = says(3, &[&process, "--older", "0.2"]);
    assert!(
        said.contains("for `views::doctor::sleep` on `b`") && said.contains("which runs"),
        "{said}"
    );
    assert!(!said.contains("cycle"), "{said}");
    let said = says(0, &[&process, "--older", "1000"]);
    assert!(said.contains("nothing has been under way for long"), "{said}");
    for member in slow {
        member.join().unwrap();
    }
    let gone = doctor(&[&process]);
    assert_eq!(gone.status.code(), Some(1));
    let errors = text(&gone.stderr);
    assert!(errors.contains("has no worker that can be seen"), "{errors}");
}
