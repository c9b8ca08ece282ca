//! Errors of processes without free file descriptors.

use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Whether this process, or its host, has no free file descriptors.
pub(crate) fn are_exhausted(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// The text of a system error, with advice if descriptors are missing.
pub(crate) fn explain(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => {
            let limit = getrlimit(Resource::Nofile).current;
            let limit = limit.map_or(String::new(), |limit| format!(" (the limit is {limit})"));
            format!(
                "too many open files in this process{limit}: raise `ulimit -n`, or use fewer workers in one world"
            )
        }
        Some(Errno::NFILE) => "too many open files on this host: raise `fs.file-max`".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_errors_give_advice() {
        let says = |errno: Errno, start: &str| {
            let text = explain(&errno.into());
            assert!(text.starts_with(start), "{text}");
        };
        says(Errno::MFILE, "too many open files in this process (the limit is ");
        says(Errno::NFILE, "too many open files on this host: raise");
        says(Errno::CONNREFUSED, "Connection refused");
        assert!(are_exhausted(&Errno::MFILE.into()) && are_exhausted(&Errno::NFILE.into()));
        assert!(!are_exhausted(&Errno::CONNREFUSED.into()));
    }
}
