//! Optimisers: what moves parameters along their gradients.
//!
//! This is a crate of its own because parameters and gradients must not know how they are used. It may
//! depend on every crate of Telegrad below it.
//!
//! Read it in this order: [`Algorithm`] is one rule for one parameter, as a struct of its options
//! ([`Sgd`], [`Adam`] and the others: torch's options, defaults and arithmetic); [`Optimizer`] applies it
//! to groups of parameters and keeps a [`State`] for each; `checkpoint` writes that to a file and reads it
//! back; a [`Schedule`] says which learning rate a step has. [`DistributedOptimizer`] is for parameters on many
//! workers: `local` is the part of it that each of those has.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use telegrad_autograd::Param;
//! use telegrad_optim::{Optimizer, Sgd};
//!
//! let x = Param::new(&Tensor::new(&[4f32, -2.0], &Device::Cpu)?)?;
//! let mut optimizer = Optimizer::new([x.clone()], Sgd { lr: 0.25, ..Sgd::default() })?;
//! for _ in 0..3 {
//!     let loss = x.tensor().sqr()?.sum_all()?;
//!     optimizer.step(&loss.backward()?)?;
//! }
//! assert_eq!(x.value().to_vec1::<f32>()?, [0.5, -0.25]);
//! # Ok::<(), telegrad_rpc::Error>(())
//! ```

mod check;
mod algorithm;
mod element;
mod optimizer;
mod gradient;
mod state;
mod stored;
mod checkpoint;
mod schedule;
mod local;
mod distributed;

pub use algorithm::{Adadelta, Adagrad, Adam, AdamW, Adamax, Algorithm, RMSprop, Rprop, Sgd, Step};
pub use distributed::{DistributedOptimizer, RemoteGroup};
pub use element::Element;
pub use gradient::{clip_factor, squared_norm};
pub use local::{Method, Travels};
pub use optimizer::{Optimizer, ParamGroup};
pub use schedule::{Anneal, CosineAnnealingLr, LinearLr, OneCycleLr, Schedule, StepLr, WarmUp};
pub use state::State;
pub use telegrad_error::OptimError;
