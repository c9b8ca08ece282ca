//! The store of a world whose workers share a file system.
//!
//! Every member appends to the same log and replays it into a table of its own.

use std::path::{Path, PathBuf};
use std::time::Instant;

use parking_lot::Mutex;

use crate::file_holder_lock::{self, HolderLock};
use crate::file_lock::pauses;
use crate::file_log::{Entry, FileLog};
use crate::file_member_lock::MemberLock;
use crate::table::PendingGet;
use crate::{RendezvousError, Store};

/// One member's view of a store file.
pub(crate) struct FileStore {
    path: PathBuf,
    log: Mutex<FileLog>,
    /// Keeps the claims of this handle valid.
    holder: HolderLock,
    /// Dropped last: the file is removed only after every use of it.
    _member: MemberLock,
}

impl FileStore {
    /// Opens or creates the file at `path`, whose directory must exist.
    pub(crate) fn open(path: &Path, deadline: Instant) -> Result<Self, RendezvousError> {
        let failed = |why| failed(path, why);
        if let Some(parent) = path.parent().filter(|parent| !parent.is_dir()) {
            return Err(failed(format!(
                "its directory {} does not exist",
                parent.display()
            )));
        }
        let io_failed = |e: std::io::Error| failed(e.to_string());
        let first = || FileLog::reset(path).inspect(|()| file_holder_lock::remove_all(path));
        let member = MemberLock::acquire(path, deadline, first, io_failed)?;
        Ok(Self {
            path: path.to_owned(),
            log: Mutex::new(FileLog::open(path)?),
            holder: HolderLock::acquire(path).map_err(io_failed)?,
            _member: member,
        })
    }

    /// Sets a key, unless it was inserted or a live member claims it. Returns the value that was already there.
    fn set(&self, key: &str, value: &[u8], holder: Option<u64>) -> Result<Option<Vec<u8>>, RendezvousError> {
        let mut log = self.log.lock();
        log.refresh()?;
        self.remove_void_claims(&mut log, &[key.to_owned()])?;
        let mut before = None;
        log.append(|log| {
            before = log.table().get(key).map(<[u8]>::to_vec);
            let new = Entry::Insert {
                key: key.to_owned(),
                value: value.to_vec(),
                holder,
            };
            before.is_none().then_some(new)
        })?;
        Ok(before)
    }

    /// Removes the keys claimed by dead holders. Returns whether there were any.
    fn remove_void_claims(&self, log: &mut FileLog, keys: &[String]) -> Result<bool, RendezvousError> {
        let mut any = false;
        for key in keys {
            let Some(holder) = log.holder(key) else { continue };
            let alive = file_holder_lock::is_alive(&self.path, holder);
            if alive.map_err(|error| failed(&self.path, error.to_string()))? {
                continue;
            }
            any = true;
            // Another member may have removed the claim meanwhile.
            self.remove(log, key, holder)?;
            file_holder_lock::remove(&self.path, holder);
        }
        Ok(any)
    }

    /// Removes a key if this holder claims it.
    fn remove(&self, log: &mut FileLog, key: &str, holder: u64) -> Result<(), RendezvousError> {
        log.append(|log| {
            let key = key.to_owned();
            (log.holder(&key) == Some(holder)).then_some(Entry::Remove { key })
        })
    }
}

impl Store for FileStore {
    fn insert(&self, key: &str, value: &[u8]) -> Result<Option<Vec<u8>>, RendezvousError> {
        self.set(key, value, None)
    }

    fn claim(&self, key: &str, value: &[u8]) -> Result<Option<Vec<u8>>, RendezvousError> {
        self.set(key, value, Some(self.holder.id))
    }

    fn release(&self, key: &str) -> Result<(), RendezvousError> {
        self.remove(&mut self.log.lock(), key, self.holder.id)
    }

    fn get_all(&self, keys: &[String], deadline: Instant) -> Result<Vec<Vec<u8>>, RendezvousError> {
        let started = Instant::now();
        let mut get = PendingGet::new(keys.to_vec());
        let mut pauses = pauses(deadline);
        loop {
            // Read before the log is, so that the last look happens at the deadline and not before it.
            let expired = Instant::now() >= deadline;
            {
                let mut log = self.log.lock();
                log.refresh()?;
                // Holders are checked only before a result: with a check per look, n members would check n² times.
                let values = get.values(log.table());
                let is_final = values.is_some() || expired;
                let any_void = is_final && self.remove_void_claims(&mut log, keys)?;
                match values {
                    Some(values) if !any_void => return Ok(values),
                    _ if expired => {
                        let (store, keys) = (self.describe(), get.missing(log.table()));
                        return Err(RendezvousError::MissingKeys {
                            store,
                            keys,
                            waited: started.elapsed(),
                        });
                    }
                    _ => {}
                }
            }
            pauses.sleep();
        }
    }

    fn describe(&self) -> String {
        format!("file://{}", self.path.display())
    }
}

fn failed(path: &Path, why: String) -> RendezvousError {
    RendezvousError::File {
        path: path.to_owned(),
        why,
    }
}
