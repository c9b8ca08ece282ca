//! Errors of calls and worlds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use telegrad_rendezvous::RendezvousError;
use telegrad_wire::{BoxError, WireError};

use crate::list::{Names, Values};
use crate::{AutogradError, Mismatch, ReferenceInfo, RemoteError};
#[cfg(feature = "candle")]
use crate::{NnError, OptimError};

/// Result with Telegrad's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call, or another operation of a world, failed.
///
/// The `Debug` text is the `Display` text, because a `main` that returns the error prints it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The world has no such member.
    #[error("there is no worker {wanted} in this world of {}", Names(.known))]
    UnknownWorker {
        /// The name or rank asked for.
        wanted: String,
        /// The names of the members.
        known: Vec<String>,
    },
    /// The function is not registered in this program.
    #[error("`{function}` is not a remote function: {}", how_to_register(.function))]
    NotRemote {
        /// Its path in Rust; that of a closure ends with `{{closure}}`.
        function: &'static str,
    },
    /// The callee's program lacks the function, or has another of that name.
    #[error("{0}")]
    Mismatch(Box<Mismatch>),
    /// The call exceeded its time limit.
    #[error(
        "`{function}` on worker `{worker}` took longer than its limit of {limit:?} ({elapsed:?} elapsed)"
    )]
    Timeout {
        /// The function called.
        function: String,
        /// The callee.
        worker: String,
        /// The time limit of the call.
        limit: Duration,
        /// The time since the call was made.
        elapsed: Duration,
    },
    /// The connection to the callee was lost during the call.
    #[error("worker `{worker}` was lost during the call of `{function}`: {why}")]
    WorkerLost {
        /// The callee.
        worker: String,
        /// The function called.
        function: String,
        /// How the connection ended.
        why: String,
    },
    /// No connection to the callee could be made.
    #[error("cannot connect to worker `{worker}`: {why}")]
    Unreachable {
        /// The callee.
        worker: String,
        /// The attempts and their failures.
        why: String,
    },
    /// The function failed on the callee, or on a worker that it called in turn.
    #[error("{0}")]
    Remote(Box<RemoteError>),
    /// The value of a reference was used as a local value on another worker than its owner.
    #[error(
        "the `{what}` of this reference is on worker `{owner}`, not here on `{here}`: get a copy with `to_here`, or call a \
         function on it with `rpc_sync`"
    )]
    NotOwner {
        /// The type of the value.
        what: String,
        /// The worker that has the value.
        owner: String,
        /// The worker that used it.
        here: String,
    },
    /// The owner of a reference's value was lost.
    #[error("the `{what}` of this reference was lost with its owner, worker `{owner}`: {why}")]
    OwnerLost {
        /// The type of the value.
        what: String,
        /// The owner.
        owner: String,
        /// How the owner was lost.
        why: String,
    },
    /// The owner freed the value, because the lender of the reference was lost.
    #[error(
        "worker `{owner}` has freed the `{what}` of this reference: the worker that passed the reference on was lost before \
         the owner learnt of the new holder"
    )]
    ReferenceLost {
        /// The type of the value.
        what: String,
        /// The owner.
        owner: String,
    },
    /// References to values of this worker were left at the shutdown.
    #[error("references were left at the shutdown; drop them before: {}", Values(.0))]
    Leaked(Vec<ReferenceInfo>),
    /// The send queue of a call that does not wait for credit was full.
    #[error("worker `{worker}` has no credit for another request of `{function}`: wait for replies first")]
    Overloaded {
        /// The callee.
        worker: String,
        /// The function called.
        function: String,
    },
    /// The arguments cannot be sent.
    #[error("cannot send the arguments of `{function}` to worker `{worker}`: {source}")]
    Send {
        /// The function called.
        function: String,
        /// The callee.
        worker: String,
        /// The cause, part of the error's text and not returned by `source()`.
        r#source: Box<WireError>,
    },
    /// The result is not of the type that the function returns.
    #[error("cannot read the result of `{function}` from worker `{worker}`: {source}")]
    Receive {
        /// The function called.
        function: String,
        /// The callee.
        worker: String,
        /// The cause, part of the error's text and not returned by `source()`.
        r#source: Box<WireError>,
    },
    /// This process has no memory for the result.
    #[error("no memory on this worker for the result of `{function}` from worker `{worker}`: {bytes} bytes")]
    NoMemory {
        /// The function called.
        function: String,
        /// The callee.
        worker: String,
        /// Bytes of the result that could not be allocated.
        bytes: u64,
    },
    /// A blocking wait on a thread that receives messages.
    #[error(
        "cannot wait here: inline functions and subscribers run on the thread that receives the reply. Remove `inline` from \
         the function, or make the call from another thread"
    )]
    WaitInInline,
    /// The world has been shut down.
    #[error("this world has been shut down")]
    ShutDown,
    /// There is no current world on this thread.
    #[error("there is no current world outside a remote function: use the `World` that `init` returned")]
    NoWorld,
    /// A barrier, a gather or the shutdown was incomplete at its time limit.
    #[error("{what} was not completed within {limit:?}: {}", Missing(.missing))]
    Incomplete {
        /// The operation.
        what: &'static str,
        /// Its time limit.
        limit: Duration,
        /// The members that did not come; empty when rank 0, which coordinates barriers and gathers, did not answer.
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
    /// An autograd context or a backward pass failed.
    #[error(transparent)]
    Autograd(Box<AutogradError>),
    /// A layer, a loss or a file of parameters failed.
    #[cfg(feature = "candle")]
    #[error(transparent)]
    Nn(Box<NnError>),
    /// An optimiser failed.
    #[cfg(feature = "candle")]
    #[error(transparent)]
    Optim(Box<OptimError>),
    /// A tensor operation failed.
    #[cfg(feature = "candle")]
    #[error(transparent)]
    Tensor(#[from] Box<candle_core::Error>),
    /// One error of several callers, as of those in one round; see [`Error::original`].
    #[error(transparent)]
    Shared(Arc<Error>),
    /// An error of the user's own.
    #[error(transparent)]
    Other(BoxError),
}

impl Error {
    /// An error of your own, from a message or another error.
    pub fn other(error: impl Into<BoxError>) -> Self {
        Self::Other(error.into())
    }

    /// The error itself, also if it is [shared](Error::Shared).
    pub fn original(&self) -> &Self {
        match self {
            Self::Shared(error) => error.original(),
            error => error,
        }
    }

    /// The error of the worker where a call failed.
    pub fn remote(&self) -> Option<&RemoteError> {
        match self.original() {
            Self::Remote(error) => Some(error),
            _ => None,
        }
    }

    /// The error of autograd on this worker.
    pub fn autograd(&self) -> Option<&AutogradError> {
        match self.original() {
            Self::Autograd(error) => Some(error),
            _ => None,
        }
    }

    /// The error of a layer or a loss on this worker.
    #[cfg(feature = "candle")]
    pub fn nn(&self) -> Option<&NnError> {
        match self.original() {
            Self::Nn(error) => Some(error),
            _ => None,
        }
    }

    /// The error of an optimiser on this worker.
    #[cfg(feature = "candle")]
    pub fn optim(&self) -> Option<&OptimError> {
        match self.original() {
            Self::Optim(error) => Some(error),
            _ => None,
        }
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

impl From<RendezvousError> for Error {
    fn from(error: RendezvousError) -> Self {
        Self::Rendezvous(Box::new(error))
    }
}

impl From<AutogradError> for Error {
    fn from(error: AutogradError) -> Self {
        Self::Autograd(Box::new(error))
    }
}

#[cfg(feature = "candle")]
impl From<NnError> for Error {
    fn from(error: NnError) -> Self {
        Self::Nn(Box::new(error))
    }
}

#[cfg(feature = "candle")]
impl From<OptimError> for Error {
    fn from(error: OptimError) -> Self {
        Self::Optim(Box::new(error))
    }
}

/// For `?` on operations of candle in a remote function.
#[cfg(feature = "candle")]
impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Self::Tensor(Box::new(error))
    }
}

/// For `?` on layers in a model that returns candle's errors.
#[cfg(feature = "candle")]
impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Tensor(error) => *error,
            error => Self::wrap(error),
        }
    }
}

/// For functions that read and write files.
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::other(error)
    }
}

/// Advice for a function that is not registered.
fn how_to_register(path: &str) -> &'static str {
    match path.ends_with("{{closure}}") {
        true => "closures cannot be called remotely: make it a function marked #[remote]",
        false => "mark it with #[remote]",
    }
}

/// The members that did not come.
struct Missing<'a>(&'a [String]);

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("rank 0 did not say which members are missing"),
            names => write!(f, "still missing {}", Names(names)),
        }
    }
}
