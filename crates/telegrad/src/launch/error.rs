//! Errors of a launch.

use std::fmt;
use std::io;

use signal_hook::low_level::signal_name;
use thiserror::Error;

/// An error of a launch: the world did not start, or a worker failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A world without workers.
    #[error("a world needs at least one worker")]
    NoWorkers,
    /// Invalid name of a worker.
    #[error("worker name `{name}` {problem}")]
    BadName {
        /// The name.
        name: String,
        /// The reason.
        problem: String,
    },
    /// Two workers with one name.
    #[error("worker name `{name}` is used twice, for ranks {first} and {second}")]
    DuplicateName {
        /// The name.
        name: String,
        /// The first rank with the name.
        first: usize,
        /// The second rank with the name.
        second: usize,
    },
    /// The program could not be started.
    #[error(
        "cannot start `{program}` as worker `{name}` (rank {rank}): {}",
        reason(program, source)
    )]
    Start {
        /// The program.
        program: String,
        /// Name of the worker.
        name: String,
        /// Rank of the worker.
        rank: usize,
        /// Error of the system.
        source: io::Error,
    },
    /// A worker failed; with [`Launch::keep_going`](super::Launch::keep_going), perhaps several.
    #[error("{}{}", Failures(failures), Killed(killed))]
    Failed {
        /// The failed workers, in the order of their ends.
        failures: Vec<Failure>,
        /// Workers that did not end within the grace period and were killed.
        killed: Vec<String>,
    },
    /// A signal interrupted the launcher, and not all workers exited with status 0.
    #[error("ended by signal {signal}{}{}", SignalName(*signal), Killed(killed))]
    Interrupted {
        /// Number of the signal.
        signal: i32,
        /// Workers that did not end within the grace period and were killed.
        killed: Vec<String>,
    },
    /// The process belongs to another world than the program describes.
    #[error("{0}")]
    OtherWorld(String),
    /// A system call of the launcher failed.
    #[error("system call of the launcher failed: {0}")]
    System(#[source] io::Error),
}

impl From<LaunchError> for crate::Error {
    fn from(error: LaunchError) -> Self {
        Self::other(error)
    }
}

impl LaunchError {
    /// Exit code for a command that launched this world.
    ///
    /// The status of the first failed worker if it exited, 128 + n after signal n to the launcher, as in shells, otherwise 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let code = match self {
            LaunchError::Failed { failures, .. } => match failures.first() {
                Some(Failure {
                    ending: Ending::Status(status),
                    ..
                }) => *status,
                _ => 1,
            },
            LaunchError::Interrupted { signal, .. } => 128 + signal,
            _ => 1,
        };
        u8::try_from(code).unwrap_or(1)
    }
}

/// The reason why a program did not start. The system's own text does not mention `PATH`.
fn reason(program: &str, source: &io::Error) -> String {
    if source.kind() == io::ErrorKind::NotFound && !program.contains('/') {
        "there is no such program in PATH".into()
    } else {
        source.to_string()
    }
}

/// A failed worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Name of the worker.
    pub name: String,
    /// Rank of the worker.
    pub rank: usize,
    /// How its process ended.
    pub ending: Ending,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` (rank {}) {}", self.name, self.rank, self.ending)
    }
}

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Status(i32),
    /// It was killed by this signal.
    Signal(i32),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Status(status) => write!(f, "exited with status {status}"),
            Ending::Signal(signal) => write!(f, "was killed by signal {signal}{}", SignalName(*signal)),
        }
    }
}

/// ` (SIGKILL)`, or nothing for a signal without a name.
struct SignalName(i32);

impl fmt::Display for SignalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match signal_name(self.0) {
            Some(name) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}

/// One failure as a sentence, several as a list.
struct Failures<'a>(&'a [Failure]);

impl fmt::Display for Failures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0 {
            return write!(f, "worker {only}");
        }
        write!(f, "{} workers failed", self.0.len())?;
        for (i, failure) in self.0.iter().enumerate() {
            write!(f, "{} {failure}", if i == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

/// The end of an error text that lists killed workers.
struct Killed<'a>(&'a [String]);

impl fmt::Display for Killed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.0.iter().enumerate() {
            let before = if i == 0 {
                "; killed after the grace period:"
            } else {
                ","
            };
            write!(f, "{before} `{name}`")?;
        }
        Ok(())
    }
}
