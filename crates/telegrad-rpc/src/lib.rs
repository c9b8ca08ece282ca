//! Worlds of workers that call each other.
//!
//! This is a crate of its own because everything above is made of calls: autograd, optimisers and remote modules. It depends on
//! `telegrad-wire` for encoding, on `telegrad-rendezvous` for meeting, on `telegrad-net` for links, on `telegrad-trace` and
//! `telegrad-profile` for recordings, and on `telegrad-error` for its error.
//!
//! # Layers
//! The modules are layers, each of which uses only those below it; a test checks that. From the bottom:
//!
//! | module | content |
//! |---|---|
//! | `types` | names, numbers and classes that every layer uses |
//! | `time` | deadlines, the timer, sleeping |
//! | `exec` | the thread pool with its roles, promises |
//! | `context` | the call that a thread serves |
//! | `function` | remote functions and their registry |
//! | `membership` | cards and roster of the members |
//! | `observe` | recordings of calls, counters, latencies |
//! | `reference` | references to remote values: protocol, table, values |
//! | `message` | what rides on a message beside its body |
//! | `link` | links to members, and the calls under way over each |
//! | `worker` | [`Options`], the state of a worker, and [`World`], the handle to it |
//! | `call` | the caller's half: making a call, its future |
//! | `serve` | the callee's half: connections, requests, answers |
//! | `rref` | [`RRef`], the references that user code holds |
//! | `world` | joining and leaving, barriers, losses, profiles, status |
//!
//! To follow a call, read `worker::world` and `call::rpc`, then `call::attempt`; `message::riders`; `serve::inbound`, `serve::job` and
//! `serve::destination`; then `link::calls` and `call::future` for the reply.
//!
//! ```
//! use telegrad_rpc::{Options, init_with, remote};
//!
//! #[remote]
//! fn add(a: i64, b: i64) -> i64 {
//!     a + b
//! }
//!
//! let options = Options::default().init_method("mem://docs?rank=0&world_size=1");
//! let world = init_with("alone", options)?;
//! assert_eq!(world.rpc_sync("alone", add, (1, 2))?, 3);
//! world.shutdown()?;
//! # Ok::<(), telegrad_rpc::Error>(())
//! ```

// The macros name this crate by its full path, also inside the crate itself.
extern crate self as telegrad_rpc;

// From the bottom to the top: no module imports from one below it in this list (see tests/layers.rs).
mod error;
mod types;
mod time;
mod exec;
mod context;
mod function;
mod membership;
mod observe;
mod reference;
mod message;
mod link;
mod worker;
mod call;
mod serve;
mod rref;
mod world;

pub use call::{JoinAll, RpcFuture, join_all};
pub use context::{caller, is_cancelled, time_left};
pub use error::{Error, Hop, Mismatch, RemoteError, RemoteErrorKind, Result};
pub use function::{Access, Callable, FreeFn, Method, Receiver};
pub use link::Transport;
pub use rref::{LocalValue, LocalValueMut, RRef};
pub use serve::{Round, RoundError};
pub use telegrad_macros::remote;
pub use telegrad_rendezvous::{RendezvousError, StoreServer, UrlError};
pub use time::{Elapsed, Sleep, sleep, timeout};
pub use types::{ReferenceInfo, ReferenceState, To, WorkerInfo};
pub use worker::{Options, World};
pub use world::{DebugInfo, ProcessProfile, init, init_with, profile, status};

/// Internals for the crates that extend calls, and for their tests. Not covered by semantic versioning.
#[doc(hidden)]
pub mod extension {
    pub use crate::link::LinkLayer;
    pub use crate::message::{Crossing, Departure, MessageHook, Tracked};
    pub use crate::worker::Extension;
    pub use crate::world::foreign;
}

/// What the macros need. Not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use crate::__sending as sending;
    pub use crate::function::{
        LocalOnlyValue, OutputForm, Registration, WireValue, access_of, describe, invoke, type_id_of,
        value_of,
    };
    pub use crate::types::Class;
    pub use inventory;
    pub use telegrad_wire::{Decoder, Encoder, Fields, Layout, Layouts, TypeNumber, Wire, WireError};
}
