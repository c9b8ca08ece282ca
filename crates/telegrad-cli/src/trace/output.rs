//! Files that commands write.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use telegrad::profile::Profile;
use tempfile::NamedTempFile;

use super::signals::ending;
use crate::Error;

/// Where recordings go when nobody says.
pub(super) const USUAL: &str = "trace.json";

/// What is being written beside the place where it goes. There is one at a time.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// A file that is written. It is there whole, or what was there before still is: all of it goes to another one beside it first.
/// Pipes and devices are written as they are.
pub(super) struct Output {
    pub(super) path: PathBuf,
    /// Somebody has named it, and knows what is lost.
    may_replace: bool,
}

impl Output {
    /// The file that somebody asked for, which may be there, or else the usual one, which may not.
    pub(super) fn new(asked: Option<PathBuf>) -> Self {
        match asked {
            Some(path) => Self {
                path,
                may_replace: true,
            },
            None => Self::unasked(USUAL.into()),
        }
    }

    /// A file that nobody asked for by its name: if it is there, it is somebody else's.
    fn unasked(path: PathBuf) -> Self {
        Self {
            path,
            may_replace: false,
        }
    }

    /// The next free one for a further world after this one: `trace-2.json` and so on.
    pub(super) fn further(&self, number: usize) -> Self {
        let mut paths = (number..).map(|number| numbered(&self.path, number));
        // The numbers do not end before the names do.
        let free = paths.find(|path| fs::symlink_metadata(path).is_err());
        Self::unasked(free.unwrap_or_default())
    }

    /// Sees to it that it can be written, before there is anything to write. What is there stays there.
    pub(super) fn check(&self) -> Result<(), Error> {
        match fs::metadata(&self.path) {
            Ok(_) if !self.may_replace => {
                let path = self.path.display();
                return Err(format!("{path} is there already; `--output {path}` replaces it").into());
            }
            // Whoever reads from a pipe would take it to be over.
            Ok(found) if is_written_as_it_is(&self.path, &found) => return Ok(()),
            // What may not be written is not replaced either.
            Ok(_) => {
                let opened = OpenOptions::new().write(true).open(&self.path);
                opened.map_err(|error| self.cannot(&error))?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => (),
            Err(error) => return Err(self.cannot(&error)),
        }
        self.beside().map(drop).map_err(|error| self.cannot(&error))
    }

    /// Writes it.
    pub(super) fn write(&self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
        self.check()?;
        self.put(content).map_err(|error| self.cannot(&error))
    }

    /// Writes a profile: as lines of JSON where the file's name ends in `.jsonl`, else in Chrome's format.
    pub(super) fn write_profile(&self, profile: &Profile) -> Result<(), Error> {
        self.write(|to| match self.path.extension() {
            Some(extension) if extension == "jsonl" => profile.write_lines(to),
            _ => profile.write_chrome(to),
        })
    }

    fn put(&self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let found = fs::metadata(&self.path).ok();
        if found
            .as_ref()
            .is_some_and(|found| is_written_as_it_is(&self.path, found))
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
            // Whoever may read it still may.
            file.as_file().set_permissions(found.permissions())?;
        }
        let done = if self.may_replace {
            // Where a link leads.
            let place = self.path.canonicalize();
            file.persist(place.as_ref().unwrap_or(&self.path))
        } else {
            file.persist_noclobber(&self.path)
        };
        UNFINISHED.lock().take();
        done.map(drop).map_err(|error| error.error)
    }

    /// An empty file in the same folder.
    fn beside(&self) -> io::Result<NamedTempFile> {
        let place = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty());
        // As any file that is made: less what the user wants nobody to do.
        tempfile::Builder::new()
            .prefix(".telegrad-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder.unwrap_or(Path::new(".")))
    }

    fn cannot(&self, error: &io::Error) -> Error {
        // It is of no use to anybody where the file beside it would have been.
        let text = error.to_string();
        let cause = text.split(" at path ").next().unwrap_or_default();
        format!("cannot write {}: {cause}", self.path.display()).into()
    }
}

/// Whether there is no other file that could take its place.
fn is_written_as_it_is(path: &Path, found: &fs::Metadata) -> bool {
    // What a process has open is there under a name, too, and is that file alone.
    path.starts_with("/dev") || path.starts_with("/proc") || !(found.is_file() || found.is_dir())
}

/// Whether two paths are of one file.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path| {
        let found = fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    file(one).is_some_and(|one| file(other) == Some(one))
}

/// Removes what has been written of a file that will not be finished.
pub(super) fn abandon() {
    if let Some(path) = UNFINISHED.lock().take() {
        // Nothing more can be done about it, and nobody takes it to be whole.
        let _ = fs::remove_file(path);
    }
}

/// From now on, signals end this command in such a way that nothing unfinished is left.
pub(super) fn abandon_when_ended() -> io::Result<()> {
    let mut signals = ending()?;
    std::thread::spawn(move || {
        if let Some(origin) = signals.forever().next() {
            abandon();
            std::process::exit(128 + origin.signal);
        }
    });
    Ok(())
}

/// Where the recording of a further world goes.
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
    fn what_is_abandoned_leaves_nothing_behind() {
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
