//! The file behind a file store.
//!
//! It is a log: eight bytes of magic and version, then records that are only ever appended, each
//! under an exclusive lock. A record has its length in front, like a message of the TCP store.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use telegrad_wire::Wire;

use crate::RendezvousError;
use crate::file_members::{Pause, is_at, lock, open_private};
use crate::protocol;
use crate::table::Table;

/// The first eight bytes: magic, and a version that is raised with every change of the records.
const HEADER: [u8; 8] = *b"TGSF\x02\0\0\0";

/// How long to wait for the lock. The others hold it for microseconds; one that is stopped while it
/// does should not stop everybody.
const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// A store file as far as it has been read.
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    /// Everything before this byte is in the table.
    read: u64,
    table: Table,
    /// The claimed keys, and the holder of each.
    holders: HashMap<String, u64>,
}

/// A change of the table.
#[derive(Debug, Wire)]
pub(crate) enum Record {
    /// Set a key, unless it is set, for as long as its holder lives, if it has one.
    Insert {
        key: String,
        value: Vec<u8>,
        holder: Option<u64>,
    },
    /// Forget a key.
    Remove { key: String },
}

impl Log {
    /// Starts the file anew. What is not a store file is not touched.
    pub(crate) fn start(path: &Path) -> Result<(), RendezvousError> {
        let mut log = Self::open(path)?;
        let mut found = [0; HEADER.len()];
        let length = log.file.read_at(&mut found, 0).map_err(|e| log.failed(e))?;
        log.check_header(&found[..length])?;
        let started = log.file.set_len(0).and_then(|()| log.file.write_all(&HEADER));
        started.map_err(|e| log.failed(e))
    }

    /// Opens the file; reads nothing of it yet.
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

    /// The holder of a claimed key.
    pub(crate) fn holder(&self, key: &str) -> Option<u64> {
        self.holders.get(key).copied()
    }

    /// Reads what is new, and appends the record that `change` makes of it, if any.
    pub(crate) fn append(
        &mut self,
        change: impl FnOnce(&Self) -> Option<Record>,
    ) -> Result<(), RendezvousError> {
        self.locked(FlockOperation::NonBlockingLockExclusive, |log| {
            log.replay()?;
            let Some(record) = change(log) else {
                return Ok(());
            };
            let store = || format!("file://{}", log.path.display());
            let bytes =
                protocol::frame(&record).map_err(|why| RendezvousError::Refused { store: store(), why })?;
            if let Err(error) = log.file.write_all(&bytes) {
                // Half a record would be the end of the log for everybody. A disk that is too full
                // for more can still do with less.
                let _ = log.file.set_len(log.read);
                return Err(log.failed(error));
            }
            log.replay()
        })
    }

    /// The table as far as it has been read.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Reads what is new.
    pub(crate) fn refresh(&mut self) -> Result<(), RendezvousError> {
        // Most looks find nothing, and that needs no lock.
        let length = self.file.metadata().map_err(|e| self.failed(e))?.len();
        if length != self.read || !self.is_here()? {
            self.locked(FlockOperation::NonBlockingLockShared, Self::replay)?;
        }
        Ok(())
    }

    fn locked(
        &mut self,
        operation: FlockOperation,
        action: impl FnOnce(&mut Self) -> Result<(), RendezvousError>,
    ) -> Result<(), RendezvousError> {
        let mut pause = Pause::new(Instant::now() + LOCK_LIMIT);
        while !lock(&self.file, operation).map_err(|e| self.failed(e))? {
            if !pause.sleep() {
                let why = format!("another worker has kept it locked for {} s", LOCK_LIMIT.as_secs());
                return Err(RendezvousError::File {
                    path: self.path.clone(),
                    why,
                });
            }
        }
        let result = action(self);
        lock(&self.file, FlockOperation::Unlock).map_err(|e| self.failed(e))?;
        result
    }

    /// Reads on from where the last replay ended. The lock must be held.
    fn replay(&mut self) -> Result<(), RendezvousError> {
        if !self.is_here()? {
            return Err(self.broken("it was removed or replaced while workers used it"));
        }
        let length = self.file.metadata().map_err(|e| self.failed(e))?.len();
        let Some(new) = length.checked_sub(self.read) else {
            return Err(self.broken("it has become shorter"));
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
                .ok_or_else(|| self.broken("its header is cut off"))?;
            self.read = HEADER.len() as u64;
        }
        while !rest.is_empty() {
            let split = protocol::split(rest).map_err(|why| self.broken(&why))?;
            let (record, after) = split.ok_or_else(|| self.broken("a record is cut off"))?;
            match record {
                Record::Insert { key, value, holder } => {
                    if self.table.insert(key.clone(), value).is_none()
                        && let Some(holder) = holder
                    {
                        self.holders.insert(key, holder);
                    }
                }
                Record::Remove { key } => {
                    self.table.remove(&key);
                    self.holders.remove(&key);
                }
            }
            self.read += (rest.len() - after.len()) as u64;
            rest = after;
        }
        Ok(())
    }

    /// Whether a store file can start with these bytes. Any beginning of the header will do: its
    /// writer may have died over it.
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

    fn is_here(&self) -> Result<bool, RendezvousError> {
        is_at(&self.file, &self.path).map_err(|e| self.failed(e))
    }

    fn failed(&self, error: io::Error) -> RendezvousError {
        failed(&self.path, error)
    }

    fn broken(&self, why: &str) -> RendezvousError {
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
