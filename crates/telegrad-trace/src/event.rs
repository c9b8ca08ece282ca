//! Events: what a worker records.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use telegrad_wire::{Rank, Wire};

/// Something that took time on a worker.
///
/// Times are in nanoseconds on the clock of that worker; a profile brings them to one clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Wire)]
pub struct Event {
    /// The number of the event, unique in its world.
    pub span: u64,
    /// The span of the event that caused this one, on this worker or another; 0 for none.
    pub parent: u64,
    /// The name of the function, operator or layer, or one that the user gave.
    pub name: Cow<'static, str>,
    /// The kind of event, with its details.
    pub kind: Kind,
    /// The worker that recorded the event.
    pub worker: Rank,
    /// The thread, by its system number.
    pub thread: u64,
    /// The time of the start.
    pub start: u64,
    /// The time of the end.
    pub end: u64,
    /// The outcome.
    pub status: Status,
    /// The shapes of the input tensors, if the recording asks for shapes.
    pub shapes: Vec<String>,
    /// Bytes of tensors: the results of an operator, a layer or a derivative, unless they share the memory of an operand; the
    /// request and reply of a call; the arguments and results of an execution.
    #[serde(default)]
    pub tensor_bytes: u64,
    /// Links events of the forward and the backward pass: related events have the same number, unrelated ones 0.
    pub link: u64,
}

impl Event {
    /// Returns the duration in nanoseconds.
    pub fn duration(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Returns the details of a call.
    pub fn as_call(&self) -> Option<&Call> {
        match &self.kind {
            Kind::Call(call) => Some(call),
            _ => None,
        }
    }

    /// Returns whether this is a call of a graceful shutdown.
    pub fn is_shutdown(&self) -> bool {
        self.as_call().is_some_and(|call| call.is_shutdown)
    }

    /// Returns the details of the execution of a call.
    pub fn as_execution(&self) -> Option<&Execution> {
        match &self.kind {
            Kind::Execution(execution) => Some(execution),
            _ => None,
        }
    }
}

/// The kind of an event, with its details.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Wire)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// A scope that the user named.
    Scope,
    /// A tensor operator.
    Operator,
    /// A layer of a network.
    Layer,
    /// A part of a backward pass, or a tensor that crosses between workers in a forward pass.
    Autograd,
    /// A step of an optimiser.
    Optimizer,
    /// A wait: for the result of a call or callback, for send credit, for a link, or for a value.
    ///
    /// A callback or a method may wait before it begins, for instance for its object.
    Wait {
        /// The span of the call or callback that is waited for. For an async function, and for one that has not begun, the span
        /// of the event that resumed it. 0 if that is not recorded, or the wait is for something else.
        call: u64,
    },
    /// The decoding of a result at the caller, if the result is large or decoding fails.
    Codec,
    /// A call, seen by the caller.
    Call(Call),
    /// A call, seen by the callee: from the decoding of its arguments to the encoding of its result.
    Execution(Execution),
}

impl Kind {
    /// Returns the name that files use.
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

/// A call, seen by the caller. The event begins before the arguments are encoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Wire)]
pub struct Call {
    /// The method that made the call: `rpc_sync`, `rpc_async`, `remote` or `to_here`; `shutdown` for a graceful shutdown.
    pub verb: Cow<'static, str>,
    /// The callee.
    pub callee: Rank,
    /// The time at which the request was handed to the link.
    pub sent: u64,
    /// The time at which the reply arrived; 0 without a reply.
    pub received: u64,
    /// Bytes of the request.
    pub sent_bytes: u64,
    /// Bytes of the reply.
    pub received_bytes: u64,
    /// Whether the call belongs to a graceful shutdown. A worker in shutdown is idle: waits for such calls do not count.
    #[serde(default)]
    pub is_shutdown: bool,
}

/// A call, seen by the callee.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Wire)]
pub struct Execution {
    /// The caller.
    pub caller: Rank,
    /// The time at which the request arrived.
    pub arrived: u64,
    /// The time at which the arguments were decoded; 0 if they were not, or the time is unknown.
    #[serde(default)]
    pub decoded: u64,
    /// The time at which the function returned, before its result was encoded; 0 if it did not, or the time is unknown.
    #[serde(default)]
    pub returned: u64,
    /// The time at which the reply was handed to the link; 0 without a reply.
    pub replied: u64,
    /// Whether this is a member's part in a barrier, a gather or a shutdown. Such an execution only waits for other members, and does
    /// not count as work of its worker.
    #[serde(default)]
    pub is_gathering: bool,
}

/// The outcome of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Wire)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Success.
    #[default]
    Ok,
    /// Failure, with the text of the error.
    Failed(String),
    /// The time limit passed.
    TimedOut,
    /// Cancelled by the caller, or abandoned.
    Cancelled,
}

impl Status {
    /// Returns whether the event succeeded.
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
