//! Errors of the peer's benchmark.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// A failure of the peer's benchmark.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PeerError {
    #[error(
        "cannot start Python as `{}`: {source}; install Python with torch (Debian: apt install python3-torch), or \
         name one that has it with --python", python.display()
    )]
    NoPython { python: PathBuf, r#source: io::Error },

    #[error(
        "`{}` cannot use torch.distributed.rpc: {output}; install torch (Debian: apt install python3-torch; in a venv: \
         pip install torch numpy), or name a Python that has it with --python", python.display()
    )]
    NoTorch { python: PathBuf, output: String },

    #[error("torch's `{section}` failed with {status}: {output}")]
    Failed {
        section: String,
        status: ExitStatus,
        output: String,
    },

    #[error("torch's `{section}` did not end within {limit:?} and was killed; --limit allows more time")]
    Hung { section: String, limit: Duration },

    #[error("torch's `{section}` printed a line that is not a value: {line}")]
    Garbage { section: String, line: String },

    #[error("torch's `{section}` ended without a value")]
    Silent { section: String },

    #[error(transparent)]
    Io(#[from] io::Error),
}
