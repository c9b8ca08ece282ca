//! The wire format of Telegrad: frames, values and tensors.
//!
//! This is a crate of its own because every other crate depends on it and it needs no sockets, threads or clocks. Among the
//! Telegrad crates it may depend on the macros alone.
//!
//! Reading order: [`FrameHeader`] starts every frame. [`Wire`] maps a value to a MessagePack body; [`Encoder`] and
//! [`Decoder`] put tensors into a tensor table beside the body ([`TensorSource`] when sending, [`RawTensor`] when
//! receiving). [`Layout`] describes types, so that two programs can compare their signatures.
//!
//! ```
//! use telegrad_wire::{Decoder, Encoder, Wire};
//!
//! #[derive(Wire, Debug, PartialEq)]
//! struct Batch {
//!     name: String,
//!     weights: Vec<f32>,
//! }
//!
//! let batch = Batch { name: "first".into(), weights: vec![0.5, 1.5] };
//! let mut encoder = Encoder::new();
//! batch.encode(&mut encoder);
//! let payload = encoder.finish()?;
//! let back = Batch::decode(&mut Decoder::new(&payload.body))?;
//! assert_eq!(back, batch);
//! # Ok::<(), telegrad_wire::WireError>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

// Both are checked here, in the lowest crate, so that the sentence is the only error.
#[cfg(not(target_os = "linux"))]
compile_error!("Telegrad supports Linux only: its links and its launcher use Linux system calls");
#[cfg(target_endian = "big")]
compile_error!("Telegrad supports little-endian machines only: tensors travel in the order of their memory");

// The derive macro names this crate by its full path, also inside the crate itself.
extern crate self as telegrad_wire;

mod buffer;
#[cfg(feature = "candle")]
mod candle;
mod decoder;
mod dtype;
mod encoder;
mod error;
mod frame;
mod ids;
mod impls;
mod layout;
mod outcome;
#[cfg(feature = "serde")]
mod serde;
#[cfg(feature = "serde")]
mod skip;
mod table;
mod tensor;
mod text;
mod wire;

pub use buffer::{Buffer, ExternalMemory, UninitBuffer};
pub use decoder::{Decoder, MAX_DEPTH, ReceivedTensor, Tensors};
pub use dtype::DType;
pub use encoder::{Encoder, Payload, Reference};
pub use error::WireError;
pub use frame::{FrameHeader, FrameKind, HAS_SECTION, HEADER_LEN, IS_CONTROL, IS_LENT};
pub use ids::{CallId, ContextId, Incarnation, Rank, WorldId};
pub use layout::{Catalogue, Difference, Fields, Layout, Layouts, Signature, TypeLayout, TypeNumber};
pub use outcome::{BoxError, Outcome};
#[cfg(feature = "serde")]
pub use serde::Serde;
pub use table::{MAX_RANK, MAX_TENSORS, TensorTable};
pub use telegrad_macros::Wire;
pub use tensor::{RawTensor, TensorMeta, TensorSource};
pub use text::{peer_text, printable};
pub use wire::Wire;
