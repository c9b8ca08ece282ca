//! The file that a worker writes what it does to (S44).

mod line;

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use rustc_hash::FxHashMap;
use serde::Serialize;
use telegrad_wire::Rank;

pub use line::SinkLine;

/// The environment variable with the folder that the workers of a world write what they record to.
pub const FOLDER: &str = "TELEGRAD_TRACE";

/// The environment variable that, set to 1, has them write down the shapes of tensors too.
pub const SHAPES: &str = "TELEGRAD_TRACE_SHAPES";

/// A file that a worker writes what it records to.
#[derive(Debug)]
pub struct Sink {
    file: File,
    /// How long it is, in whole lines.
    whole: u64,
    /// Where the last of them begins.
    last: u64,
}

/// Makes the file that a worker writes to, in a folder that all workers of its world write to, and the folder if need be. `life`
/// tells one from all others that were ever there.
///
/// # Errors
/// When it cannot be made.
pub fn write_worker(folder: &Path, world: u64, (rank, name, life): (Rank, &str, u64)) -> io::Result<Sink> {
    fs::create_dir_all(folder)?;
    // Names have no characters that a file's cannot have, but for colons, which Unix does not mind.
    let path = folder.join(format!("{rank}-{name}-{life:x}.jsonl"));
    let mut sink = Sink {
        file: File::create_new(path)?,
        whole: 0,
        last: 0,
    };
    sink.write(&Sink::line(&SinkLine::Worker {
        rank,
        of: name.to_owned(),
        world,
    }))?;
    Ok(sink)
}

/// The worker that a file is of, by what it is called.
pub fn worker_of_file(file: &Path) -> Option<(Rank, String)> {
    let (rank, rest) = file.file_stem()?.to_str()?.split_once('-')?;
    let (name, _) = rest.rsplit_once('-')?;
    Some((rank.parse().ok()?, name.to_owned()))
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
        self.file.write_all(line)?;
        self.last = self.whole;
        self.whole += line.len() as u64;
        Ok(())
    }

    /// Says that no more could be written, in place of the last event: where a disk is full, that is where there is room.
    pub(crate) fn give_up(mut self, error: &io::Error) {
        let end = if self.last > 0 { self.last } else { self.whole };
        let line = Self::line(&SinkLine::Stopped {
            stopped: error.to_string(),
        });
        let written = self
            .file
            .set_len(end)
            .and_then(|()| self.file.seek(SeekFrom::Start(end)))
            .and_then(|_| self.file.write_all(&line));
        // Without it, the last line is missing, which whoever reads it takes note of, too.
        let _ = written;
    }

    pub(crate) fn close(mut self, threads: FxHashMap<u64, String>) {
        let threads = SinkLine::Threads {
            threads: threads.into_iter().collect(),
        };
        // Without it, threads have numbers instead of names, and the recording counts as one that breaks off.
        let _ = self.write(&Self::line(&threads));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_made_where_there_is_none() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("of/recordings");
        for rank in 0..2 {
            write_worker(&folder, 1, (rank, "w", 7)).unwrap();
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        // Not over what is there already.
        assert!(write_worker(&folder, 1, (0, "w", 7)).is_err());
    }
}
