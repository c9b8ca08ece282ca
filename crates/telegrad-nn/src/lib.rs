//! Neural-network layers, initialisers and losses.
//!
//! This is a crate of its own because a program may train across workers without it. Its layers use
//! `telegrad-autograd` for [`Param`] and for operations with a backward pass; only [`RemoteModule`] and
//! [`RemoteSequential`] make calls.
//!
//! Names, layouts, initialisation and formulas are torch's. A layer has its own backward pass where candle's loses the
//! gradient or computes a wrong one; tests compare all gradients with finite differences.
//!
//! Reading order: [`Module`] is the trait of layers; `node` adds the result of a kernel to candle's graph; `real` has
//! the element types of kernels; then one file per layer.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use telegrad_nn::{Linear, Module, Relu, Rng, Sequential, cross_entropy};
//!
//! let mut rng = Rng::new(0);
//! let net = Sequential::new()
//!     .push(Linear::new(2, 16, &mut rng)?)
//!     .push(Relu)
//!     .push(Linear::new(16, 2, &mut rng)?);
//! let x = Tensor::new(&[[0f32, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], &Device::Cpu)?;
//! let y = Tensor::new(&[0u32, 1, 1, 0], &Device::Cpu)?;
//!
//! let mut last = f32::INFINITY;
//! for _ in 0..50 {
//!     let snapshot: Vec<Tensor> = net.parameters().iter().map(|param| param.tensor()).collect();
//!     let loss = cross_entropy(&net.forward(&x)?, &y)?;
//!     let grads = loss.backward()?;
//!     for (param, tensor) in net.parameters().iter().zip(&snapshot) {
//!         let step = (grads.get(tensor).unwrap() * 0.5)?;
//!         param.set(&(param.value() - step)?)?;
//!     }
//!     last = loss.to_scalar()?;
//! }
//! assert!(last < 0.5, "{last}");
//! # Ok::<(), telegrad_nn::Error>(())
//! ```

mod error;
mod module;
mod tracked;
mod func;
mod sequential;
mod rng;
pub mod init;
mod node;
mod real;
mod matrix;
mod indices;
mod operands;
mod window;
mod linear;
mod conv2d;
mod pool2d;
mod embedding;
mod layer_norm;
mod rms_norm;
mod dropout;
mod lstm;
mod flatten;
mod activation;
mod softmax;
mod loss;
mod state_dict;
mod share;
mod var_map_module;
mod parcel;
mod any_module;
mod remote_module;
mod remote_sequential;

pub use activation::{
    Gelu, GeluTanh, LeakyRelu, Relu, Sigmoid, Silu, Softplus, Tanh, gelu, gelu_tanh, leaky_relu, relu,
    sigmoid, silu, softplus, tanh,
};
pub use any_module::AnyModule;
pub use conv2d::{Conv2d, Conv2dOptions, conv2d};
pub use dropout::Dropout;
pub use embedding::{Embedding, embedding};
pub use flatten::Flatten;
pub use func::Func;
pub use layer_norm::{LayerNorm, layer_norm};
pub use linear::{Linear, linear};
pub use loss::{cross_entropy, mse, nll};
pub use lstm::{Lstm, LstmCell, LstmState};
pub use module::Module;
pub use pool2d::{AvgPool2d, MaxPool2d};
pub use remote_module::RemoteModule;
pub use remote_sequential::RemoteSequential;
pub use rms_norm::{RmsNorm, rms_norm};
pub use rng::Rng;
pub use sequential::Sequential;
pub use share::share;
pub use softmax::{log_softmax, softmax};
pub use state_dict::{load, load_state_dict, save, state_dict};
pub use telegrad_autograd::Param;
pub use telegrad_error::{Error, NnError, Result};
pub use tracked::tracked;
pub use var_map_module::VarMapModule;
pub use window::Pair;
