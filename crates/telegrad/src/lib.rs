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
//! Where to go from here: [`init`] and [`Options`] form a world, [`World`] makes calls, [`RRef`] refers to values on other
//! workers, [`remote`] says which functions can be called, and [`profile()`] shows where the time goes.
//! [`AutogradWorld::context`] computes gradients across workers, [`nn`] and [`optim`] have layers and optimisers, [`ops`] the
//! tensor operators that every worker has. [`launch`] starts the processes of a world.
//!
//! # Features
//!
//! All are on by default. A program that only calls does without them (`default-features = false`).
//!
//! | feature | implies | adds |
//! |---|---|---|
//! | `candle` | | candle's `Tensor` as an argument and a result |
//! | `autograd` | `candle` | contexts, backward passes, parameters, and [`ops`] |
//! | `nn` | `autograd` | [`nn`]: layers, losses, modules on other workers; [`candle_nn`] |
//! | `optim` | `autograd` | [`optim`]: optimisers and schedules, [`DistributedOptimizer`](optim::DistributedOptimizer) |
//! | `data` | `candle` | [`data`]: handwritten digits |
//! | `launch` | | [`launch`]: starts the processes of a world |
//! | `serde` | | [`Serde`]: any type of serde as an argument or a result |

#![cfg_attr(docsrs, feature(doc_cfg))]

// The macros name this crate by its full path, also inside the crate itself.
#[cfg(feature = "autograd")]
extern crate self as telegrad;

#[cfg(feature = "data")]
pub mod data;
mod init;
#[cfg(feature = "launch")]
pub mod launch;
#[cfg(feature = "autograd")]
pub mod ops;

/// The release of candle that provides the tensors of this crate.
#[cfg(feature = "candle")]
pub use candle_core;
/// candle's layers and `VarMap`, of the same release.
#[cfg(feature = "nn")]
pub use candle_nn;
pub use init::{init, init_with};
#[cfg(feature = "autograd")]
pub use telegrad_autograd::{
    AutogradInfo, AutogradWorld, Backward, Context, Gradients, JoinTime, Mode, Param, Roots, candle,
};
pub use telegrad_error::{
    AutogradError, Error, Hop, Mismatch, ReferenceInfo, ReferenceState, RemoteError, RemoteErrorKind,
    RendezvousError, Result, UrlError, WorkerInfo,
};
#[cfg(feature = "candle")]
pub use telegrad_error::{NnError, OptimError};
pub use telegrad_net::{Spin, TensorAlloc, shared_tensor};
/// Layers, initialisers, losses, and modules on other workers.
#[cfg(feature = "nn")]
pub use telegrad_nn as nn;
/// Optimisers, schedules, saved state.
#[cfg(feature = "optim")]
pub use telegrad_optim as optim;
/// Profiles: averages, steps, critical paths, files.
pub use telegrad_profile as profile;
/// The status of the workers on this machine, seen from outside.
pub use telegrad_rpc::status;
pub use telegrad_rpc::{
    Access, Callable, DebugInfo, Elapsed, JoinAll, LocalValue, LocalValueMut, Options, ProcessProfile, RRef,
    Receiver, Round, RoundError, RpcFuture, Sleep, StoreServer, To, Transport, World, caller, is_cancelled,
    join_all, profile, register, remote, sleep, time_left, timeout,
};
/// Events, spans and recorders.
pub use telegrad_trace as trace;
pub use telegrad_trace::record_function;
/// The element types of tensors.
pub use telegrad_wire::DType as ElementType;
#[cfg(feature = "serde")]
pub use telegrad_wire::Serde;
pub use telegrad_wire::{
    Decoder, Encoder, Fields, Layout, Layouts, RawTensor, TensorMeta, TensorSource, TypeNumber, Wire,
    WireError,
};

/// The items that most programs use: `use telegrad::prelude::*`.
pub mod prelude {
    pub use crate::{
        AutogradError, Error, Options, RRef, Result, Round, RpcFuture, Transport, Wire, WorkerInfo, World,
        is_cancelled, join_all, register, remote,
    };
    #[cfg(feature = "autograd")]
    pub use crate::{AutogradWorld, Backward, Context, Mode, Param};
    #[cfg(feature = "candle")]
    pub use candle_core::{DType, Device, Tensor};
    #[cfg(feature = "nn")]
    pub use telegrad_nn::{self as nn, AnyModule, Module, RemoteModule, RemoteSequential, VarMapModule};
    #[cfg(feature = "optim")]
    pub use telegrad_optim::{Adam, AdamW, DistributedOptimizer, Sgd};
}

/// The programs of docs/candle.md, compiled as tests.
#[cfg(all(
    doctest,
    feature = "data",
    feature = "launch",
    feature = "nn",
    feature = "optim"
))]
#[doc = include_str!("../docs/candle.md")]
struct CandleChapter;

/// Interfaces for crates that extend Telegrad, such as another tensor library. Exempt from semantic versioning.
#[doc(hidden)]
pub mod extension {
    #[cfg(feature = "autograd")]
    pub use telegrad_autograd::{AutogradBackend, Root, layer};
}

/// Support for the expansion of the macros.
#[doc(hidden)]
pub mod __private {
    pub use telegrad_rpc::__private::*;
}
