//! Discovery of the worlds on this machine.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use telegrad::status::{self, Status};

use crate::Error;

/// Selects a world.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct WorldSelector {
    /// Process id of any worker of the world, or of the `telegrad run` that has started it; needed if there are several worlds
    process: Option<u32>,

    /// Id of the world, as the error about several worlds prints it; needed if a process has several
    #[arg(long, value_name = "ID", value_parser = world_id)]
    world: Option<u64>,
}

/// Parses the id of a world in the form in which it is printed.
fn world_id(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|_| "it must be a hexadecimal number".to_owned())
}

impl WorldSelector {
    /// The world that a process belongs to or has started.
    pub(crate) fn process(process: u32) -> Self {
        Self {
            process: Some(process),
            world: None,
        }
    }

    /// The world with this id.
    pub(crate) fn world(world: u64) -> Self {
        Self {
            process: None,
            world: Some(world),
        }
    }

    /// Whether these are all workers of the selected world. Without its id, more workers or worlds may exist.
    fn is_complete(self, workers: &[Status]) -> bool {
        let ours = workers.iter().filter(|worker| Some(worker.world) == self.world);
        let size = ours.clone().map(|worker| worker.size).max();
        size.is_some_and(|size| ours.count() >= size)
    }

    fn selects(self, worker: &Status) -> bool {
        let by_process = self
            .process
            .is_none_or(|process| worker.process == process || worker.started_by == Some(process));
        by_process && self.world.is_none_or(|world| worker.world == world)
    }
}

/// Time limit for the answer of a process.
const LIMIT: Duration = Duration::from_secs(2);

/// Time limit for a process that did not answer before, and the period for which it applies.
const BRIEF: Duration = Duration::from_millis(50);
const REMEMBERED: Duration = Duration::from_secs(10);

/// Asks the processes of this machine for their status.
#[derive(Default)]
pub(crate) struct Discovery {
    /// Processes that did not answer, with the time of the request: a stopped process is not waited for each time.
    silent: BTreeMap<u32, Instant>,
}

impl Discovery {
    /// Returns the workers of each selected world, by rank.
    pub(crate) fn worlds(&mut self, selector: WorldSelector) -> Result<Vec<Vec<Status>>, Error> {
        let processes = status::processes()?;
        self.silent.retain(|process, since| {
            since.elapsed() < REMEMBERED && processes.binary_search(process).is_ok()
        });
        let (silent, others): (Vec<u32>, Vec<u32>) = processes
            .into_iter()
            .partition(|process| self.silent.contains_key(process));
        let is_complete = |workers: &[Status]| selector.is_complete(workers);
        let answers = status::ask(&others, LIMIT, is_complete)?;
        let mut workers = answers.workers;
        let now = Instant::now();
        self.silent
            .extend(answers.silent.into_iter().map(|process| (process, now)));
        if !is_complete(&workers) {
            let late = status::ask(&silent, BRIEF, is_complete)?;
            self.silent
                .retain(|process, _| !silent.contains(process) || late.silent.contains(process));
            workers.extend(late.workers);
        }
        let mut worlds: BTreeMap<u64, Vec<Status>> = BTreeMap::new();
        for worker in workers {
            worlds.entry(worker.world).or_default().push(worker);
        }
        let mut worlds: Vec<_> = worlds.into_values().collect();
        worlds.retain(|workers| workers.iter().any(|worker| selector.selects(worker)));
        for workers in &mut worlds {
            workers.sort_by_key(|worker| worker.rank);
        }
        Ok(worlds)
    }

    /// Returns the workers of the one selected world, by rank.
    pub(crate) fn world(&mut self, selector: WorldSelector) -> Result<Vec<Status>, Error> {
        let mut worlds = self.worlds(selector)?;
        match (worlds.pop(), worlds.len()) {
            (Some(only), 0) => Ok(only),
            (Some(last), _) => {
                worlds.push(last);
                Err(ambiguous(&worlds).into())
            }
            (None, _) => Err(self.not_found(selector).into()),
        }
    }

    /// The error text for no world, with the processes that do not answer.
    fn not_found(&self, selector: WorldSelector) -> String {
        let silent: Vec<_> = self.silent.keys().map(ToString::to_string).collect();
        let mut text = match selector {
            WorldSelector {
                world: Some(world), ..
            } => format!("no worker of world {world:x} was found"),
            WorldSelector {
                process: Some(process),
                ..
            } => format!("no worker of process {process} was found"),
            WorldSelector { .. } if silent.is_empty() => {
                "no world was found on this machine; start one with `telegrad run`, or set TELEGRAD_STATUS=1 for its workers".into()
            }
            WorldSelector { .. } => "no worker answers on this machine".into(),
        };
        if !silent.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "; process {} has workers but does not answer: it is stopped or overloaded",
                silent.join(", ")
            );
        }
        text
    }
}

/// The error text for several worlds, with their processes and ids.
fn ambiguous(worlds: &[Vec<Status>]) -> String {
    let mut text = "there are several worlds; select one by a process id or with --world:".to_owned();
    for workers in worlds {
        let (Some(first), names) = (workers.first(), workers.iter().map(|worker| &*worker.name)) else {
            continue;
        };
        let names: Vec<_> = names.collect();
        // Writing to a String cannot fail.
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

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;

    /// A socket that never answers, under the id of a process that cannot exist.
    fn silent_process(number: u32) -> UnixListener {
        let name = format!("telegrad-status-{number}");
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
    }

    #[test]
    fn a_silent_process_is_remembered_and_named() {
        let process = u32::MAX - std::process::id();
        let listener = silent_process(process);
        let mut discovery = Discovery::default();
        let unknown = WorldSelector::world(0);
        let error = discovery.world(unknown).unwrap_err().to_string();
        assert!(error.starts_with("no worker of world 0 was found; "), "{error}");
        assert!(error.contains(&process.to_string()), "{error}");
        let since = discovery.silent[&process];
        // The second time, it is not waited for.
        discovery.worlds(unknown).unwrap();
        assert_eq!(discovery.silent.get(&process), Some(&since));
        drop(listener);
        discovery.worlds(unknown).unwrap();
        assert!(!discovery.silent.contains_key(&process));
    }
}
