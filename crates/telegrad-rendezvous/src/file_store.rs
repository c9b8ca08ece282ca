//! The store of a world whose workers share a file system.
//!
//! Every member appends to the same log and replays it into a table of its own.

use std::path::{Path, PathBuf};
use std::time::Instant;

use parking_lot::Mutex;

use crate::file_holder::{self, Holder};
use crate::file_log::{Log, Record};
use crate::file_members::{Members, Pause};
use crate::table::Wait;
use crate::{RendezvousError, Store};

/// One member's view of a store file.
pub(crate) struct FileStore {
    path: PathBuf,
    log: Mutex<Log>,
    /// Of the keys that this handle has claimed.
    holder: Holder,
    /// Dropped last: the file is removed only when no member uses it.
    _members: Members,
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
        let first = || Log::start(path).inspect(|()| file_holder::bury_all(path));
        let members = Members::join(path, deadline, first, io_failed)?;
        Ok(Self {
            path: path.to_owned(),
            log: Mutex::new(Log::open(path)?),
            holder: Holder::new(path).map_err(io_failed)?,
            _members: members,
        })
    }

    /// Sets a key unless it is set by a member that lives, or for good.
    fn set(&self, key: &str, value: &[u8], holder: Option<u64>) -> Result<Option<Vec<u8>>, RendezvousError> {
        let mut log = self.log.lock();
        log.refresh()?;
        self.drop_dead(&mut log, &[key.to_owned()])?;
        let mut before = None;
        log.append(|log| {
            before = log.table().get(key).map(<[u8]>::to_vec);
            let new = Record::Insert {
                key: key.to_owned(),
                value: value.to_vec(),
                holder,
            };
            before.is_none().then_some(new)
        })?;
        Ok(before)
    }

    /// Forgets those of the keys whose holder is dead; whether there were any.
    fn drop_dead(&self, log: &mut Log, keys: &[String]) -> Result<bool, RendezvousError> {
        let mut any = false;
        for key in keys {
            let Some(holder) = log.holder(key) else { continue };
            let lives = file_holder::lives(&self.path, holder);
            if lives.map_err(|error| failed(&self.path, error.to_string()))? {
                continue;
            }
            any = true;
            // Another member may have done so meanwhile.
            self.remove(log, key, holder)?;
            file_holder::bury(&self.path, holder);
        }
        Ok(any)
    }

    /// Forgets a key, if it has this holder.
    fn remove(&self, log: &mut Log, key: &str, holder: u64) -> Result<(), RendezvousError> {
        log.append(|log| {
            let key = key.to_owned();
            (log.holder(&key) == Some(holder)).then_some(Record::Remove { key })
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
        let mut wait = Wait::new(keys.to_vec());
        let mut pause = Pause::new(deadline);
        loop {
            // Asked before the look, so that the last look is at the deadline and not before it.
            let late = Instant::now() >= deadline;
            {
                let mut log = self.log.lock();
                log.refresh()?;
                // Holders are looked at only when it matters: with each look, n members would look n² times.
                let values = wait.values(log.table());
                let is_final = values.is_some() || late;
                let any_died = is_final && self.drop_dead(&mut log, keys)?;
                match values {
                    Some(values) if !any_died => return Ok(values),
                    _ if late => {
                        let (store, keys) = (self.describe(), wait.missing(log.table()));
                        return Err(RendezvousError::MissingKeys {
                            store,
                            keys,
                            waited: started.elapsed(),
                        });
                    }
                    _ => {}
                }
            }
            pause.sleep();
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
