//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::{Builder, NamedTempFile};

/// A new file beside another one, which it replaces once it is complete. Dropped before that, it is removed.
///
/// Parameters and the state of optimisers are written this way: a file of either is never half of one.
#[derive(Debug)]
pub struct Replacement(NamedTempFile);

impl Replacement {
    /// An empty file in the folder of `path`.
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

    /// The file, to write to.
    pub fn file(&self) -> &File {
        self.0.as_file()
    }

    /// Where the file is until it replaces the other.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes the place of `path` when all of it is on the disk.
    ///
    /// # Errors
    /// When the disk or the folder refuses. The file at `path` is then as before.
    pub fn replace(self, path: &Path) -> io::Result<()> {
        self.0.as_file().sync_all()?;
        self.0.persist(path).map_err(|error| error.error)?;
        // The name is an entry of the folder, which has a sync of its own. Some file systems refuse that one.
        if let Some(Ok(folder)) = path.parent().map(File::open) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}
