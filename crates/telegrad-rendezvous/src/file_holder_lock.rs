//! Locks that keep claims valid.
//!
//! A member that claims a key holds an exclusive lock on a file of its own, `<path>.holder-<id>`. The system
//! releases the lock when the process dies, however it dies. A claim whose holder's file is not locked is void.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::file_lock::{open_private, try_lock};

/// The lock of one holder of claims, until dropped.
pub(crate) struct HolderLock {
    pub(crate) id: u64,
    path: PathBuf,
    /// Held for its lock, and always empty.
    _file: File,
}

impl HolderLock {
    /// Takes the lock of a new holder of claims in the store file at `store`.
    pub(crate) fn acquire(store: &Path) -> io::Result<Self> {
        let id = getrandom::u64().map_err(io::Error::other)?;
        let path = path_of(store, id);
        let file = open_private(&path)?;
        if !try_lock(&file, FlockOperation::NonBlockingLockExclusive)? {
            return Err(io::Error::other(format!(
                "another process holds the lock on {}",
                path.display()
            )));
        }
        Ok(Self {
            id,
            path,
            _file: file,
        })
    }
}

impl Drop for HolderLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether the holder of this id is alive.
pub(crate) fn is_alive(store: &Path, id: u64) -> io::Result<bool> {
    match File::open(path_of(store, id)) {
        Ok(file) => Ok(!try_lock(&file, FlockOperation::NonBlockingLockShared)?),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes the file of a dead holder.
pub(crate) fn remove(store: &Path, id: u64) {
    let _ = fs::remove_file(path_of(store, id));
}

/// Removes the files of all holders of a crashed world. The store must have no members.
pub(crate) fn remove_all(store: &Path) {
    let (Some(directory), Some(name)) = (store.parent(), store.file_name()) else {
        return;
    };
    let mut prefix = name.to_owned();
    prefix.push(SUFFIX);
    // A file that cannot be removed is harmless: no entry of the new store names it.
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_holder = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(prefix.as_encoded_bytes());
        if is_holder && entry.metadata().is_ok_and(|found| found.len() == 0) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

const SUFFIX: &str = ".holder-";

fn path_of(store: &Path, id: u64) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push(format!("{SUFFIX}{id:016x}"));
    path.into()
}
