//! Errors of a launch.

use std::fmt;
use std::io;

use signal_hook::low_level::signal_name;
use thiserror::Error;

/// Why a world could not be started, or which of its workers failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The launch has no workers.
    #[error("a world needs at least one worker")]
    NoWorkers,
    /// A worker name is not valid.
    #[error("worker name `{name}` {problem}")]
    BadName {
        /// The name.
        name: String,
        /// The rule that it breaks.
        problem: String,
    },
    /// Two workers have the same name.
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
        /// The name of the worker.
        name: String,
        /// The rank of the worker.
        rank: usize,
        /// The system's error, part of this error's text and not returned by `source()`.
        r#source: io::Error,
    },
    /// A worker failed; several may with [`Launch::keep_going`](super::Launch::keep_going).
    #[error("{}{}", Failures(failures), Killed(killed))]
    Failed {
        /// The workers that failed, in the order in which they ended.
        failures: Vec<Failure>,
        /// The workers killed because they did not end when asked.
        killed: Vec<String>,
    },
    /// A signal ended the launcher, and a worker failed or had to be killed.
    #[error("ended by signal {signal}{}{}", SignalName(*signal), Killed(killed))]
    Interrupted {
        /// The signal.
        signal: i32,
        /// The workers killed because they did not end when asked.
        killed: Vec<String>,
    },
    /// This process belongs to another world than its program describes.
    #[error("{0}")]
    OtherWorld(String),
    /// A system call of the launcher failed. The text contains the system's error, which `source()` does not return.
    #[error("a system call of the launcher failed: {0}")]
    System(io::Error),
}

impl From<LaunchError> for crate::Error {
    fn from(error: LaunchError) -> Self {
        Self::other(error)
    }
}

impl LaunchError {
    /// The exit code for a command that launched this world.
    ///
    /// The status of the first worker that failed if it has one, 128 + n after signal n as in shells, otherwise 1.
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

/// Why a program did not start; the system's own text does not mention `PATH`.
fn reason(program: &str, source: &io::Error) -> String {
    if source.kind() == io::ErrorKind::NotFound && !program.contains('/') {
        "there is no such program in PATH".into()
    } else {
        source.to_string()
    }
}

/// A worker that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The worker's name.
    pub name: String,
    /// Its rank.
    pub rank: usize,
    /// How it ended.
    pub ending: Ending,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` (rank {}) {}", self.name, self.rank, self.ending)
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The process exited with this status.
    Status(i32),
    /// This signal ended the process.
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

/// The list of killed workers at the end of an error text; nothing if there are none.
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
