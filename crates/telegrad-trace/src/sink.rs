//! The file that a worker writes its events to (S57).

mod line;

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use rustc_hash::FxHashMap;
use serde::Serialize;
use telegrad_wire::Rank;

pub use line::SinkLine;

/// The environment variable with the folder that the workers of a world write their events to.
pub const FOLDER_ENV: &str = "TELEGRAD_TRACE";

/// The environment variable that adds the shapes of tensors, if it is 1.
pub const SHAPES_ENV: &str = "TELEGRAD_TRACE_SHAPES";

/// The file that a worker writes its events to.
#[derive(Debug)]
pub struct Sink {
    file: File,
    /// The length of all complete lines.
    len: u64,
    /// The offset of the last complete line.
    last_line: u64,
}

/// Parses the rank and the name of a worker from the path of its file.
pub fn worker_of_file(file: &Path) -> Option<(Rank, String)> {
    let (rank, rest) = file.file_stem()?.to_str()?.split_once('-')?;
    let (name, _) = rest.rsplit_once('-')?;
    Some((rank.parse().ok()?, name.to_owned()))
}

impl Sink {
    /// Creates the file of a worker in the folder of its world, and the folder if it does not exist.
    ///
    /// # Errors
    /// When the folder or the file cannot be created, or the file exists.
    pub fn create(
        folder: &Path,
        world: u64,
        (rank, name, incarnation): (Rank, &str, u64),
    ) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        // All characters of names are valid in file names, also colons: only Unix is supported.
        let path = folder.join(format!("{rank}-{name}-{incarnation:x}.jsonl"));
        let mut sink = Self {
            file: File::create_new(path)?,
            len: 0,
            last_line: 0,
        };
        sink.write(&Self::line(&SinkLine::Worker {
            rank,
            of: name.to_owned(),
            world,
        }))?;
        Ok(sink)
    }

    /// Encodes a line, to be written at once, so that a killed process leaves complete lines.
    pub(crate) fn line(content: &impl Serialize) -> Vec<u8> {
        // Cannot fail: the content has numbers, strings and lists only.
        let mut line = serde_json::to_vec(content).unwrap_or_default();
        line.push(b'\n');
        line
    }

    pub(crate) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.file.write_all(line)?;
        self.last_line = self.len;
        self.len += line.len() as u64;
        Ok(())
    }

    /// Replaces the last event by a line with the write error. On a full disk this is the only space that is certain.
    pub(crate) fn stop(mut self, error: &io::Error) {
        let end = if self.last_line > 0 {
            self.last_line
        } else {
            self.len
        };
        let line = Self::line(&SinkLine::Stopped {
            stopped: error.to_string(),
        });
        let written = self
            .file
            .set_len(end)
            .and_then(|()| self.file.seek(SeekFrom::Start(end)))
            .and_then(|_| self.file.write_all(&line));
        // On failure the last line is missing, which readers report too.
        let _ = written;
    }

    /// Writes the last line.
    pub(crate) fn close(mut self, threads: FxHashMap<u64, String>) {
        let threads = SinkLine::Threads {
            threads: threads.into_iter().collect(),
        };
        // On failure threads have numbers instead of names, and the file counts as incomplete.
        let _ = self.write(&Self::line(&threads));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_folder_is_created() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("of/recordings");
        for rank in 0..2 {
            Sink::create(&folder, 1, (rank, "w", 7)).unwrap();
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        // An existing file is not overwritten.
        assert!(Sink::create(&folder, 1, (0, "w", 7)).is_err());
    }
}
