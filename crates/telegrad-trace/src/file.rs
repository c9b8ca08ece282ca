//! Recordings in files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use serde::Serialize;
use telegrad_wire::Rank;

use crate::lines::{self, Content, Line};
use crate::profile::Profile;

/// The environment variable with the folder that the workers of a world write what they record to.
pub const FOLDER: &str = "TELEGRAD_TRACE";

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is not a recording: {why}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// A file that a worker writes what it records to.
#[derive(Debug)]
pub struct Sink(File);

/// Makes the file that a worker writes to, in a folder that all workers of its world write to. `life` tells one from all
/// others that were ever there.
///
/// # Errors
/// When it cannot be made.
pub fn write_worker(folder: &Path, world: u64, (rank, name, life): (Rank, &str, u64)) -> io::Result<Sink> {
    // Names have no characters that a file's cannot have, but for colons, which Unix does not mind.
    let path = folder.join(format!("{rank}-{name}-{life:x}.jsonl"));
    let mut sink = Sink(File::create_new(path)?);
    sink.write(&Sink::line(&Line::Of {
        rank,
        of: name.to_owned(),
        world,
    }))?;
    Ok(sink)
}

impl Sink {
    /// A whole line, so that a process that is killed leaves whole lines.
    pub(crate) fn line(content: &impl Serialize) -> Vec<u8> {
        // Numbers, names and lists of them: there is nothing that could not be written.
        let mut line = serde_json::to_vec(content).unwrap_or_default();
        line.push(b'\n');
        line
    }

    pub(crate) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.0.write_all(line)
    }

    pub(crate) fn close(mut self, threads: FxHashMap<u64, String>) {
        let threads = Line::Threads {
            threads: threads.into_iter().collect(),
        };
        // Without it, threads have numbers instead of names.
        let _ = self.write(&Self::line(&threads));
    }
}

/// Reads recordings of one world: profiles in Chrome's format or as lines, what workers have written, or a folder of those. All
/// that workers have written becomes one profile.
///
/// # Errors
/// When one of them cannot be read, or they are of several worlds.
pub fn read(paths: &[PathBuf]) -> Result<Profile, TraceError> {
    let mut worlds = read_worlds(paths)?;
    match (worlds.pop(), worlds.len()) {
        (Some(only), 0) => Ok(only),
        (_, others) => Err(TraceError::Content {
            path: paths.first().cloned().unwrap_or_default(),
            why: format!("it has {} worlds", others + 1),
        }),
    }
}

/// As [`read`], for recordings of several worlds: what workers have written, by world. Profiles are taken to be of the first.
///
/// # Errors
/// When one of them cannot be read.
pub fn read_worlds(paths: &[PathBuf]) -> Result<Vec<Profile>, TraceError> {
    let mut parts: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    let mut profiles = Vec::new();
    for path in files(paths)? {
        let at = |source| TraceError::Io {
            path: path.clone(),
            source,
        };
        let content = |why| TraceError::Content {
            path: path.clone(),
            why,
        };
        let mut file = File::open(&path).map_err(at)?;
        let mut start = [0; 512];
        let count = file.read(&mut start).map_err(at)?;
        file.rewind().map_err(at)?;
        // Files in Chrome's format begin with this one.
        if String::from_utf8_lossy(&start[..count]).contains("\"displayTimeUnit\"") {
            let value =
                serde_json::from_reader(BufReader::new(file)).map_err(|error| content(error.to_string()))?;
            profiles.push(Profile::from_chrome(value).map_err(content)?);
        } else {
            match lines::read(BufReader::new(file)).map_err(content)? {
                Content::Part { world, part } => parts.entry(world).or_default().push(part),
                Content::Profile(profile) => profiles.push(profile),
            }
        }
    }
    let mut worlds = Vec::new();
    for parts in parts.into_values() {
        let root = parts.iter().map(|(rank, ..)| *rank).min().unwrap_or(0);
        worlds.push(Profile::new(root, parts, Vec::new()));
    }
    if !profiles.is_empty() {
        profiles.extend(worlds.pop());
        worlds.push(merged(profiles));
    }
    worlds.sort_by_key(Profile::bounds);
    Ok(worlds)
}

/// The files, and those in folders.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, TraceError> {
    let mut found = Vec::new();
    for path in paths {
        if !path.is_dir() {
            found.push(path.clone());
            continue;
        }
        let at = |source| TraceError::Io {
            path: path.clone(),
            source,
        };
        let mut inside = Vec::new();
        for entry in fs::read_dir(path).map_err(at)? {
            let file = entry.map_err(at)?.path();
            if file.extension().is_some_and(|extension| extension == "jsonl") {
                inside.push(file);
            }
        }
        if inside.is_empty() {
            return Err(TraceError::Content {
                path: path.clone(),
                why: "no worker has written anything there".into(),
            });
        }
        inside.sort();
        found.extend(inside);
    }
    Ok(found)
}

/// Profiles of one world as one. What is in several of them is there once.
fn merged(profiles: Vec<Profile>) -> Profile {
    let mut result = Profile::default();
    let mut seen = rustc_hash::FxHashSet::default();
    for profile in profiles {
        for worker in profile.workers {
            match result.workers.iter_mut().find(|other| other.rank == worker.rank) {
                Some(other) => {
                    other.threads.extend(worker.threads);
                    other.threads.sort_unstable();
                    other.threads.dedup();
                    other.dropped += worker.dropped;
                }
                None => result.workers.push(worker),
            }
        }
        result.missing.extend(profile.missing);
        let new = profile.events.into_iter().filter(|event| seen.insert(event.span));
        result.events.extend(new);
    }
    result.workers.sort_by_key(|worker| worker.rank);
    result.events.sort_by_key(|event| (event.start, event.span));
    result
}
