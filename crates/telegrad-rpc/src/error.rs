//! What can go wrong with a call or a world.

use std::fmt;
use std::time::Duration;

use telegrad_wire::{BoxError, Wire, WireError, peer_text};
use thiserror::Error;

use crate::rendezvous::RendezvousError;
use crate::types::ReferenceInfo;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call, or something else that a world was asked to do, did not work.
///
/// Its `Debug` text is its `Display` text, because that is what a `main` that returns it prints.
#[derive(Error)]
#[non_exhaustive]
pub enum Error {
    /// No member of the world is meant.
    #[error("there is no worker {wanted} in this world of {}", Names(.known))]
    UnknownWorker {
        /// The name or rank asked for.
        wanted: String,
        /// The names of the members.
        known: Vec<String>,
    },
    /// The function was never registered in this program.
    #[error("`{function}` is not a remote function: {}", how_to_register(.function))]
    NotRemote {
        /// Its path in Rust; that of a closure ends with `{{closure}}`.
        function: &'static str,
    },
    /// The callee runs a program without this function, or with another of that name.
    #[error("{0}")]
    Mismatch(Box<Mismatch>),
    /// The call took longer than it was given.
    #[error(
        "`{function}` on worker `{worker}` took longer than its limit of {limit:?} ({elapsed:?} elapsed)"
    )]
    Timeout {
        /// The function called.
        function: String,
        /// The callee.
        worker: String,
        /// The time it was given.
        limit: Duration,
        /// The time since the call was made.
        elapsed: Duration,
    },
    /// The connection to the callee was lost while the call was under way.
    #[error("worker `{worker}` was lost during the call of `{function}`: {why}")]
    WorkerLost {
        /// The callee.
        worker: String,
        /// The function called.
        function: String,
        /// How the connection ended.
        why: String,
    },
    /// The callee cannot be reached.
    #[error("cannot connect to worker `{worker}`: {why}")]
    Unreachable {
        /// The callee.
        worker: String,
        /// What was tried and how it failed.
        why: String,
    },
    /// The function failed on the callee, or on a worker that it called in turn.
    #[error("{0}")]
    Remote(Box<RemoteError>),
    /// The value of a reference was to be used where it is not.
    #[error(
        "the `{what}` that this reference refers to is on worker `{owner}`: it can be used as a local value only there, \
         not on `{here}`"
    )]
    NotOwner {
        /// The type of the value.
        what: String,
        /// Where it is.
        owner: String,
        /// Where it was to be used.
        here: String,
    },
    /// The worker that had the value of a reference is gone.
    #[error("the `{what}` that this reference refers to is gone, with its owner, worker `{owner}`: {why}")]
    OwnerLost {
        /// The type of the value.
        what: String,
        /// Where it was.
        owner: String,
        /// How that worker ended.
        why: String,
    },
    /// The value of a reference was freed, because its owner takes whoever handed the reference on for gone.
    #[error(
        "worker `{owner}` no longer has the `{what}` that this reference refers to: whoever handed the reference on was \
         lost before the owner knew of it"
    )]
    ReferenceLost {
        /// The type of the value.
        what: String,
        /// Where it was.
        owner: String,
    },
    /// References to values of this worker still lived when it shut down.
    #[error("still referred to at the shutdown: {}", Shown(.0))]
    Leaked(Vec<ReferenceInfo>),
    /// The callee has as many requests waiting as it takes, and the call was not to wait.
    #[error("worker `{worker}` has no room for another request of `{function}`")]
    Overloaded {
        /// The callee.
        worker: String,
        /// The function called.
        function: String,
    },
    /// Arguments that cannot be sent.
    #[error("cannot send the arguments of `{function}` to worker `{worker}`: {source}")]
    Send {
        /// The function called.
        function: String,
        /// The callee.
        worker: String,
        /// What is wrong with them.
        source: Box<WireError>,
    },
    /// A result that is not what the function returns.
    #[error("the result of `{function}` from worker `{worker}` cannot be read: {source}")]
    Receive {
        /// The function called.
        function: String,
        /// The callee.
        worker: String,
        /// What is wrong with it.
        source: Box<WireError>,
    },
    /// A result that this process has no memory for.
    #[error("no memory on this worker for the result of `{function}` from worker `{worker}`: {bytes} bytes")]
    NoMemory {
        /// The function called.
        function: String,
        /// The callee.
        worker: String,
        /// Bytes of the result that there was no memory for.
        bytes: u64,
    },
    /// A wait where waiting would stop the worker from receiving.
    #[error("an inline function must not wait for other calls, nor a subscriber that is shown something")]
    WaitInInline,
    /// The world has been shut down.
    #[error("this world has been shut down")]
    ShutDown,
    /// The current world was asked for outside a remote function.
    #[error("there is no current world outside a remote function")]
    NoWorld,
    /// Not every member came to a barrier, a gathering or the shutdown.
    #[error("{what} was not completed within {limit:?}: {}", Missing(.missing))]
    Incomplete {
        /// What was waited for.
        what: &'static str,
        /// The time it was given.
        limit: Duration,
        /// The members that did not come; empty when rank 0, where barriers and gatherings meet, did not answer.
        missing: Vec<String>,
    },
    /// A graceful shutdown inside a remote function.
    #[error(
        "the remote function `{function}` called `shutdown`, which would wait for that function: let it return first, or use \
         `shutdown_now`"
    )]
    ShutdownInFunction {
        /// The function.
        function: String,
    },
    /// The world could not be formed.
    #[error("{0}")]
    Init(String),
    /// The members could not find each other.
    #[error(transparent)]
    Rendezvous(Box<RendezvousError>),
    /// A tensor operation failed.
    #[cfg(feature = "candle")]
    #[error(transparent)]
    Tensor(#[from] Box<candle_core::Error>),
    /// An error of the user's own.
    #[error(transparent)]
    Other(BoxError),
}

