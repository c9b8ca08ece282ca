//! The log behind a file store.
//!
//! The file starts with eight bytes of magic and version. Entries follow, each with its length in front like a
//! message of the TCP store. They are only ever appended, each under an exclusive lock.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use telegrad_wire::Wire;

use crate::RendezvousError;
use crate::file_lock::{is_at, open_private, pauses, try_lock};
use crate::protocol;
use crate::table::Table;

/// The first eight bytes: magic, and a version that is raised with every change of the entries.
const HEADER: [u8; 8] = *b"TGSF\x02\0\0\0";

/// How long to wait for the lock. Other members hold it for microseconds; one that is stopped while it holds the
/// lock should not stop the rest.
const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// A store file and its content, as far as it has been read.
pub(crate) struct FileLog {
    path: PathBuf,
    file: File,
    /// All bytes before this offset are in the table.
    read: u64,
    table: Table,
    /// The claimed keys, with the holder of each.
    holders: HashMap<String, u64>,
}

/// A change of the table.
#[derive(Debug, Wire)]
pub(crate) enum Entry {
    /// Set a key, unless it is set. With a holder, it is valid only while the holder lives.
    Insert {
        key: String,
        value: Vec<u8>,
        holder: Option<u64>,
    },
    /// Remove a key.
    Remove { key: String },
}

impl FileLog {
    /// Empties the file, unless it is something other than a store file.
    pub(crate) fn reset(path: &Path) -> Result<(), RendezvousError> {
        let mut log = Self::open(path)?;
        let mut found = [0; HEADER.len()];
        let length = log.file.read_at(&mut found, 0).map_err(|e| log.failed(e))?;
        log.check_header(&found[..length])?;
        let written = log.file.set_len(0).and_then(|()| log.file.write_all(&HEADER));
        written.map_err(|e| log.failed(e))
    }

    /// Opens the file without reading it.
    pub(crate) fn open(path: &Path) -> Result<Self, RendezvousError> {
        let file = open_private(path).map_err(|e| failed(path, e))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            read: 0,
            table: Table::default(),
            holders: HashMap::new(),
        })
    }

    /// Returns the holder of a claimed key.
    pub(crate) fn holder(&self, key: &str) -> Option<u64> {
        self.holders.get(key).copied()
    }

    /// Reads new entries, then appends the entry that `change` returns, if any.
    pub(crate) fn append(
        &mut self,
        change: impl FnOnce(&Self) -> Option<Entry>,
    ) -> Result<(), RendezvousError> {
        self.with_lock(FlockOperation::NonBlockingLockExclusive, |log| {
            log.replay()?;
            let Some(entry) = change(log) else {
                return Ok(());
            };
            let store = || format!("file://{}", log.path.display());
            let bytes =
                protocol::frame(&entry).map_err(|why| RendezvousError::Refused { store: store(), why })?;
            if let Err(error) = log.file.write_all(&bytes) {
                // Half an entry would make the log unreadable for every member. Truncating works on a full disk.
                let _ = log.file.set_len(log.read);
                return Err(log.failed(error));
            }
            log.replay()
        })
    }

    /// Returns the table as far as it has been read.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Reads new entries.
    pub(crate) fn refresh(&mut self) -> Result<(), RendezvousError> {
        // Most calls find nothing new, which needs no lock.
        let length = self.file.metadata().map_err(|e| self.failed(e))?.len();
        if length != self.read || !self.is_in_place()? {
            self.with_lock(FlockOperation::NonBlockingLockShared, Self::replay)?;
        }
        Ok(())
    }

    fn with_lock(
        &mut self,
        operation: FlockOperation,
        action: impl FnOnce(&mut Self) -> Result<(), RendezvousError>,
    ) -> Result<(), RendezvousError> {
        let mut pauses = pauses(Instant::now() + LOCK_LIMIT);
        while !try_lock(&self.file, operation).map_err(|e| self.failed(e))? {
            if !pauses.sleep() {
                let why = format!("another worker has held its lock for {} s", LOCK_LIMIT.as_secs());
                return Err(RendezvousError::File {
                    path: self.path.clone(),
                    why,
                });
            }
        }
        let result = action(self);
        try_lock(&self.file, FlockOperation::Unlock).map_err(|e| self.failed(e))?;
        result
    }

    /// Reads on from the end of the last replay. The lock must be held.
    fn replay(&mut self) -> Result<(), RendezvousError> {
        if !self.is_in_place()? {
            return Err(self.damaged("the file was removed or replaced while workers used it"));
        }
        let length = self.file.metadata().map_err(|e| self.failed(e))?.len();
        let Some(new) = length.checked_sub(self.read) else {
            return Err(self.damaged("the file has become shorter"));
        };
        let mut bytes = vec![0; usize::try_from(new).unwrap_or(usize::MAX)];
        self.file
            .read_exact_at(&mut bytes, self.read)
            .map_err(|e| self.failed(e))?;
        let mut rest = bytes.as_slice();
        if self.read == 0 {
            self.check_header(rest)?;
            rest = rest
                .strip_prefix(&HEADER)
                .ok_or_else(|| self.damaged("the header is incomplete"))?;
            self.read = HEADER.len() as u64;
        }
        while !rest.is_empty() {
            let split = protocol::split(rest).map_err(|why| self.damaged(&why))?;
            let (entry, after) = split.ok_or_else(|| self.damaged("the last entry is incomplete"))?;
            match entry {
                Entry::Insert { key, value, holder } => {
                    if self.table.insert(key.clone(), value).is_none()
                        && let Some(holder) = holder
                    {
                        self.holders.insert(key, holder);
                    }
                }
                Entry::Remove { key } => {
                    self.table.remove(&key);
                    self.holders.remove(&key);
                }
            }
            self.read += (rest.len() - after.len()) as u64;
            rest = after;
        }
        Ok(())
    }

    /// Checks that a store file can start with these bytes. Any prefix of the header is valid: its writer may have
    /// died halfway.
    fn check_header(&self, bytes: &[u8]) -> Result<(), RendezvousError> {
        let found = &bytes[..bytes.len().min(HEADER.len())];
        if HEADER.starts_with(found) {
            return Ok(());
        }
        Err(RendezvousError::NotAStoreFile {
            path: self.path.clone(),
            found: found.to_owned(),
        })
    }

    fn is_in_place(&self) -> Result<bool, RendezvousError> {
        is_at(&self.file, &self.path).map_err(|e| self.failed(e))
    }

    fn failed(&self, error: io::Error) -> RendezvousError {
        failed(&self.path, error)
    }

    fn damaged(&self, why: &str) -> RendezvousError {
        RendezvousError::DamagedFile {
            path: self.path.clone(),
            offset: self.read,
            why: why.to_owned(),
        }
    }
}

fn failed(path: &Path, error: io::Error) -> RendezvousError {
    RendezvousError::File {
        path: path.to_owned(),
        why: error.to_string(),
    }
}
