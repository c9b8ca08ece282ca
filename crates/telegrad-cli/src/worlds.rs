//! The worlds on this machine.

use std::collections::BTreeMap;

use telegrad::status::{self, Status};

use crate::Error;

/// The workers of each world that can be seen, by rank.
pub(crate) fn all() -> Result<Vec<Vec<Status>>, Error> {
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

/// The one world that there is, or that a process has a worker of.
pub(crate) fn one(process: Option<u32>) -> Result<Vec<Status>, Error> {
    let mut worlds = all()?;
    if let Some(process) = process {
        worlds.retain(|workers| workers.iter().any(|worker| worker.process == process));
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
