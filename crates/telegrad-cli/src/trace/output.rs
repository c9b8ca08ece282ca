//! Output files, written completely or not at all.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use telegrad::profile::Profile;
use tempfile::NamedTempFile;

use super::signals::ending;
use crate::Error;

/// The default output file.
pub(super) const DEFAULT: &str = "trace.json";

/// The temporary file being written. There is one at a time.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// An output file. A temporary file beside it replaces it once it is complete, so that an error leaves the old file unchanged. Pipes and
/// devices are written directly.
pub(super) struct Output {
    pub(super) path: PathBuf,
    /// Whether the user named the file, and so agreed to replace it.
    may_replace: bool,
}

impl Output {
    /// The file that the user named, or else the default file, which must not exist.
    pub(super) fn new(named: Option<PathBuf>) -> Self {
        match named {
            Some(path) => Self {
                path,
                may_replace: true,
            },
            None => Self::unnamed(DEFAULT.into()),
        }
    }

    /// A file that the user did not name: an existing one is not replaced.
    fn unnamed(path: PathBuf) -> Self {
        Self {
            path,
            may_replace: false,
        }
    }

    /// The file of a further world: `trace-2.json` and so on, the first that does not exist.
    pub(super) fn further(&self, number: usize) -> Self {
        let mut paths = (number..).map(|number| numbered(&self.path, number));
        // There are more numbers than files.
        let free = paths.find(|path| fs::symlink_metadata(path).is_err());
        Self::unnamed(free.unwrap_or_default())
    }

    /// Checks that the file can be written. An existing file stays unchanged.
    pub(super) fn check(&self) -> Result<(), Error> {
        match fs::metadata(&self.path) {
            Ok(_) if !self.may_replace => {
                let path = self.path.display();
                return Err(format!("{path} exists already; use `--output {path}` to replace it").into());
            }
            // Opening and closing a pipe would end it for its reader.
            Ok(found) if is_written_directly(&self.path, &found) => return Ok(()),
            // A write-protected file is not replaced either.
            Ok(_) => {
                let opened = OpenOptions::new().write(true).open(&self.path);
                opened.map_err(|error| self.cannot_write(&error))?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => (),
            Err(error) => return Err(self.cannot_write(&error)),
        }
        self.beside().map(drop).map_err(|error| self.cannot_write(&error))
    }

    /// Writes the file.
    pub(super) fn write(&self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
        self.check()?;
        self.try_write(content).map_err(|error| self.cannot_write(&error))
    }

    /// Writes a profile: as lines of JSON where the file's name ends in `.jsonl`, else in Chrome's format.
    pub(super) fn write_profile(&self, profile: &Profile) -> Result<(), Error> {
        self.write(|to| match self.path.extension() {
            Some(extension) if extension == "jsonl" => profile.write_lines(to),
            _ => profile.write_chrome(to),
        })
    }

    fn try_write(&self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let found = fs::metadata(&self.path).ok();
        if found
            .as_ref()
            .is_some_and(|found| is_written_directly(&self.path, found))
        {
            let mut to = BufWriter::new(File::create(&self.path)?);
            content(&mut to)?;
            return to.flush();
        }
        let file = self.beside()?;
        *UNFINISHED.lock() = Some(file.path().to_owned());
        let mut to = BufWriter::new(file.as_file());
        content(&mut to)?;
        to.flush()?;
        drop(to);
        if let Some(found) = found {
            // Keeps the permissions.
            file.as_file().set_permissions(found.permissions())?;
        }
        let done = if self.may_replace {
            // The target of a symbolic link.
            let target = self.path.canonicalize();
            file.persist(target.as_ref().unwrap_or(&self.path))
        } else {
            file.persist_noclobber(&self.path)
        };
        UNFINISHED.lock().take();
        done.map(drop).map_err(|error| error.error)
    }

    /// Creates a temporary file in the same folder.
    fn beside(&self) -> io::Result<NamedTempFile> {
        let target = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        // The usual permissions of a new file, which the umask restricts.
        tempfile::Builder::new()
            .prefix(".telegrad-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder.unwrap_or(Path::new(".")))
    }

    fn cannot_write(&self, error: &io::Error) -> Error {
        // Without the path of the temporary file, which tempfile appends.
        let text = error.to_string();
        let cause = text.split(" at path ").next().unwrap_or_default();
        format!("cannot write {}: {cause}", self.path.display()).into()
    }
}

/// Whether the file cannot be replaced by another one: a pipe or a device.
fn is_written_directly(path: &Path, found: &fs::Metadata) -> bool {
    // Open files of a process appear there under names of their own.
    path.starts_with("/dev") || path.starts_with("/proc") || !(found.is_file() || found.is_dir())
}

/// Whether two paths lead to the same file.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path| {
        let found = fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    file(one).is_some_and(|one| file(other) == Some(one))
}

/// Removes the temporary file.
pub(super) fn abandon() {
    if let Some(path) = UNFINISHED.lock().take() {
        // On failure an incomplete file with a temporary name remains, which is harmless.
        let _ = fs::remove_file(path);
    }
}

/// Makes signals remove the temporary file before they end this command.
pub(super) fn abandon_on_signals() -> io::Result<()> {
    let mut signals = ending()?;
    std::thread::spawn(move || {
        if let Some(origin) = signals.forever().next() {
            abandon();
            std::process::exit(128 + origin.signal);
        }
    });
    Ok(())
}

/// Inserts a number before the extension.
fn numbered(output: &Path, number: usize) -> PathBuf {
    let mut name = output.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    let path = output.with_file_name(name);
    match output.extension() {
        Some(extension) => path.with_added_extension(extension),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abandon_removes_the_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let output = Output::new(Some(folder.path().join("t.json")));
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let done = output.write(|to| {
            to.write_all(b"the first part")?;
            assert_eq!(count(), 1);
            abandon();
            assert_eq!(count(), 0);
            Ok(())
        });
        assert!(done.is_err());
        assert_eq!(count(), 0);
    }
}
