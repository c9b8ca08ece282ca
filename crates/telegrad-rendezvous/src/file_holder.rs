//! Which members of a store file live.
//!
//! A member that claims a key holds an exclusive lock on a file of its own, `<path>.holder-<id>`, for as
//! long as it lives; the system lets go of it when the process dies. A claim whose holder's file
//! is not locked is void.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::file_members::{lock, open_private};

/// The lock of a member, until dropped.
pub(crate) struct Holder {
    pub(crate) id: u64,
    path: PathBuf,
    /// Held for its lock. Nothing is ever written to it.
    _file: File,
}

impl Holder {
    /// A holder of claims in the store file at `store`.
    pub(crate) fn new(store: &Path) -> io::Result<Self> {
        let id = getrandom::u64().map_err(io::Error::other)?;
        let path = path_of(store, id);
        let file = open_private(&path)?;
        if !lock(&file, FlockOperation::NonBlockingLockExclusive)? {
            return Err(io::Error::other(format!(
                "{} is locked by another",
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

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether the holder of this id lives.
pub(crate) fn lives(store: &Path, id: u64) -> io::Result<bool> {
    match File::open(path_of(store, id)) {
        Ok(file) => Ok(!lock(&file, FlockOperation::NonBlockingLockShared)?),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes what a dead holder has left behind.
pub(crate) fn bury(store: &Path, id: u64) {
    let _ = fs::remove_file(path_of(store, id));
}

/// Removes what all holders of a crashed world have left behind. No member may be there.
pub(crate) fn bury_all(store: &Path) {
    let (Some(directory), Some(name)) = (store.parent(), store.file_name()) else {
        return;
    };
    let mut prefix = name.to_owned();
    prefix.push(SUFFIX);
    // Files that stay are harmless: no record of the new store names them.
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
