//! Reading of recordings (S56, S58).

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::lines::{self, FileContent};
use super::merge::Recordings;
use crate::profile::Profile;

/// A recording that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error, part of this error's text and not returned by `source()`.
        r#source: io::Error,
    },
    /// The file is no recording.
    #[error("{} is not a recording: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The files are recordings of different worlds.
    #[error("{} and {} are recordings of different worlds, which cannot be merged", one.display(), other.display())]
    Worlds {
        /// One file.
        one: PathBuf,
        /// A file of another world.
        other: PathBuf,
    },
}

/// Reads recordings of one world and merges them into one profile.
///
/// Paths are profiles in Chrome's format or as lines, files of workers, or folders of the latter. Duplicate events count once. Files
/// of a folder that cannot be read are skipped, and named in [`Profile::missing`]: a worker may be killed at any time.
///
/// # Errors
/// When one of the files cannot be read, nothing in a folder can, or they are of several worlds.
pub fn read(paths: &[PathBuf]) -> Result<Profile, ReadError> {
    read_all(paths)?.into_single()
}

/// As [`read`], for recordings of several worlds. Profiles without the number of a world count as part of the first.
///
/// # Errors
/// When one of the files cannot be read, or nothing in a folder can.
pub fn read_worlds(paths: &[PathBuf]) -> Result<Vec<Profile>, ReadError> {
    Ok(read_all(paths)?.into_profiles())
}

fn read_all(paths: &[PathBuf]) -> Result<Recordings, ReadError> {
    let mut recordings = Recordings::default();
    for path in paths {
        if path.is_dir() {
            read_folder(path, &mut recordings)?;
        } else {
            recordings.add(path, read_file(path)?);
        }
    }
    Ok(recordings)
}

/// Reads the files of workers in a folder.
fn read_folder(folder: &Path, recordings: &mut Recordings) -> Result<(), ReadError> {
    let at = |source| ReadError::Io {
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
    let mut has_content = false;
    let mut first_error = None;
    for file in files {
        match read_file(&file) {
            Ok(content) => {
                has_content = true;
                recordings.add(&file, content);
            }
            Err(error) => {
                recordings.add_unreadable(&file, &error);
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        _ if has_content => Ok(()),
        Some(error) => Err(error),
        None => Err(ReadError::Content {
            path: folder.to_owned(),
            why: "it has no files of workers".into(),
        }),
    }
}

fn read_file(path: &Path) -> Result<FileContent, ReadError> {
    let at = |source| ReadError::Io {
        path: path.to_owned(),
        source,
    };
    let content = |why| ReadError::Content {
        path: path.to_owned(),
        why,
    };
    // Without seeking: the file may be a pipe.
    let mut file = BufReader::new(File::open(path).map_err(at)?);
    let mut start = Vec::new();
    file.read_until(b'\n', &mut start).map_err(at)?;
    if start.starts_with(GZIP) {
        return Err(content("it is compressed; run `gunzip` on it first".into()));
    }
    if is_line(&start) {
        return lines::read(start.chain(file)).map_err(content);
    }
    let mut whole = start;
    file.read_to_end(&mut whole).map_err(at)?;
    if is_chrome(&whole) {
        Ok(FileContent::Profile(
            Profile::from_chrome(&whole).map_err(content)?,
        ))
    } else {
        lines::read(&whole[..]).map_err(content)
    }
}

/// The first bytes of gzip files.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// Returns whether this is a line of JSON, and not a file in Chrome's format on one line.
fn is_line(start: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Start {
        #[serde(rename = "traceEvents")]
        events: Option<IgnoredAny>,
    }
    serde_json::from_slice(start).is_ok_and(|start: Start| start.events.is_none())
}

/// Returns whether a file is in Chrome's format: an object with a list of events anywhere in it, or only the list.
fn is_chrome(whole: &[u8]) -> bool {
    let has = |key: &[u8]| whole.windows(key.len()).any(|part| part == key);
    whole.trim_ascii_start().starts_with(b"[") || has(b"\"displayTimeUnit\"") || has(b"\"traceEvents\"")
}
