//! Why there is nothing to compare with.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why the peer's benchmark has no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PeerError {
    #[error(
        "cannot start Python as `{}`: {source}; install Python with torch (Debian: apt install python3-torch), or \
         name one that has it with --python", python.display()
    )]
    NoPython { python: PathBuf, r#source: io::Error },

    #[error(
        "`{}` cannot use torch.distributed.rpc: {said}; install torch (Debian: apt install python3-torch; in a venv: \
         pip install torch numpy), or name a Python that has it with --python", python.display()
    )]
    NoTorch { python: PathBuf, said: String },

    #[error("torch's `{what}` failed with {status}: {said}")]
    Failed {
        what: String,
        status: ExitStatus,
        said: String,
    },

    #[error("torch's `{what}` was not done after {limit:?} and was ended; --limit gives it longer")]
    Hung { what: String, limit: Duration },

    #[error("torch's `{what}` printed something that is no value: {line}")]
    Garbage { what: String, line: String },

    #[error("torch's `{what}` ended without a value")]
    Silent { what: String },

    #[error(transparent)]
    Io(#[from] io::Error),
}
