//! Recordings of one world as one (S43).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use telegrad_wire::Rank;

use super::lines::Content;
use super::read::TraceError;
use crate::align::shift;
use crate::profile::Profile;
use telegrad_trace::Collected;
use telegrad_trace::worker_of_file;

/// What has been read, by world.
#[derive(Default)]
pub(crate) struct Worlds {
    worlds: Vec<World>,
    /// Workers whose files could not be read, with their numbers where those are known, and why.
    lost: Vec<(Option<Rank>, String, String)>,
}

/// What has been read of one world.
struct World {
    number: Option<u64>,
    /// The first file of it.
    path: PathBuf,
    parts: Vec<(Rank, String, Collected)>,
    profiles: Vec<Profile>,
    missing: Vec<(String, String)>,
}

impl Worlds {
    pub(crate) fn add(&mut self, path: &Path, content: Content) {
        match content {
            Content::Part {
                world,
                part,
                incomplete,
            } => {
                let world = self.world(path, Some(world));
                world.missing.extend(incomplete.map(|why| (part.1.clone(), why)));
                world.parts.push(part);
            }
            Content::Profile(profile) => {
                let world = self.world(path, profile.world);
                world.profiles.push(profile);
            }
        }
    }

    /// There is a file that could not be read.
    pub(crate) fn lose(&mut self, path: &Path, error: &TraceError) {
        let (rank, name) = match worker_of_file(path) {
            Some((rank, name)) => (Some(rank), name),
            None => (None, path.display().to_string()),
        };
        self.lost.push((rank, name, error.to_string()));
    }

    /// The world with this number: the first one where it is not known, which it is from then on where it was not.
    fn world(&mut self, path: &Path, number: Option<u64>) -> &mut World {
        let is_it = |world: &World| number.is_none() || world.number.is_none() || world.number == number;
        let place = self.worlds.iter().position(is_it).unwrap_or_else(|| {
            self.worlds.push(World {
                number,
                path: path.to_owned(),
                parts: Vec::new(),
                profiles: Vec::new(),
                missing: Vec::new(),
            });
            self.worlds.len() - 1
        });
        let world = &mut self.worlds[place];
        world.number = world.number.or(number);
        world
    }

    /// The only one there is.
    pub(crate) fn only(self) -> Result<Profile, TraceError> {
        if let [one, other, ..] = &self.worlds[..] {
            return Err(TraceError::Worlds {
                one: one.path.clone(),
                other: other.path.clone(),
            });
        }
        Ok(self.all().pop().unwrap_or_default())
    }

    /// All of them, by when they began.
    pub(crate) fn all(self) -> Vec<Profile> {
        let lost = self.lost;
        let profiles = self.worlds.into_iter().map(|world| {
            let mut profile = world.into_profile();
            // Which world they were of is not known.
            let known = lost
                .iter()
                .filter_map(|(rank, name, _)| Some(((*rank)?, name.clone())));
            profile.know(known);
            let missing = lost.iter().map(|(_, name, why)| (name.clone(), why.clone()));
            profile.missing.extend(missing);
            profile
        });
        let mut profiles: Vec<Profile> = profiles.collect();
        profiles.sort_by_key(Profile::bounds);
        profiles
    }
}

impl World {
    /// All of it on one clock (S43).
    fn into_profile(mut self) -> Profile {
        if self.parts.is_empty() && self.profiles.len() == 1 {
            return self.profiles.remove(0);
        }
        // The clock is that of the first profile, if there is one.
        let root = self.profiles.first().and_then(root_of);
        let mut named = Vec::new();
        for profile in self.profiles {
            let (parts, others, missing) = apart(profile);
            self.parts.extend(parts);
            named.extend(others);
            self.missing.extend(missing);
        }
        let mut seen = BTreeSet::new();
        self.missing.retain(|missing| seen.insert(missing.clone()));
        let lowest = self.parts.iter().map(|(rank, ..)| *rank).min();
        let mut profile = Profile::new(root.or(lowest).unwrap_or(0), self.parts, self.missing);
        profile.know(named);
        profile.world = self.number;
        profile
    }
}

/// A worker whose clock the times of a profile are on.
fn root_of(profile: &Profile) -> Option<Rank> {
    let mut workers = profile.workers.iter();
    let root = workers.find(|worker| worker.known && worker.has_the_clock());
    root.map(|worker| worker.rank)
}

/// What each worker has recorded, those that are only named, and what is missing.
type Apart = (
    Vec<(Rank, String, Collected)>,
    Vec<(Rank, String)>,
    Vec<(String, String)>,
);

/// A profile as the parts that it was made from, each on the clock of its worker.
fn apart(profile: Profile) -> Apart {
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
            shift(event, |time| worker.to_own(time));
        }
        let collected = Collected {
            events,
            threads: worker.threads,
            dropped: worker.dropped,
            ..Collected::default()
        };
        parts.push((worker.rank, worker.name, collected));
    }
    // Those of workers that the file does not name, as it should.
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
