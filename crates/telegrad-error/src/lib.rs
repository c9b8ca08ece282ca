//! The error type that users of Telegrad meet, and what its variants hold.
//!
//! This is a crate of its own because calls, autograd, optimisers and layers all return [`Error`], and each has a variant
//! in it; `?` converts candle's errors only where [`Error`] is defined. It depends on `telegrad-wire` and
//! `telegrad-rendezvous`, and with the feature `candle` on candle's tensors.
//!
//! The `Display` text of an error is complete: it contains the text of what caused the error, and `source()` does not
//! return that cause again. A variant that is another error and adds no text (`transparent`) has that error's text and source.
//!
//! ```
//! use telegrad_error::{Error, RemoteErrorKind, Result};
//!
//! fn advice(result: Result<()>) -> &'static str {
//!     match result {
//!         Ok(()) => "done",
//!         Err(Error::Timeout { .. }) => "give it more time",
//!         Err(error) => match error.remote().map(|remote| remote.kind) {
//!             Some(RemoteErrorKind::NoMemory) => "send less",
//!             _ => "look into the logs",
//!         },
//!     }
//! }
//! # assert_eq!(advice(Err(Error::ShutDown)), "look into the logs");
//! ```

mod error;
mod mismatch;
mod remote_error;
mod reference_info;
mod worker_info;
mod autograd_error;
#[cfg(feature = "candle")]
mod nn_error;
#[cfg(feature = "candle")]
mod optim_error;
mod list;

pub use autograd_error::AutogradError;
pub use error::{Error, Result};
pub use mismatch::Mismatch;
#[cfg(feature = "candle")]
pub use nn_error::NnError;
#[cfg(feature = "candle")]
pub use optim_error::OptimError;
pub use reference_info::{ReferenceInfo, ReferenceState};
pub use remote_error::{Hop, RemoteError, RemoteErrorKind};
/// Why workers could not find each other, a variant of [`Error`].
pub use telegrad_rendezvous::{RendezvousError, UrlError};
pub use worker_info::WorkerInfo;
