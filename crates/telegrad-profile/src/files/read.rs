//! Recordings in files (S44).

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::lines::{self, Content};
use super::merge::Worlds;
use crate::profile::Profile;

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
    /// They have nothing to do with each other.
    #[error("{} and {} are recordings of different worlds, which cannot be put together", one.display(), other.display())]
    Worlds {
        /// One of them.
        one: PathBuf,
        /// Another one.
        other: PathBuf,
    },
}

/// Reads recordings of one world: profiles in Chrome's format or as lines, what workers have written, or folders of
/// those. All of it becomes one profile on one clock. What is in several of them is there once.
///
/// What cannot be read in a folder is left out, and named in [`Profile::missing`]: a worker may be killed at any moment.
///
/// # Errors
/// When one of the files cannot be read, nothing in a folder can, or they are of several worlds.
pub fn read(paths: &[PathBuf]) -> Result<Profile, TraceError> {
    found(paths)?.only()
}

/// As [`read`], for recordings of several worlds, each by itself. Profiles that do not say of which world they are, are taken to be
/// of the first.
///
/// # Errors
/// When one of the files cannot be read, or nothing in a folder can.
pub fn read_worlds(paths: &[PathBuf]) -> Result<Vec<Profile>, TraceError> {
    Ok(found(paths)?.all())
}

fn found(paths: &[PathBuf]) -> Result<Worlds, TraceError> {
    let mut worlds = Worlds::default();
    for path in paths {
        if path.is_dir() {
            read_folder(path, &mut worlds)?;
        } else {
            worlds.add(path, read_file(path)?);
        }
    }
    Ok(worlds)
}

/// Reads what workers have written to a folder.
fn read_folder(folder: &Path, worlds: &mut Worlds) -> Result<(), TraceError> {
    let at = |source| TraceError::Io {
        path: folder.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(at)? {
        let file = entry.map_err(at)?.path();
        if file.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(file);
        }
    }
    files.sort();
    let mut could_any = false;
    let mut first_error = None;
    for file in files {
        match read_file(&file) {
            Ok(content) => {
                could_any = true;
                worlds.add(&file, content);
            }
            Err(error) => {
                worlds.lose(&file, &error);
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        _ if could_any => Ok(()),
        Some(error) => Err(error),
        None => Err(TraceError::Content {
            path: folder.to_owned(),
            why: "no worker has written anything there".into(),
        }),
    }
}

fn read_file(path: &Path) -> Result<Content, TraceError> {
    let at = |source| TraceError::Io {
        path: path.to_owned(),
        source,
    };
    let content = |why| TraceError::Content {
        path: path.to_owned(),
        why,
    };
    // A line at a time, never back: it may be a pipe.
    let mut file = BufReader::new(File::open(path).map_err(at)?);
    let mut start = Vec::new();
    file.read_until(b'\n', &mut start).map_err(at)?;
    if start.starts_with(GZIP) {
        return Err(content("it is compressed; `gunzip` it first".into()));
    }
    if is_line(&start) {
        return lines::read(start.chain(file)).map_err(content);
    }
    let mut whole = start;
    file.read_to_end(&mut whole).map_err(at)?;
    if is_chrome(&whole) {
        Ok(Content::Profile(Profile::from_chrome(&whole).map_err(content)?))
    } else {
        lines::read(&whole[..]).map_err(content)
    }
}

/// What compressed files begin with.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// Whether this is all of a line, and not all of a file in Chrome's format, which some programs write on one.
fn is_line(start: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Start {
        #[serde(rename = "traceEvents")]
        events: Option<IgnoredAny>,
    }
    serde_json::from_slice(start).is_ok_and(|start: Start| start.events.is_none())
}

/// Whether a file is in Chrome's format: one object with a list of events, wherever that comes in it, or only the list.
fn is_chrome(whole: &[u8]) -> bool {
    let has = |key: &[u8]| whole.windows(key.len()).any(|part| part == key);
    whole.trim_ascii_start().starts_with(b"[") || has(b"\"displayTimeUnit\"") || has(b"\"traceEvents\"")
}
