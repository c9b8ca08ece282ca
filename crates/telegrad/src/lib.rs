//! Telegrad runs functions, keeps objects and sends gradients across processes.
//!
//! It is for models that are split over several workers: remote calls that carry tensors, typed by
//! the compiler, between threads, processes or hosts. This crate is the front door; what it
//! re-exports lives in crates of its own, each with a reason why.
//!
//! ```
//! use telegrad::prelude::*;
//!
//! #[remote]
//! fn scale(x: Tensor, by: f64) -> Result<Tensor> {
//!     Ok((x * by)?)
//! }
//!
//! fn main() -> Result<()> {
//!     // One process, one worker, no set-up: a real program has many of them.
//!     let options = Options { init_method: "mem://hello?rank=0&world_size=1".into(), ..Options::default() };
//!     let world = telegrad::init_with("alone", options)?;
//!     let x = Tensor::new(&[1f32, 2.0], &Device::Cpu)?;
//!
//!     let y = world.rpc_sync("alone", scale, (x.clone(), 3.0))?; // the value
//!     let f = world.rpc_async("alone", telegrad::ops::add, (x.clone(), y))?; // a future
//!     assert_eq!(f.wait()?.to_vec1::<f32>()?, [4.0, 8.0]);
//!     let r = world.remote("alone", scale, (x, 2.0))?; // a reference: the value stays there
//!     assert_eq!(r.to_here()?.to_vec1::<f32>()?, [2.0, 4.0]);
//!     drop(r);
//!     world.shutdown()
//! }
//! ```
//!
//! Where to go from here: [`init`] and [`Options`] for how workers find each other, [`World`] for
//! what can be done with them, [`RRef`] for values that stay where they are, [`AutogradWorld::context`] for gradients across
//! workers, [`nn`] and [`optim`] for layers and optimisers, [`remote`] for which
//! functions can be called, [`ops`] for the
//! tensor operators that every worker has, [`profile()`] for where the time goes, [`launch`] to start the processes of a world.

// The macros name this crate by its full path, also inside the crate itself.
extern crate self as telegrad;

pub mod data;
mod init;
pub mod launch;
pub mod ops;

/// candle's tensors, of the release that this crate takes and gives.
pub use candle_core;
/// candle's layers and `VarMap`, of the same release.
pub use candle_nn;
pub use init::{init, init_with};
pub use telegrad_autograd::{
    AutogradBackend, AutogradError, AutogradInfo, AutogradWorld, Backward, Context, Gradients, JoinTime, Mode,
    Param, Root, Roots, candle, layer,
};
pub use telegrad_net::{Spin, TensorAlloc, shared_tensor};
/// Layers, initialisers, losses, and modules on other workers.
pub use telegrad_nn as nn;
/// Optimisers, schedules, saved state.
pub use telegrad_optim as optim;
/// What workers on this machine are doing, from outside.
pub use telegrad_rpc::status;
pub use telegrad_rpc::{
    DebugInfo, Elapsed, Error, Hop, JoinAll, LocalValue, LocalValueMut, Mismatch, Options, ProcessProfile,
    RRef, ReferenceInfo, ReferenceState, RemoteError, RemoteErrorKind, RendezvousError, Result, Round,
    RoundError, RpcFuture, Sleep, StoreServer, To, Transport, UrlError, WorkerInfo, World, caller,
    is_cancelled, join_all, profile, register, remote, sleep, time_left, timeout,
};
/// What profiles are made of, and what can be seen in them.
pub use telegrad_trace as trace;
pub use telegrad_trace::record_function;
/// The element types that travel.
pub use telegrad_wire::DType as ElementType;
#[cfg(feature = "serde")]
pub use telegrad_wire::Serde;
pub use telegrad_wire::{
    Decoder, Encoder, Fields, Layout, Layouts, RawTensor, TensorMeta, TensorSource, TypeNumber, Wire,
    WireError,
};

/// What most programs want: `use telegrad::prelude::*`.
pub mod prelude {
    pub use crate::{
        AutogradError, AutogradWorld, Backward, Context, Error, Mode, Options, Param, RRef, Result, Round,
        RpcFuture, Transport, Wire, WorkerInfo, World, is_cancelled, join_all, register, remote,
    };
    pub use candle_core::{DType, Device, Tensor};
    pub use telegrad_nn::{self as nn, AnyModule, Module, RemoteModule, RemoteSequential, VarMapModule};
    pub use telegrad_optim::{Adam, AdamW, DistributedOptimizer, Sgd};
}

/// The programs of docs/candle.md, which are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/candle.md")]
struct CandleChapter;

/// What the macros need. Not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use telegrad_rpc::__private::*;
}
