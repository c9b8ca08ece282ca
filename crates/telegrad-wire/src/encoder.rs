//! Encoding of values.

use std::any::Any;
use std::sync::Arc;

use crate::{MAX_TENSORS, TensorSource, WireError};

/// MessagePack extension type of a tensor; its four bytes are an index, big-endian.
pub(crate) const EXT_TENSOR: i8 = 1;

/// MessagePack extension type of a reference; its four bytes are an index, big-endian.
pub(crate) const EXT_REFERENCE: i8 = 2;

/// A reference to a value on another worker.
///
/// The body contains an index only; the layer above defines the content.
pub type Reference = Arc<dyn Any + Send + Sync>;

/// Encodes values into a body and side tables of tensors and references.
#[derive(Default)]
pub struct Encoder {
    body: Vec<u8>,
    /// Tensors, in the order of their indices in the body.
    tensors: Vec<Box<dyn TensorSource>>,
    /// References, likewise.
    references: Vec<Reference>,
    /// The first failure. Kept until `finish`, so that `encode` needs no result.
    error: Option<WireError>,
}

/// The result of an encoder.
#[derive(Default)]
pub struct Payload {
    /// The MessagePack body.
    pub body: Vec<u8>,
    /// The tensors that the body refers to by index.
    pub tensors: Vec<Box<dyn TensorSource>>,
    /// The references that the body refers to by index.
    pub references: Vec<Reference>,
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tensors: Vec<_> = self.tensors.iter().map(|t| t.meta().to_string()).collect();
        f.debug_struct("Payload")
            .field("body", &self.body)
            .field("tensors", &tensors)
            .field("references", &self.references.len())
            .finish()
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder")
            .field("body", &self.body.len())
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

impl Encoder {
    /// An empty encoder.
    pub fn new() -> Self {
        // Most bodies are a function's name and a few scalars, which fit without reallocation.
        Self {
            body: Vec::with_capacity(128),
            ..Self::default()
        }
    }

    /// Returns body, tensors and references.
    ///
    /// # Errors
    /// The first failure that was reported to [`fail`](Self::fail).
    pub fn finish(self) -> Result<Payload, WireError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(Payload {
                body: self.body,
                tensors: self.tensors,
                references: self.references,
            }),
        }
    }

    /// Reports that a value cannot be encoded. [`finish`](Self::finish) returns the first report.
    pub fn fail(&mut self, error: WireError) {
        self.error.get_or_insert(error);
    }

    /// Appends nil.
    pub fn nil(&mut self) {
        self.write(rmp::encode::write_nil);
    }

    /// Appends a boolean.
    pub fn bool(&mut self, value: bool) {
        self.write(|w| rmp::encode::write_bool(w, value));
    }

    /// Appends an unsigned integer in its shortest form.
    pub fn uint(&mut self, value: u64) {
        self.write(|w| rmp::encode::write_uint(w, value).map(drop).map_err(to_io));
    }

    /// Appends a signed integer in its shortest form.
    pub fn int(&mut self, value: i64) {
        self.write(|w| rmp::encode::write_sint(w, value).map(drop).map_err(to_io));
    }

    /// Appends a float of 32 bits.
    pub fn f32(&mut self, value: f32) {
        self.write(|w| rmp::encode::write_f32(w, value).map_err(to_io));
    }

    /// Appends a float of 64 bits.
    pub fn f64(&mut self, value: f64) {
        self.write(|w| rmp::encode::write_f64(w, value).map_err(to_io));
    }

    /// Appends a string.
    pub fn str(&mut self, value: &str) {
        if self.check_len(value.len()) {
            self.write(|w| rmp::encode::write_str(w, value).map_err(to_io));
        }
    }

    /// Appends bytes.
    pub fn bytes(&mut self, value: &[u8]) {
        if self.check_len(value.len()) {
            self.write(|w| rmp::encode::write_bin(w, value).map_err(to_io));
        }
    }

    /// Appends the start of an array; `len` values must follow.
    pub fn array_len(&mut self, len: usize) {
        if self.check_len(len) {
            self.write(|w| {
                rmp::encode::write_array_len(w, len as u32)
                    .map(drop)
                    .map_err(to_io)
            });
        }
    }

    /// Appends the start of a map; `len` pairs of values must follow.
    pub fn map_len(&mut self, len: usize) {
        if self.check_len(len) {
            self.write(|w| rmp::encode::write_map_len(w, len as u32).map(drop).map_err(to_io));
        }
    }

    /// Appends a tensor: its index to the body, the tensor itself to the side table.
    pub fn tensor(&mut self, tensor: impl TensorSource) {
        let index = self.tensors.len();
        if index >= MAX_TENSORS {
            return match &mut self.error {
                // Keeps counting, so that the error has the total.
                Some(WireError::TooManyTensors { count, .. }) => *count += 1,
                _ => self.fail(WireError::TooManyTensors {
                    count: index + 1,
                    limit: MAX_TENSORS,
                }),
            };
        }
        self.tensors.push(Box::new(tensor));
        self.index(EXT_TENSOR, index);
    }

    /// Appends a reference: its index to the body, the reference itself to the side table.
    pub fn reference(&mut self, reference: Reference) {
        let index = self.references.len();
        if self.check_len(index) {
            self.references.push(reference);
            self.index(EXT_REFERENCE, index);
        }
    }

    /// Appends an index into a side table.
    fn index(&mut self, table: i8, index: usize) {
        self.write(|w| rmp::encode::write_ext_meta(w, 4, table).map(drop).map_err(to_io));
        self.body.extend_from_slice(&(index as u32).to_be_bytes());
    }

    /// Appends the one MessagePack value that `write` produces, or nothing if it fails.
    #[cfg(feature = "serde")]
    pub(crate) fn serialized(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>) {
        let start = self.body.len();
        if let Err(error) = write(&mut self.body) {
            self.body.truncate(start);
            self.fail(error);
        }
    }

    /// Appends `Some(value)`: as the value itself, wrapped if its encoding starts with nil.
    pub(crate) fn some(&mut self, encode_value: impl FnOnce(&mut Self)) {
        let start = self.body.len();
        encode_value(self);
        if matches!(self.body[start..], [NIL, ..] | [MAP_OF_ONE, NIL, ..]) {
            self.body.splice(start..start, [MAP_OF_ONE, NIL]);
        }
    }

    /// Reports an error if `len` exceeds MessagePack's 32-bit lengths.
    fn check_len(&mut self, len: usize) -> bool {
        let fits = u32::try_from(len).is_ok();
        if !fits {
            self.fail(WireError::mismatch(
                "at most 2^32 - 1 elements or bytes",
                len.to_string(),
            ));
        }
        fits
    }

    fn write<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) {
        // Writing to a `Vec` cannot fail: it grows, or the process is out of memory.
        let written = write(&mut self.body);
        debug_assert!(written.is_ok());
    }
}

/// MessagePack's `nil`.
pub(crate) const NIL: u8 = 0xc0;
/// The start of a MessagePack map with one entry.
pub(crate) const MAP_OF_ONE: u8 = 0x81;

fn to_io<E>(_: E) {}
