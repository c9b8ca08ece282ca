//! Output files that an option of a command names.

use std::path::Path;
use std::{fs, io};

use crate::Error;

/// Checks that a file can be written, before the work whose result it will hold. An existing file stays unchanged.
///
/// # Errors
/// When the file cannot be opened for writing.
pub fn check_writable(path: &Path) -> Result<(), Error> {
    let mut options = fs::OpenOptions::new();
    let opened = options.append(true).create(true).open(path);
    opened.map_err(|error| cannot_write(path, &error))?;
    Ok(())
}

/// The text of a failed write.
pub fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write `{}`: {error}", path.display())
}
