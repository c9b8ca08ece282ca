//! Locks that show whether a store file is in use.
//!
//! Every member holds a shared lock on the file `<path>.members`. The system releases the lock when the process
//! dies, however it dies. A member that can take the lock exclusively is the first or the last: the first starts
//! the store file anew, which clears the remains of a crashed world; the last removes both files.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::FlockOperation;

use crate::file_lock::{is_at, open_private, pauses, try_lock};

/// The lock of one member, until dropped.
pub(crate) struct MemberLock {
    /// Held for its lock, and always empty.
    file: File,
    path: PathBuf,
    /// The store file, which the last member removes. None while the lock is being taken.
    store: Option<PathBuf>,
}

impl MemberLock {
    /// Joins the members of the store file at `store`.
    ///
    /// Without other members, `first` runs and starts the file anew. It may run in several processes, at once or
    /// in turn.
    pub(crate) fn acquire<E>(
        store: &Path,
        deadline: Instant,
        first: impl Fn() -> Result<(), E>,
        failed: impl Fn(io::Error) -> E + Copy,
    ) -> Result<Self, E> {
        let mut path = store.as_os_str().to_owned();
        path.push(".members");
        let mut pauses = pauses(deadline);
        loop {
            let mut member = Self {
                file: open_private(path.as_ref()).map_err(failed)?,
                path: path.clone().into(),
                store: None,
            };
            if try_lock(&member.file, FlockOperation::NonBlockingLockExclusive).map_err(failed)? {
                first()?;
            }
            // Between the two locks, another process may come first too, or the last member may leave and remove
            // the file. The former is harmless, since nothing has been stored yet. After the latter, this lock is
            // on a file that no other process can find: try again.
            let shared = try_lock(&member.file, FlockOperation::NonBlockingLockShared).map_err(failed)?;
            if shared && is_at(&member.file, &member.path).map_err(failed)? {
                member.store = Some(store.to_owned());
                return Ok(member);
            }
            if !pauses.sleep() {
                let why = "other workers held its lock until the deadline";
                return Err(failed(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
        }
    }
}

impl Drop for MemberLock {
    fn drop(&mut self) {
        let last = try_lock(&self.file, FlockOperation::NonBlockingLockExclusive).unwrap_or(false)
            && is_at(&self.file, &self.path).unwrap_or(false);
        // A file with contents belongs to another program, whatever its name. Files that cannot be removed are
        // harmless: the next first member starts anew.
        if last && self.file.metadata().is_ok_and(|m| m.len() == 0) {
            if let Some(store) = &self.store {
                let _ = fs::remove_file(store);
            }
            let _ = fs::remove_file(&self.path);
        }
    }
}
