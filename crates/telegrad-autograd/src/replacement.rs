//! Atomic replacement of files.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::{Builder, NamedTempFile};

/// A temporary file that atomically replaces another one. Dropped before that, it is removed.
///
/// Files of parameters and of optimiser states are written this way: a reader never sees half a file.
#[derive(Debug)]
pub struct Replacement(NamedTempFile);

impl Replacement {
    /// Creates an empty file in the folder of `path`.
    ///
    /// # Errors
    /// When the folder is missing or refuses new files.
    pub fn beside(path: &Path) -> io::Result<Self> {
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Builder::new()
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .map(Self)
    }

    /// The temporary file, open for writing.
    pub fn file(&self) -> &File {
        self.0.as_file()
    }

    /// The path of the temporary file.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Syncs the file to disk, and renames it to `path`.
    ///
    /// # Errors
    /// When the file cannot be synced or renamed. The file at `path` is then unchanged.
    pub fn replace(self, path: &Path) -> io::Result<()> {
        self.0.as_file().sync_all()?;
        self.0.persist(path).map_err(|error| error.error)?;
        // The rename changes the folder, which needs its own sync. Some file systems refuse it.
        if let Some(Ok(folder)) = path.parent().map(File::open) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}
