//! The worlds on this machine.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

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

    /// The one of this number.
    pub(crate) fn world(world: u64) -> Self {
        Self {
            process: None,
            world: Some(world),
        }
    }

    /// Whether these are all workers of the one that is meant. Without its number, it may have more, or there may be another.
    fn is_complete(self, workers: &[Status]) -> bool {
        let ours = workers.iter().filter(|worker| Some(worker.world) == self.world);
        let size = ours.clone().map(|worker| worker.size).max();
        size.is_some_and(|size| ours.count() >= size)
    }

    fn is_of(self, worker: &Status) -> bool {
        let by_process = self
            .process
            .is_none_or(|process| worker.process == process || worker.started_by == Some(process));
        by_process && self.world.is_none_or(|world| worker.world == world)
    }
}

/// How long a process may take to answer.
const LIMIT: Duration = Duration::from_secs(2);

/// How long one may take that has not answered before, and for how long it is not given more.
const BRIEF: Duration = Duration::from_millis(50);
const REMEMBERED: Duration = Duration::from_secs(10);

/// Asks the processes of this machine, perhaps again and again.
#[derive(Default)]
pub(crate) struct Asking {
    /// Those that have not answered, and when they were waited for: one that is stopped is not waited for every time.
    silent: BTreeMap<u32, Instant>,
}

impl Asking {
    /// The workers of each world that is meant, by rank.
    pub(crate) fn all(&mut self, which: Which) -> Result<Vec<Vec<Status>>, Error> {
        let processes = status::processes()?;
        self.silent.retain(|process, since| {
            since.elapsed() < REMEMBERED && processes.binary_search(process).is_ok()
        });
        let (silent, others): (Vec<u32>, Vec<u32>) = processes
            .into_iter()
            .partition(|process| self.silent.contains_key(process));
        let is_complete = |workers: &[Status]| which.is_complete(workers);
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
        worlds.retain(|workers| workers.iter().any(|worker| which.is_of(worker)));
        for workers in &mut worlds {
            workers.sort_by_key(|worker| worker.rank);
        }
        Ok(worlds)
    }

    /// The workers of the one world that is meant, by rank.
    pub(crate) fn find(&mut self, which: Which) -> Result<Vec<Status>, Error> {
        let mut worlds = self.all(which)?;
        match (worlds.pop(), worlds.len()) {
            (Some(only), 0) => Ok(only),
            (Some(last), _) => {
                worlds.push(last);
                Err(several(&worlds).into())
            }
            (None, _) => Err(self.nobody(which).into()),
        }
    }

    /// That there is none, and who may be one and does not answer.
    fn nobody(&self, which: Which) -> String {
        let silent: Vec<_> = self.silent.keys().map(ToString::to_string).collect();
        let mut text = match which {
            Which {
                world: Some(world), ..
            } => format!("world {world:x} has no worker that can be seen"),
            Which {
                process: Some(process),
                ..
            } => format!("process {process} has no worker that can be seen"),
            Which { .. } if silent.is_empty() => {
                "there is no world to be seen on this machine: `telegrad run` starts one".into()
            }
            Which { .. } => "no worker answers on this machine".into(),
        };
        if !silent.is_empty() {
            // What is written to a text cannot fail.
            let _ = write!(
                text,
                "; of those that have workers, process {} does not answer: it is stopped, or has no time",
                silent.join(", ")
            );
        }
        text
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

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;

    /// Something that is there under the number of a process that there cannot be, and never answers.
    fn silent_process(number: u32) -> UnixListener {
        let name = format!("telegrad-status-{number}");
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
    }

    #[test]
    fn who_does_not_answer_is_remembered_and_named() {
        let process = u32::MAX - std::process::id();
        let listener = silent_process(process);
        let mut asking = Asking::default();
        let nobody = Which::world(0);
        let said = asking.find(nobody).unwrap_err().to_string();
        assert!(
            said.starts_with("world 0 has no worker that can be seen; "),
            "{said}"
        );
        assert!(said.contains(&process.to_string()), "{said}");
        let since = asking.silent[&process];
        // Again, without having waited for it again.
        asking.all(nobody).unwrap();
        assert_eq!(asking.silent.get(&process), Some(&since));
        drop(listener);
        asking.all(nobody).unwrap();
        assert!(!asking.silent.contains_key(&process));
    }
}
