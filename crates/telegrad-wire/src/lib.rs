//! What travels between two Telegrad workers, byte by byte.
//!
//! This is a crate of its own because everything else agrees on it and it needs nothing of the
//! rest: no sockets, no threads, no clocks. It may depend on no other Telegrad crate but the macros.
//!
//! Read it in this order: [`FrameHeader`] is the fixed start of every frame; [`Wire`] says how a
//! value becomes a MessagePack body; [`Encoder`] and [`Decoder`] do it, and put tensors into a side
//! table instead of the body ([`TensorSource`] on the way out, [`RawTensor`] on the way in). [`Layout`] describes
//! types, so that two programs can compare what they send.
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

#[cfg(target_endian = "big")]
compile_error!("tensors travel in the little-endian order that their memory is assumed to have");

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

pub use buffer::{Buffer, Outside, Unfilled};
pub use decoder::{Arrived, Decoder, MAX_DEPTH, Tensors};
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
