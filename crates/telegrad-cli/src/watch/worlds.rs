//! The worlds on this machine.

use std::collections::BTreeMap;

use telegrad::status::{self, Status};

use crate::Error;

/// Which world is meant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// The only one.
    Only,
    /// The one that this process has a worker of, or has started.
    Of(u32),
}

impl From<Option<u32>> for Which {
    fn from(process: Option<u32>) -> Self {
        process.map_or(Self::Only, Self::Of)
    }
}

/// The workers of each world that can be seen, by rank.
fn all() -> Result<Vec<Vec<Status>>, Error> {
    let mut worlds: BTreeMap<u64, Vec<Status>> = BTreeMap::new();
    for process in status::processes()? {
        // One that has just ended, or is another user's.
        for worker in status::ask(process).unwrap_or_default() {
            worlds.entry(worker.world).or_default().push(worker);
        }
    }
    let mut worlds: Vec<_> = worlds.into_values().collect();
    for workers in &mut worlds {
        workers.sort_by_key(|worker| worker.rank);
    }
    Ok(worlds)
}

/// The workers of this world that can be seen, by rank.
pub(crate) fn find(which: Which) -> Result<Vec<Status>, Error> {
    let mut worlds = all()?;
    if let Which::Of(process) = which {
        let is_of = |worker: &Status| worker.process == process || worker.started_by == Some(process);
        worlds.retain(|workers| workers.iter().any(is_of));
        return worlds
            .pop()
            .ok_or_else(|| format!("process {process} has no worker that can be seen").into());
    }
    match worlds.len() {
        0 => Err("there is no world to be seen on this machine: `telegrad run` starts one".into()),
        1 => Ok(worlds.remove(0)),
        _ => {
            let described = worlds.iter().map(|workers| {
                let names: Vec<_> = workers.iter().map(|worker| &*worker.name).collect();
                format!("\n  {} ({})", workers[0].process, names.join(", "))
            });
            let described: String = described.collect();
            Err(format!(
                "there are several worlds; say which, by a process of one of its workers:{described}"
            )
            .into())
        }
    }
}