impl Error {
    /// An error of your own, from a message or another error.
    pub fn other(error: impl Into<BoxError>) -> Self {
        Self::Other(error.into())
    }

    /// The remote error behind this, if the failure happened on another worker.
    pub fn remote(&self) -> Option<&RemoteError> {
        match self {
            Self::Remote(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(feature = "candle")]
impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Self::Tensor(Box::new(error))
    }
}

/// For functions that read and write files.
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::other(error)
    }
}

impl From<RendezvousError> for Error {
    fn from(error: RendezvousError) -> Self {
        Self::Rendezvous(Box::new(error))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<RemoteError> for Error {
    fn from(error: RemoteError) -> Self {
        Self::Remote(Box::new(error))
    }
}

/// How the callee's program differs from the caller's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// It has no function of this name.
    #[error(
        "worker `{worker}` has no function `{function}`: it runs another program, or another version of this one"
    )]
    Missing {
        /// The function called.
        function: String,
        /// The callee.
        worker: String,
    },
    /// It has one that takes or returns something else.
    #[error("`{function}` has another signature on worker `{worker}`: {difference}")]
    Signature {
        /// The function called.
        function: String,
        /// The callee.
        worker: String,
        /// The first difference, from the argument or the result down to the field.
        difference: String,
    },
}

/// A failure on another worker. The fields are as the worker sent them; its `Display` text is [`peer_text`].
#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct RemoteError {
    /// What sort of failure it was.
    pub kind: RemoteErrorKind,
    /// The error's own text.
    pub message: String,
    /// The calls from the first callee to where it happened.
    pub chain: Vec<Hop>,
}

/// One call on the way to a remote error.
#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct Hop {
    /// The worker that was called.
    pub worker: String,
    /// The function that it ran.
    pub function: String,
}

/// The sort of a remote failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Wire)]
#[non_exhaustive]
pub enum RemoteErrorKind {
    /// The function returned an error.
    Failed,
    /// The function panicked.
    Panicked,
    /// The worker has no such function.
    NotRegistered,
    /// The arguments are not what the function takes.
    BadArguments,
    /// The result cannot be sent.
    BadResult,
    /// The call was cancelled, or its time had run out, before there was a result.
    Cancelled,
    /// The worker is shutting down.
    ShuttingDown,
    /// The function was to make a value for a reference, and its time ran out.
    TimedOut,
    /// There is no value to call it on: it was not made, or is gone.
    NoValue,
    /// The worker had no memory for the arguments.
    NoMemory,
}

impl RemoteErrorKind {
    /// The sort of a failure to decode arguments.
    pub(crate) fn of_arguments(error: &WireError) -> Self {
        match error {
            WireError::NoMemory { .. } => Self::NoMemory,
            _ => Self::BadArguments,
        }
    }
}

impl RemoteError {
    pub(crate) fn new(
        kind: RemoteErrorKind,
        message: impl Into<String>,
        worker: &str,
        function: &str,
    ) -> Self {
        let hop = Hop {
            worker: worker.into(),
            function: function.into(),
        };
        Self {
            kind,
            message: message.into(),
            chain: vec![hop],
        }
    }

