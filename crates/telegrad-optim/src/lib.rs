//! Optimisers of parameters on one worker or many.
//!
//! This is a crate of its own because parameters and gradients do not depend on their use. It may depend on every
//! crate of Telegrad below it.
//!
//! Reading order: [`Algorithm`] is the update rule of one parameter, as a struct of its options ([`Sgd`], [`Adam`] and
//! the others, with torch's options, defaults and arithmetic); [`Optimizer`] applies it to groups of parameters, with a
//! [`State`] for each; `checkpoint` saves and loads both; a [`Schedule`] gives the learning rate of each step.
//! [`DistributedOptimizer`] is for parameters on many workers; `local` is its part on each of them.
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
mod norm;
mod state;
mod param_element;
mod checkpoint;
mod schedule;
mod local;
mod any_algorithm;
mod distributed;

pub use algorithm::{Adadelta, Adagrad, Adam, AdamW, Adamax, Algorithm, RMSprop, Rprop, Sgd, Step};
pub use any_algorithm::{AnyAlgorithm, RemoteAlgorithm};
pub use distributed::{DistributedOptimizer, RemoteGroup};
pub use element::Element;
pub use norm::{clip_factor, squared_norm};
pub use optimizer::{Optimizer, ParamGroup};
pub use schedule::{Anneal, CosineAnnealingLr, LinearLr, OneCycleLr, Schedule, StepLr, WarmUp};
pub use state::State;
pub use telegrad_error::OptimError;
