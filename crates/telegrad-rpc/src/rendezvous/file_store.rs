//! The store of a world whose workers share a file system.
//!
//! Every member appends to the same log and replays it into a table of its own.

use std::path::Path;
use std::time::Instant;

use parking_lot::Mutex;

use super::file_log::{Log, Record};
use super::file_members::{Members, Pause};
use super::table::Wait;
use super::{RendezvousError, Store};

/// One member's view of a store file.
pub(super) struct FileStore {
    /// `file://` and the path.
    place: String,
    log: Mutex<Log>,
    /// Dropped last: the file is removed only when nobody uses it.
    _members: Members,
}

impl FileStore {
    /// Opens or creates the file at `path`, whose directory must exist.
    pub(super) fn open(path: &Path, deadline: Instant) -> Result<Self, RendezvousError> {
        let failed = |why| RendezvousError::File {
            path: path.to_owned(),
            why,
        };
        if let Some(parent) = path.parent().filter(|parent| !parent.is_dir()) {
            return Err(failed(format!(
                "its directory {} does not exist",
                parent.display()
            )));
        }
        let io_failed = |e: std::io::Error| failed(e.to_string());
        let members = Members::join(path, deadline, || Log::start(path), io_failed)?;
        let log = Mutex::new(Log::open(path)?);
        Ok(Self {
            place: format!("file://{}", path.display()),
            log,
            _members: members,
        })
    }
}

impl Store for FileStore {
    fn insert(&self, key: &str, value: &[u8]) -> Result<Option<Vec<u8>>, RendezvousError> {
        let mut before = None;
        self.log.lock().append(|table| {
            before = table.get(key).map(<[u8]>::to_vec);
            let new = Record::Insert {
                key: key.to_owned(),
                value: value.to_vec(),
            };
            before.is_none().then_some(new)
        })?;
        Ok(before)
    }

    fn get_all(&self, keys: &[String], deadline: Instant) -> Result<Vec<Vec<u8>>, RendezvousError> {
        let started = Instant::now();
        let mut wait = Wait::new(keys.to_vec());
        let mut pause = Pause::new(deadline);
        loop {
            // Asked before the look, so that the last look is at the deadline and not before it.
            let late = Instant::now() >= deadline;
            {
                let mut log = self.log.lock();
                let table = log.refresh()?;
                if let Some(values) = wait.values(table) {
                    return Ok(values);
                }
                if late {
                    let (store, keys) = (self.describe(), wait.missing(table));
                    return Err(RendezvousError::Missing {
                        store,
                        keys,
                        waited: started.elapsed(),
                    });
                }
            }
            pause.sleep();
        }
    }

    fn remove(&self, prefix: &str) -> Result<(), RendezvousError> {
        self.log.lock().append(|_| {
            Some(Record::Remove {
                prefix: prefix.to_owned(),
            })
        })
    }

    fn is_replicated(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        self.place.clone()
    }
}