    /// The arguments did not fit into the memory of `worker`.
    pub(crate) fn no_memory(bytes: u64, worker: &str, function: &str) -> Self {
        Self::new(
            RemoteErrorKind::NoMemory,
            format!("{bytes} bytes"),
            worker,
            function,
        )
    }

    /// What a function's own error becomes when it leaves `worker`. An error that came from a call
    /// of the function's own keeps its origin; this worker is put in front of the chain.
    pub(crate) fn from_user(error: &BoxError, worker: &str, function: &str) -> Self {
        let mut failure = Self::new(RemoteErrorKind::Failed, error.to_string(), worker, function);
        let first: &(dyn std::error::Error + 'static) = error.as_ref();
        let inner = std::iter::successors(Some(first), |error| error.source())
            .find_map(|error| error.downcast_ref::<Error>()?.remote());
        if let Some(inner) = inner {
            failure.kind = inner.kind;
            if first.downcast_ref::<Error>().is_some() {
                failure.message.clone_from(&inner.message);
            }
            failure.chain.extend(inner.chain.iter().cloned());
        }
        failure
    }

    /// The worker where it happened.
    pub fn worker(&self) -> &str {
        self.chain.last().map_or("", |hop| &hop.worker)
    }

    /// The function that failed there.
    pub fn function(&self) -> &str {
        self.chain.last().map_or("", |hop| &hop.function)
    }
}

impl std::error::Error for RemoteError {}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (worker, function) = (peer_text(self.worker()), peer_text(self.function()));
        match self.kind {
            RemoteErrorKind::Failed => write!(f, "`{function}` failed on worker `{worker}`")?,
            RemoteErrorKind::Panicked => write!(f, "`{function}` panicked on worker `{worker}`")?,
            RemoteErrorKind::NotRegistered => write!(f, "worker `{worker}` has no function `{function}`")?,
            RemoteErrorKind::BadArguments => write!(
                f,
                "worker `{worker}` cannot call `{function}` with these arguments"
            )?,
            RemoteErrorKind::BadResult => {
                write!(f, "the result of `{function}` cannot leave worker `{worker}`")?
            }
            RemoteErrorKind::Cancelled => write!(f, "`{function}` was given up on worker `{worker}`")?,
            RemoteErrorKind::ShuttingDown => {
                write!(f, "worker `{worker}` does not run `{function}` any more")?
            }
            RemoteErrorKind::TimedOut => {
                write!(f, "`{function}` took longer than its limit on worker `{worker}`")?
            }
            RemoteErrorKind::NoValue => write!(f, "worker `{worker}` has no value for `{function}`")?,
            RemoteErrorKind::NoMemory => write!(
                f,
                "worker `{worker}` has no memory for the arguments of `{function}`"
            )?,
        }
        if let [through @ .., _] = self.chain.as_slice()
            && !through.is_empty()
        {
            let path: Vec<_> = through
                .iter()
                .map(|hop| format!("`{}` on `{}`", peer_text(&hop.function), peer_text(&hop.worker)))
                .collect();
            write!(f, " (called by {})", path.join(", called by "))?;
        }
        if self.message.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", peer_text(&self.message))
        }
    }
}

/// Advice for a function that is not registered.
fn how_to_register(path: &str) -> &'static str {
    match path.ends_with("{{closure}}") {
        true => "closures cannot be called remotely: make it a function marked #[remote]",
        false => "mark it with #[remote]",
    }
}

/// Shows a few names, and how many more there are.
struct Names<'a>(&'a [String]);

/// Shows which members did not come.
struct Missing<'a>(&'a [String]);

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("rank 0 did not say which members are missing"),
            names => write!(f, "still missing {}", Names(names)),
        }
    }
}

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_some(f, self.0.iter().map(|name| format!("`{name}`")), ", ")
    }
}

/// Shows a few references, and how many more there are.
struct Shown<'a>(&'a [ReferenceInfo]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_some(f, self.0.iter().map(ToString::to_string), "; ")
    }
}

fn show_some(
    f: &mut fmt::Formatter<'_>,
    all: impl ExactSizeIterator<Item = String>,
    between: &str,
) -> fmt::Result {
    const SHOWN: usize = 8;
    let more = all.len().saturating_sub(SHOWN);
    let shown: Vec<_> = all.take(SHOWN).collect();
    f.write_str(&shown.join(between))?;
    if more > 0 {
        write!(f, " and {more} more")?;
    }
    Ok(())
}
