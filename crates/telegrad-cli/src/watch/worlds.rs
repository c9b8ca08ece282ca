//! The worlds on this machine.

use std::collections::BTreeMap;
use std::fmt::Write;

use telegrad::status::{self, Status};

use crate::Error;

/// Which world is meant.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Which {
    /// The process of any worker of the world, or of the `telegrad run` that has started it; needed when there are several worlds
    process: Option<u32>,

    /// The number of the world; needed when its processes have several
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    world: Option<u64>,
}

/// The number of a world, as it is shown.
fn number(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|error| error.to_string())
}

impl Which {
    /// The one that this process has started.
    pub(crate) fn of(process: u32) -> Self {
        Self {
            process: Some(process),
            world: None,
        }
    }

    fn is_of(self, worker: &Status) -> bool {
        let by_process = self
            .process
            .is_none_or(|process| worker.process == process || worker.started_by == Some(process));
        by_process && self.world.is_none_or(|world| worker.world == world)
    }
}

/// The workers of each world that is meant, by rank.
pub(crate) fn all(which: Which) -> Result<Vec<Vec<Status>>, Error> {
    let mut worlds: BTreeMap<u64, Vec<Status>> = BTreeMap::new();
    for worker in status::ask(&status::processes()?)? {
        worlds.entry(worker.world).or_default().push(worker);
    }
    let mut worlds: Vec<_> = worlds.into_values().collect();
    worlds.retain(|workers| workers.iter().any(|worker| which.is_of(worker)));
    for workers in &mut worlds {
        workers.sort_by_key(|worker| worker.rank);
    }
    Ok(worlds)
}

/// The workers of the one world that is meant, by rank.
pub(crate) fn find(which: Which) -> Result<Vec<Status>, Error> {
    let mut worlds = all(which)?;
    match (worlds.pop(), worlds.len()) {
        (Some(only), 0) => Ok(only),
        (Some(last), _) => {
            worlds.push(last);
            Err(several(&worlds).into())
        }
        (None, _) => Err(match which {
            Which {
                world: Some(world), ..
            } => format!("world {world:x} has no worker that can be seen"),
            Which {
                process: Some(process),
                ..
            } => format!("process {process} has no worker that can be seen"),
            Which { .. } => "there is no world to be seen on this machine: `telegrad run` starts one".into(),
        }
        .into()),
    }
}

/// That there are several, and how to tell them apart.
fn several(worlds: &[Vec<Status>]) -> String {
    let mut text = "there are several worlds; say which, by a process or with --world:".to_owned();
    for workers in worlds {
        let (Some(first), names) = (workers.first(), workers.iter().map(|worker| &*worker.name)) else {
            continue;
        };
        let names: Vec<_> = names.collect();
        // What is written to a text cannot fail.
        let _ = write!(
            text,
            "\n  process {}, world {:x}: {}",
            first.process,
            first.world,
            names.join(", ")
        );
    }
    text
}
