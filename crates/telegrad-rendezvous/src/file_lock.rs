//! Locks on files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::backoff::Backoff;

/// Opens or creates a file that only this user can read and write: its content is trusted.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

/// Takes, changes or releases a lock without waiting. Returns false when another process holds a conflicting one.
pub(crate) fn try_lock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    loop {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Whether `path` still leads to `file`.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (ours.dev(), ours.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Returns the pauses between looks at a file. A delay of 20 ms is invisible at the start of a world, and fifty
/// looks per second cost nothing.
pub(crate) fn pauses(deadline: Instant) -> Backoff {
    Backoff::new(Duration::from_millis(1), Duration::from_millis(20), deadline)
}
