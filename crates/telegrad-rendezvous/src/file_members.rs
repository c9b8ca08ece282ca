//! Whether anybody uses a store file.
//!
//! Every member holds a shared lock on the file `<path>.members` for as long as it lives; the
//! system lets go of it when the process dies, however it dies. So whoever can have that lock for
//! itself alone is the first member or the last: the first starts the store file anew, which is how
//! the remains of a crashed world disappear, and the last removes both files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// A membership, until dropped.
pub(crate) struct Members {
    /// Held for its lock. Nothing is ever written to it.
    file: File,
    path: PathBuf,
    /// The store file, if it is for the last member to remove.
    store: Option<PathBuf>,
}

impl Members {
    /// Becomes a member of the store file at `store`. `first` starts that file anew when there is no
    /// other member; it may run in several processes at once, or after one another.
    pub(crate) fn join<E>(
        store: &Path,
        deadline: Instant,
        first: impl Fn() -> Result<(), E>,
        failed: impl Fn(io::Error) -> E + Copy,
    ) -> Result<Self, E> {
        let mut path = store.as_os_str().to_owned();
        path.push(".members");
        let mut pause = Pause::new(deadline);
        loop {
            let mut members = Self {
                file: open_private(path.as_ref()).map_err(failed)?,
                path: path.clone().into(),
                store: None,
            };
            if lock(&members.file, FlockOperation::NonBlockingLockExclusive).map_err(failed)? {
                first()?;
            }
            // Between the two locks is a gap in which another may come first too, or the last one
            // may leave and remove the file. The former does no harm, since nothing has been stored
            // yet; after the latter the lock is on a file that nobody else will find, so try again.
            let shared = lock(&members.file, FlockOperation::NonBlockingLockShared).map_err(failed)?;
            if shared && is_at(&members.file, &members.path).map_err(failed)? {
                members.store = Some(store.to_owned());
                return Ok(members);
            }
            if !pause.sleep() {
                let why = "its other users kept it locked until the deadline";
                return Err(failed(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        let last = lock(&self.file, FlockOperation::NonBlockingLockExclusive).unwrap_or(false)
            && is_at(&self.file, &self.path).unwrap_or(false);
        // A file with contents is not one of ours, whatever its name. Files that stay are harmless:
        // the next first member starts over.
        if last && self.file.metadata().is_ok_and(|m| m.len() == 0) {
            if let Some(store) = &self.store {
                let _ = fs::remove_file(store);
            }
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens or creates a file that only this user can read: what it says is believed.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

/// Takes the lock if that needs no waiting.
pub(crate) fn lock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    loop {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Whether that path still leads to that file.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (ours.dev(), ours.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Waiting for other processes, which cannot wake this one: short pauses that grow.
pub(crate) struct Pause {
    next: Duration,
    deadline: Instant,
}

impl Pause {
    /// The longest pause. Nobody notices 20 ms when a world starts, and fifty looks per second cost
    /// nothing.
    const LONGEST: Duration = Duration::from_millis(20);

    pub(crate) fn new(deadline: Instant) -> Self {
        Self {
            next: Duration::from_millis(1),
            deadline,
        }
    }

    /// Pauses; false, at once, after the deadline.
    pub(crate) fn sleep(&mut self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        std::thread::sleep(self.next.min(left));
        self.next = (self.next * 2).min(Self::LONGEST);
        !left.is_zero()
    }
}
