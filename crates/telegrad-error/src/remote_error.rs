//! Failures on other workers.

use std::fmt;

use telegrad_wire::{BoxError, Wire, WireError, peer_text};

use crate::Error;

/// A failure on another worker.
///
/// The fields are as that worker sent them; the `Display` text passes them through [`peer_text`].
#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct RemoteError {
    /// The kind of the failure.
    pub kind: RemoteErrorKind,
    /// The error's own text.
    pub message: String,
    /// The calls from the first callee to the one that failed.
    pub chain: Vec<Hop>,
}

/// A call on the path to a remote error.
#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub struct Hop {
    /// The callee.
    pub worker: String,
    /// The function called.
    pub function: String,
}

/// The kind of a remote failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Wire)]
#[non_exhaustive]
pub enum RemoteErrorKind {
    /// The function returned an error.
    Failed,
    /// The function panicked.
    Panicked,
    /// The callee has no such function.
    NotRegistered,
    /// The arguments are not of the types that the function takes.
    BadArguments,
    /// The result cannot be sent.
    BadResult,
    /// The call was cancelled, or reached its time limit, before it had a result.
    Cancelled,
    /// The callee is shutting down.
    ShuttingDown,
    /// The function that makes the value of a reference exceeded its time limit.
    TimedOut,
    /// The value to call the function on does not exist: it was not created, or has been freed.
    NoValue,
    /// The callee had no memory for the arguments.
    NoMemory,
}

impl RemoteErrorKind {
    /// The kind of a failure to decode arguments.
    #[doc(hidden)]
    #[must_use]
    pub fn of_arguments(error: &WireError) -> Self {
        match error {
            WireError::NoMemory { .. } => Self::NoMemory,
            _ => Self::BadArguments,
        }
    }
}

impl RemoteError {
    /// An error of a function on `worker`.
    #[doc(hidden)]
    pub fn new(kind: RemoteErrorKind, message: impl Into<String>, worker: &str, function: &str) -> Self {
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

    /// The failure to allocate memory for the arguments on `worker`.
    #[doc(hidden)]
    pub fn no_memory(bytes: u64, worker: &str, function: &str) -> Self {
        Self::new(
            RemoteErrorKind::NoMemory,
            format!("{bytes} bytes"),
            worker,
            function,
        )
    }

    /// The error that a function's own error becomes when it leaves `worker`.
    ///
    /// An error from a call that the function made keeps its origin, and this worker is put in front of the chain.
    #[doc(hidden)]
    pub fn from_user(error: &BoxError, worker: &str, function: &str) -> Self {
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

    /// The worker where the call failed.
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
            RemoteErrorKind::Cancelled => write!(f, "`{function}` was cancelled on worker `{worker}`")?,
            RemoteErrorKind::ShuttingDown => write!(
                f,
                "worker `{worker}` is shutting down and did not run `{function}`"
            )?,
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
