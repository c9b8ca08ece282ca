//! Worlds of workers that call each other.
//!
//! This is a crate of its own because it is what everything above stands on: references, autograd
//! and optimisers are made of calls. It depends on `telegrad-wire` for what travels and on
//! `telegrad-net` for how, and knows no tensor library.
//!
//! Read it in this order: [`init()`] brings the members of a world together ([`Options`] says how);
//! [`World`] is the handle to it; `worker` is what is behind the handle. A call starts in `worker`
//! and `call`, crosses a link, and ends in `serve`; `registry` and `function` say which functions
//! there are and what they take; `executor` runs them.
//!
//! ```
//! use telegrad_rpc::{Options, init_with, remote};
//!
//! #[remote]
//! fn add(a: i64, b: i64) -> i64 {
//!     a + b
//! }
//!
//! let options = Options { init_method: "mem://docs?rank=0&world_size=1".into(), ..Options::default() };
//! let world = init_with("alone", options)?;
//! assert_eq!(world.rpc_sync("alone", add, (1, 2))?, 3);
//! world.shutdown()?;
//! # Ok::<(), telegrad_rpc::Error>(())
//! ```

// The macros name this crate by its full path, also inside the crate itself.
extern crate self as telegrad_rpc;

mod error;
mod options;
mod worker_info;
mod init;
mod world;
mod worker;
mod members;
mod roster;
mod met;
mod member;
mod call;
mod callers;
mod class;
mod function;
mod registry;
mod rref;
mod section;
mod layer;
mod serve;
mod context;
mod executor;
mod block_on;
mod deadline;
mod timer;
mod sleep;
mod round;
mod activity;
mod collective;
mod shutdown;
mod debug_info;
mod profile;
pub mod status;
mod recording;
#[doc(hidden)]
pub mod foreign;

pub use call::{JoinAll, RpcFuture, join_all};
pub use context::{caller, is_cancelled, time_left};
pub use debug_info::DebugInfo;
pub use error::{Error, Hop, Mismatch, RemoteError, RemoteErrorKind, Result};
pub use function::{Access, Callable, FreeFn, Method, Receiver};
pub use init::{init, init_with};
#[doc(hidden)]
pub use layer::{Crossing, Layer, Noted, Recorded};
#[doc(hidden)]
pub use options::LinkLayer;
pub use options::{Options, Transport};
pub use profile::{ProcessProfile, profile};
pub use round::{Round, RoundError};
pub use rref::{LocalValue, LocalValueMut, RRef, ReferenceInfo, ReferenceState};
pub use sleep::{Elapsed, Sleep, sleep, timeout};
pub use telegrad_macros::remote;
pub use telegrad_rendezvous::{RendezvousError, StoreServer, UrlError};
pub use worker_info::{To, WorkerInfo};
pub use world::World;

/// What the macros need. Not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use crate::__sending as sending;
    pub use crate::class::Class;
    pub use crate::registry::{
        Registration, Stays, Travels, Want, access_of, describe, invoke, type_id_of, value_of,
    };
    pub use inventory;
    pub use telegrad_wire::{Decoder, Encoder, Fields, Layout, Layouts, TypeNumber, Wire, WireError};
}
