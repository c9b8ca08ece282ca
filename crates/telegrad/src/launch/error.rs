//! How a launch ends when it does not end well.

use std::fmt;
use std::io;

use signal_hook::low_level::signal_name;
use thiserror::Error;

/// Why a world did not start, or did not end well.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A world without workers.
    #[error("a world needs at least one worker")]
    NoWorkers,
    /// A name that no worker can have.
    #[error("worker name `{name}` {problem}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Two workers with one name.
    #[error("worker name `{name}` is used twice, for ranks {first} and {second}")]
    DuplicateName {
        /// The name.
        name: String,
        /// The rank that has it.
        first: usize,
        /// The rank that wants it too.
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
        /// The worker it was to be.
        name: String,
        /// The rank of that worker.
        rank: usize,
        /// What the system said.
        source: io::Error,
    },
    /// A worker failed; with [`Launch::keep_going`](super::Launch::keep_going), perhaps several.
    #[error("{}{}", Failures(failures), Stubborn(stubborn))]
    Failed {
        /// The workers that failed, in the order of their ends.
        failures: Vec<Failure>,
        /// The workers that were asked to end and had to be killed.
        stubborn: Vec<String>,
    },
    /// The launcher was told to end by a signal, and the workers did not all end well.
    #[error("ended by signal {signal}{}{}", SignalName(*signal), Stubborn(stubborn))]
    Interrupted {
        /// The signal that the launcher got.
        signal: i32,
        /// The workers that were asked to end and had to be killed.
        stubborn: Vec<String>,
    },
    /// This process is part of a world that is not the one its program describes.
    #[error("{0}")]
    OtherWorld(String),
    /// The system refused something that the launcher itself needs.
    #[error("the launcher cannot go on: {0}")]
    System(#[source] io::Error),
}

impl From<LaunchError> for crate::Error {
    fn from(error: LaunchError) -> Self {
        Self::other(error)
    }
}

impl LaunchError {
    /// What a command that launched this world should exit with: the status of the first worker that
    /// failed if it has one, 128 + n after signal n as shells do, otherwise 1.
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

/// Why a program does not start; the system's own words do not say where it was looked for.
fn reason(program: &str, source: &io::Error) -> String {
    if source.kind() == io::ErrorKind::NotFound && !program.contains('/') {
        "there is no such program in PATH".into()
    } else {
        source.to_string()
    }
}

/// A worker that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// It exited with this status.
    Status(i32),
    /// This signal ended it.
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

/// The end of an error text that says who had to be killed, if anybody.
struct Stubborn<'a>(&'a [String]);

impl fmt::Display for Stubborn<'_> {
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
