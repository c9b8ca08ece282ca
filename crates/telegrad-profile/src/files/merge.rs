//! Merging of recordings by world (S56).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use telegrad_wire::Rank;

use super::lines::FileContent;
use super::read::ReadError;
use crate::align::shift;
use crate::profile::Profile;
use telegrad_trace::Collected;
use telegrad_trace::worker_of_file;

/// The recordings that were read, by world.
#[derive(Default)]
pub(crate) struct Recordings {
    worlds: Vec<WorldRecording>,
    /// Workers whose files could not be read: rank if known, name, error.
    unreadable: Vec<(Option<Rank>, String, String)>,
}

/// The recordings of one world.
struct WorldRecording {
    number: Option<u64>,
    /// The first file.
    path: PathBuf,
    parts: Vec<(Rank, String, Collected)>,
    profiles: Vec<Profile>,
    missing: Vec<(String, String)>,
}

impl Recordings {
    pub(crate) fn add(&mut self, path: &Path, content: FileContent) {
        match content {
            FileContent::Part {
                world,
                part,
                incomplete,
            } => {
                let world = self.world(path, Some(world));
                world.missing.extend(incomplete.map(|why| (part.1.clone(), why)));
                world.parts.push(part);
            }
            FileContent::Profile(profile) => {
                let world = self.world(path, profile.world);
                world.profiles.push(profile);
            }
        }
    }

    /// Adds a file that could not be read.
    pub(crate) fn add_unreadable(&mut self, path: &Path, error: &ReadError) {
        let (rank, name) = match worker_of_file(path) {
            Some((rank, name)) => (Some(rank), name),
            None => (None, path.display().to_string()),
        };
        self.unreadable.push((rank, name, error.to_string()));
    }

    /// Returns the recording of a world, or creates it. An unknown number matches any world; the number of the world is set once it
    /// is known.
    fn world(&mut self, path: &Path, number: Option<u64>) -> &mut WorldRecording {
        let matches =
            |world: &WorldRecording| number.is_none() || world.number.is_none() || world.number == number;
        let index = self.worlds.iter().position(matches).unwrap_or_else(|| {
            self.worlds.push(WorldRecording {
                number,
                path: path.to_owned(),
                parts: Vec::new(),
                profiles: Vec::new(),
                missing: Vec::new(),
            });
            self.worlds.len() - 1
        });
        let world = &mut self.worlds[index];
        world.number = world.number.or(number);
        world
    }

    /// Returns the profile of the only world.
    pub(crate) fn into_single(self) -> Result<Profile, ReadError> {
        if let [one, other, ..] = &self.worlds[..] {
            return Err(ReadError::Worlds {
                one: one.path.clone(),
                other: other.path.clone(),
            });
        }
        Ok(self.into_profiles().pop().unwrap_or_default())
    }

    /// Returns the profiles of all worlds, by start.
    pub(crate) fn into_profiles(self) -> Vec<Profile> {
        let unreadable = self.unreadable;
        let profiles = self.worlds.into_iter().map(|world| {
            let mut profile = world.into_profile();
            // In each of them, because their world is unknown.
            let known = unreadable
                .iter()
                .filter_map(|(rank, name, _)| Some(((*rank)?, name.clone())));
            profile.add_named_workers(known);
            let missing = unreadable
                .iter()
                .map(|(_, name, why)| (name.clone(), why.clone()));
            profile.missing.extend(missing);
            profile
        });
        let mut profiles: Vec<Profile> = profiles.collect();
        profiles.sort_by_key(Profile::bounds);
        profiles
    }
}

impl WorldRecording {
    /// Merges the recordings, on one clock.
    fn into_profile(mut self) -> Profile {
        if self.parts.is_empty() && self.profiles.len() == 1 {
            return self.profiles.remove(0);
        }
        // On the clock of the first profile, if there is one.
        let root = self.profiles.first().and_then(root_of);
        let mut named = Vec::new();
        for profile in self.profiles {
            let (parts, others, missing) = split(profile);
            self.parts.extend(parts);
            named.extend(others);
            self.missing.extend(missing);
        }
        let mut seen = BTreeSet::new();
        self.missing.retain(|missing| seen.insert(missing.clone()));
        let lowest = self.parts.iter().map(|(rank, ..)| *rank).min();
        let mut profile = Profile::new(root.or(lowest).unwrap_or(0), self.parts, self.missing);
        profile.add_named_workers(named);
        profile.world = self.number;
        profile
    }
}

/// Returns a worker whose clock is that of the profile.
fn root_of(profile: &Profile) -> Option<Rank> {
    let mut workers = profile.workers.iter();
    let root = workers.find(|worker| worker.known && worker.has_profile_clock());
    root.map(|worker| worker.rank)
}

/// The part of each worker, the workers that are only named, and the missing ones.
type SplitProfile = (
    Vec<(Rank, String, Collected)>,
    Vec<(Rank, String)>,
    Vec<(String, String)>,
);

/// Splits a profile into the parts of its workers, each on its own clock.
fn split(profile: Profile) -> SplitProfile {
    let mut events: BTreeMap<Rank, Vec<_>> = BTreeMap::new();
    for event in profile.events {
        events.entry(event.worker).or_default().push(event);
    }
    let workers = profile.workers.into_iter();
    let (known, named): (Vec<_>, Vec<_>) =
        workers.partition(|worker| worker.known || events.contains_key(&worker.rank));
    let mut parts = Vec::new();
    for worker in known {
        let mut events = events.remove(&worker.rank).unwrap_or_default();
        for event in &mut events {
            shift(event, |time| worker.to_own_time(time));
        }
        let collected = Collected {
            events,
            threads: worker.threads,
            dropped: worker.dropped,
            ..Collected::default()
        };
        parts.push((worker.rank, worker.name, collected));
    }
    // Workers that the file does not name.
    for (rank, events) in events {
        let collected = Collected {
            events,
            ..Collected::default()
        };
        parts.push((rank, format!("rank {rank}"), collected));
    }
    let named = named.into_iter().map(|worker| (worker.rank, worker.name));
    (parts, named.collect(), profile.missing)
}
