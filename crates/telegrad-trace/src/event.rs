//! What is recorded.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use telegrad_wire::{Rank, Wire};

/// Something that took time on a worker. Times are in nanoseconds on the clock of that worker, until a
/// [`Profile`](crate::Profile) brings them to one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Wire)]
pub struct Event {
    /// What tells it from all others of its world.
    pub span: u64,
    /// The event that caused it, on this worker or another; 0 for none.
    pub parent: u64,
    /// What was done: the name of a function, an operator, a layer, or one of the user's.
    pub name: Cow<'static, str>,
    /// What it is.
    pub kind: Kind,
    /// The worker.
    pub worker: Rank,
    /// The thread, by the system's number.
    pub thread: u64,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// How it ended.
    pub status: Status,
    /// The shapes of the tensors that it worked on, where they were asked for.
    pub shapes: Vec<String>,
    /// Bytes of tensors: those that came of an operator, a layer or a derivative, unless they are in the memory of an operand; those
    /// that a call carried there and back; those that its function was given and gave.
    #[serde(default)]
    pub tensor_bytes: u64,
    /// Events with the same number, other than 0, belong together across the forward and the backward pass.
    pub link: u64,
}

impl Event {
    /// How long it took, in nanoseconds.
    pub fn duration(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// As a call, if it is one.
    pub fn as_call(&self) -> Option<&Call> {
        match &self.kind {
            Kind::Call(call) => Some(call),
            _ => None,
        }
    }

    /// Whether it is a call of a graceful shutdown.
    pub fn is_shutdown(&self) -> bool {
        self.as_call().is_some_and(|call| call.is_shutdown)
    }

    /// As the execution of a call, if it is one.
    pub fn as_execution(&self) -> Option<&Execution> {
        match &self.kind {
            Kind::Execution(execution) => Some(execution),
            _ => None,
        }
    }
}

/// What an event is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Wire)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// Something that the user has named.
    Scope,
    /// A tensor operator.
    Operator,
    /// A layer of a network.
    Layer,
    /// A part of a backward pass, or a tensor that crosses from one worker to another in a forward one.
    Autograd,
    /// A step of an optimiser.
    Optimizer,
    /// Somebody waits: for the result of a call or of a callback, for room at the callee, for a link to it, or for a value. What has
    /// yet to begin may wait before it does: a callback, or a method whose object is not there or in use.
    Wait {
        /// The span of the call or the callback; for an async function, or one that has yet to begin, of whatever had it go on. 0
        /// when that is not recorded, or it is for something else.
        call: u64,
    },
    /// A result is decoded by who takes it, if it is large, or if that fails.
    Codec,
    /// A call, seen by the caller.
    Call(Call),
    /// A call, seen by the callee: from when its arguments are decoded to when its result is encoded.
    Execution(Execution),
}

impl Kind {
    /// Its name, as in files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Scope => "scope",
            Self::Operator => "operator",
            Self::Layer => "layer",
            Self::Autograd => "autograd",
            Self::Optimizer => "optimizer",
            Self::Wait { .. } => "wait",
            Self::Codec => "codec",
            Self::Call(_) => "call",
            Self::Execution(_) => "execution",
        }
    }
}

/// A call, seen by the caller. It begins before its arguments are encoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Wire)]
pub struct Call {
    /// How it was made: `rpc_sync`, `rpc_async`, `remote` or `to_here`; `shutdown` for the end of a world.
    pub verb: Cow<'static, str>,
    /// Whom it went to.
    pub callee: Rank,
    /// When the request was handed over to the link.
    pub sent: u64,
    /// When the answer was there; 0 when there was none.
    pub received: u64,
    /// Bytes of the request.
    pub sent_bytes: u64,
    /// Bytes of the answer.
    pub received_bytes: u64,
    /// Whether it belongs to a graceful shutdown. A worker in shutdown is idle: a wait for this call is no waiting time.
    #[serde(default)]
    pub is_shutdown: bool,
}

/// A call, seen by the callee.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Wire)]
pub struct Execution {
    /// Whom it came from.
    pub caller: Rank,
    /// When the request was there.
    pub arrived: u64,
    /// When its arguments were decoded; 0 when they were not, or that is not known.
    #[serde(default)]
    pub decoded: u64,
    /// When the function returned, before what it gave was encoded; 0 when it did not, or that is not known.
    #[serde(default)]
    pub returned: u64,
    /// When the answer was handed over to the link; 0 when there was none.
    pub replied: u64,
    /// Whether it is a member's part in a barrier, a gathering or a shutdown. It waits for other members, so it does not count as
    /// work of its worker.
    #[serde(default)]
    pub is_gathering: bool,
}

/// How something ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Wire)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Well.
    #[default]
    Ok,
    /// With this error.
    Failed(String),
    /// Its time had run out.
    TimedOut,
    /// Nobody wanted it any more.
    Cancelled,
}

impl Status {
    /// Whether it went well.
    pub fn is_ok(&self) -> bool {
        *self == Self::Ok
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Failed(why) => write!(f, "failed: {why}"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}
