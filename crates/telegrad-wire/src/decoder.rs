//! Decoding of values.

use std::any::Any;

use rmp::Marker;
use rmp::decode::bytes::BytesReadError;
use rmp::decode::{self, Bytes, NumValueReadError};

use crate::encoder::{EXT_REFERENCE, EXT_TENSOR, MAP_OF_ONE, NIL, Reference};
#[cfg(feature = "serde")]
use crate::skip::value_len;
use crate::{RawTensor, Wire, WireError};

/// Deepest nesting of derived types. Far more than real values have, and far less than a stack of 2 MB holds.
pub const MAX_DEPTH: usize = 128;

/// Bytes that a sequence may reserve before its elements have been read.
const MAX_RESERVE: usize = 64 * 1024;

/// MessagePack's markers of floats.
const F32: u8 = 0xca;
const F64: u8 = 0xcb;

/// A tensor that was received beside a body.
pub enum ReceivedTensor {
    /// As received.
    Raw(RawTensor),
    /// Already a tensor of a library, because autograd tracks this very one.
    Tracked(Box<dyn Any + Send>),
}

impl std::fmt::Debug for ReceivedTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Raw(raw) => raw.fmt(f),
            Self::Tracked(_) => f.write_str("Tracked"),
        }
    }
}

/// The tensors beside a body that have not been decoded yet.
#[derive(Debug)]
pub struct Tensors(Slots);

/// Raw tensors keep the vector that they were received in.
#[derive(Debug)]
enum Slots {
    Raw(Vec<Option<RawTensor>>),
    Received(Vec<Option<ReceivedTensor>>),
}

impl From<Vec<RawTensor>> for Tensors {
    fn from(tensors: Vec<RawTensor>) -> Self {
        Self(Slots::Raw(tensors.into_iter().map(Some).collect()))
    }
}

impl From<Vec<ReceivedTensor>> for Tensors {
    fn from(tensors: Vec<ReceivedTensor>) -> Self {
        Self(Slots::Received(tensors.into_iter().map(Some).collect()))
    }
}

impl Tensors {
    fn take(&mut self, index: usize) -> Result<ReceivedTensor, WireError> {
        match &mut self.0 {
            Slots::Raw(tensors) => take_from(tensors, index, "tensor").map(ReceivedTensor::Raw),
            Slots::Received(tensors) => take_from(tensors, index, "tensor"),
        }
    }
}

/// Decodes values from a body and its side tables of tensors and references.
///
/// Any input yields a value or an error. Lengths are validated against the bytes that are present before memory is
/// reserved for them.
pub struct Decoder<'a> {
    input: Bytes<'a>,
    tensors: Tensors,
    /// References that have not been decoded yet.
    references: Vec<Option<Reference>>,
    depth: usize,
}

impl std::fmt::Debug for Decoder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder")
            .field("input", &self.remaining())
            .field("tensors", &self.tensors)
            .field("references", &self.references.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Decoder<'a> {
    /// A decoder of a body without tensors.
    pub fn new(body: &'a [u8]) -> Self {
        Self::with_tensors(body, Vec::<RawTensor>::new())
    }

    /// A decoder of a body with tensors.
    pub fn with_tensors(body: &'a [u8], tensors: impl Into<Tensors>) -> Self {
        Self::with_tables(body, tensors, Vec::new())
    }

    /// A decoder of a body with tensors and references.
    pub fn with_tables(body: &'a [u8], tensors: impl Into<Tensors>, references: Vec<Reference>) -> Self {
        Self {
            input: Bytes::new(body),
            tensors: tensors.into(),
            references: references.into_iter().map(Some).collect(),
            depth: 0,
        }
    }

    /// Checks that the whole body was read.
    ///
    /// # Errors
    /// When bytes are left over.
    pub fn finish(self) -> Result<(), WireError> {
        match self.input.remaining_slice().len() {
            0 => Ok(()),
            count => Err(WireError::LeftOver { count }),
        }
    }

    /// The bytes that have not been read yet.
    pub fn remaining(&self) -> &'a [u8] {
        self.input.remaining_slice()
    }

    /// Reads nil.
    ///
    /// # Errors
    /// When the next value is of another kind.
    pub fn nil(&mut self) -> Result<(), WireError> {
        self.value("nil", decode::read_nil)
    }

    /// Reads a boolean.
    ///
    /// # Errors
    /// When the next value is of another kind.
    pub fn bool(&mut self) -> Result<bool, WireError> {
        self.value("a boolean", decode::read_bool)
    }

    /// Reads an unsigned integer of any width.
    ///
    /// # Errors
    /// When the next value is of another kind, or negative.
    pub fn uint(&mut self) -> Result<u64, WireError> {
        self.value("an unsigned integer", decode::read_int)
    }

    /// Reads a signed integer of any width.
    ///
    /// # Errors
    /// When the next value is of another kind, or too large.
    pub fn int(&mut self) -> Result<i64, WireError> {
        self.value("an integer", decode::read_int)
    }

    /// Reads an integer of any width. `what` names the type for the error.
    ///
    /// # Errors
    /// When the next value is of another kind.
    #[inline]
    pub fn integer(&mut self, what: &str) -> Result<i128, WireError> {
        // Fast path: the marker of a small integer is its value.
        if let [small @ ..0x80, rest @ ..] = self.input.remaining_slice() {
            self.input = Bytes::new(rest);
            return Ok(i128::from(*small));
        }
        self.value(what, decode::read_int)
    }

    /// Reads a float of 32 bits, a float of 64 bits rounded to it, or an integer that it represents exactly.
    ///
    /// # Errors
    /// When the next value is of another kind, or too large for 32 bits.
    #[inline]
    pub fn f32(&mut self) -> Result<f32, WireError> {
        const WHAT: &str = "a 32-bit float";
        // Fast path: Rust peers send this form.
        if let [F32, a, b, c, d, rest @ ..] = self.input.remaining_slice() {
            self.input = Bytes::new(rest);
            return Ok(f32::from_be_bytes([*a, *b, *c, *d]));
        }
        match self.peek() {
            Some(Marker::F64) => {
                let wide = self.value(WHAT, decode::read_f64)?;
                let value = wide as f32;
                if wide.is_finite() && !value.is_finite() {
                    return Err(WireError::mismatch(
                        WHAT,
                        format!("{wide:e}, which is too large for it"),
                    ));
                }
                Ok(value)
            }
            Some(marker) if is_integer(marker) => {
                self.exact(WHAT, |whole| whole as f32, |float| float as i128)
            }
            _ => self.value(WHAT, decode::read_f32),
        }
    }

    /// Reads a float of 64 bits, a float of 32 bits, or an integer that a float of 64 bits represents exactly.
    ///
    /// # Errors
    /// When the next value is of another kind.
    #[inline]
    pub fn f64(&mut self) -> Result<f64, WireError> {
        const WHAT: &str = "a 64-bit float";
        // Fast path: Rust peers send this form.
        if let [F64, a, b, c, d, e, f, g, h, rest @ ..] = self.input.remaining_slice() {
            self.input = Bytes::new(rest);
            return Ok(f64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]));
        }
        match self.peek() {
            Some(Marker::F32) => self.value(WHAT, decode::read_f32).map(f64::from),
            Some(marker) if is_integer(marker) => {
                self.exact(WHAT, |whole| whole as f64, |float| float as i128)
            }
            _ => self.value(WHAT, decode::read_f64),
        }
    }

    /// Reads a string, without copying it.
    ///
    /// # Errors
    /// When the next value is of another kind, or not UTF-8.
    pub fn str(&mut self) -> Result<&'a str, WireError> {
        let len = self.value("a string", decode::read_str_len)?;
        let bytes = self.take(len as usize, "a string")?;
        std::str::from_utf8(bytes).map_err(|_| WireError::mismatch("a string", "bytes that are not UTF-8"))
    }

    /// Reads bytes, without copying them.
    ///
    /// # Errors
    /// When the next value is of another kind.
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let len = self.value("bytes", decode::read_bin_len)?;
        self.take(len as usize, "bytes")
    }

    /// Reads the start of an array. `what` names the type for the error.
    ///
    /// # Errors
    /// When the next value is of another kind, or claims more elements than there are bytes.
    pub fn array_len(&mut self, what: &str) -> Result<usize, WireError> {
        let len = self.value(what, decode::read_array_len)? as usize;
        self.plausible(len, what)
    }

    /// Reads the start of an array that must have `len` elements.
    ///
    /// # Errors
    /// When the next value is of another kind, or has another length.
    pub fn array_of(&mut self, len: usize, what: &str) -> Result<(), WireError> {
        match self.array_len(what)? {
            found if found == len => Ok(()),
            found => Err(WireError::mismatch(
                format!("{what} of {len}"),
                format!("an array of {found}"),
            )),
        }
    }

    /// Reads the start of a map.
    ///
    /// # Errors
    /// When the next value is of another kind, or claims more entries than there are bytes.
    pub fn map_len(&mut self, what: &str) -> Result<usize, WireError> {
        let len = self.value(what, decode::read_map_len)? as usize;
        self.plausible(len.saturating_mul(2), what).map(|_| len)
    }

    /// Reads the index of a tensor and takes the tensor out of the side table.
    ///
    /// # Errors
    /// When the next value is of another kind, the index is out of range, or the tensor was taken already.
    pub fn tensor(&mut self) -> Result<RawTensor, WireError> {
        match self.received_tensor()? {
            ReceivedTensor::Raw(raw) => Ok(raw),
            ReceivedTensor::Tracked(_) => Err(WireError::mismatch(
                "a raw tensor",
                "a tensor that autograd tracks",
            )),
        }
    }

    /// As [`tensor`](Self::tensor), for a tensor of any form.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor).
    pub fn received_tensor(&mut self) -> Result<ReceivedTensor, WireError> {
        let index = self.index(EXT_TENSOR, "a tensor")?;
        self.tensors.take(index)
    }

    /// Reads the index of a reference and takes the reference out of the side table.
    ///
    /// # Errors
    /// When the next value is of another kind, the index is out of range, or the reference was taken already.
    pub fn reference(&mut self) -> Result<Reference, WireError> {
        let index = self.index(EXT_REFERENCE, "a reference")?;
        take_from(&mut self.references, index, "reference")
    }

    /// Reads an index into a side table.
    fn index(&mut self, table: i8, what: &str) -> Result<usize, WireError> {
        let before = self.input;
        match self.value(what, decode::read_fixext4)? {
            (found, index) if found == table => Ok(u32::from_be_bytes(index) as usize),
            (other, _) => {
                self.input = before;
                let found = match other {
                    EXT_TENSOR => "a tensor".into(),
                    EXT_REFERENCE => "a reference".into(),
                    other => format!("an extension of type {other}"),
                };
                Err(WireError::mismatch(what, found))
            }
        }
    }

    /// Reads the content of a derived type with `read`, one level deeper.
    ///
    /// # Errors
    /// When the level exceeds [`MAX_DEPTH`], or `read` fails.
    pub fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        if self.depth == MAX_DEPTH {
            return Err(WireError::TooDeep {
                path: Vec::new(),
                limit: MAX_DEPTH,
            });
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    /// Reads the start of an enum: the variant's name and whether a payload follows.
    ///
    /// # Errors
    /// When the next value is neither a string nor a map of one.
    pub fn variant(&mut self, what: &str) -> Result<(&'a str, bool), WireError> {
        match self.peek() {
            Some(Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32) => {
                Ok((self.str()?, false))
            }
            Some(Marker::FixMap(_) | Marker::Map16 | Marker::Map32) => match self.map_len(what)? {
                1 => Ok((
                    self.str().map_err(|e| e.at(format!("variant name of {what}")))?,
                    true,
                )),
                len => Err(WireError::mismatch(
                    format!("{what}, a map of 1"),
                    format!("a map of {len}"),
                )),
            },
            _ => Err(self.wrong(what)),
        }
    }

    /// Reads an option, its value with `read`.
    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, WireError>,
    ) -> Result<Option<T>, WireError> {
        match self.input.remaining_slice() {
            [MAP_OF_ONE, NIL, ..] => {
                self.take(2, "an option")?;
                read(self).map(Some)
            }
            [NIL, ..] => self.nil().map(|()| None),
            [MAP_OF_ONE] => Err(truncated("an option")),
            _ => read(self).map(Some),
        }
    }

    /// Reads an array of any length.
    pub(crate) fn sequence<T: Wire>(&mut self) -> Result<Vec<T>, WireError> {
        let len = self.array_len("a sequence")?;
        let mut items = Vec::with_capacity(self.bounded_capacity::<T>(len));
        for i in 0..len {
            items.push(T::decode(self).map_err(|e| e.at(format!("element {i}")))?);
        }
        Ok(items)
    }

    /// Reads an array of `N` elements without a heap allocation.
    pub(crate) fn array<T: Wire, const N: usize>(&mut self) -> Result<[T; N], WireError> {
        self.array_of(N, "an array")?;
        let mut items = [const { None }; N];
        for (i, item) in items.iter_mut().enumerate() {
            *item = Some(T::decode(self).map_err(|e| e.at(format!("element {i}")))?);
        }
        // Cannot fail: the loop above filled every element or returned.
        Ok(items.map(|item: Option<T>| item.expect("every element was read")))
    }

    /// Whether an array comes next.
    pub(crate) fn next_is_array(&self) -> bool {
        matches!(
            self.peek(),
            Some(Marker::FixArray(_) | Marker::Array16 | Marker::Array32)
        )
    }

    /// Whether bytes come next.
    pub(crate) fn next_is_bytes(&self) -> bool {
        matches!(self.peek(), Some(Marker::Bin8 | Marker::Bin16 | Marker::Bin32))
    }

    /// Number of elements of `T` to reserve for a sequence that claims `len`.
    pub(crate) fn bounded_capacity<T>(&self, len: usize) -> usize {
        len.min(MAX_RESERVE / size_of::<T>().max(1))
    }

    /// Skips one value of any depth and returns its bytes.
    #[cfg(feature = "serde")]
    pub(crate) fn skip_value(&mut self) -> Result<&'a [u8], WireError> {
        let len = value_len(self.input.remaining_slice()).ok_or_else(|| truncated("a value"))?;
        self.take(len, "a value")
    }

    /// Takes the next `len` bytes.
    pub(crate) fn take(&mut self, len: usize, inside: &str) -> Result<&'a [u8], WireError> {
        let rest = self.input.remaining_slice();
        let (head, tail) = rest.split_at_checked(len).ok_or_else(|| truncated(inside))?;
        self.input = Bytes::new(tail);
        Ok(head)
    }

    fn peek(&self) -> Option<Marker> {
        self.input
            .remaining_slice()
            .first()
            .map(|&byte| Marker::from_u8(byte))
    }

    /// Checks a claimed length: an element takes at least one byte.
    fn plausible(&self, len: usize, what: &str) -> Result<usize, WireError> {
        if len > self.input.remaining_slice().len() {
            Err(truncated(what))
        } else {
            Ok(len)
        }
    }

    /// Reads an integer as a float, if the float represents it exactly.
    fn exact<F: Copy>(
        &mut self,
        what: &str,
        to_float: impl Fn(i128) -> F,
        to_integer: impl Fn(F) -> i128,
    ) -> Result<F, WireError> {
        let whole = self.integer(what)?;
        let float = to_float(whole);
        if to_integer(float) == whole {
            Ok(float)
        } else {
            Err(inexact(what, whole))
        }
    }

    /// Reads with one of rmp's functions; advances only if it succeeds.
    fn value<T, E: Into<NumValueReadError<BytesReadError>>>(
        &mut self,
        what: &str,
        read: impl FnOnce(&mut Bytes<'a>) -> Result<T, E>,
    ) -> Result<T, WireError> {
        let mut ahead = self.input;
        match read(&mut ahead).map_err(Into::into) {
            Ok(value) => {
                self.input = ahead;
                Ok(value)
            }
            Err(NumValueReadError::TypeMismatch(_)) => Err(self.wrong(what)),
            Err(NumValueReadError::OutOfRange) => Err(WireError::mismatch(what, "a number out of range")),
            Err(_) => Err(truncated(what)),
        }
    }

    /// The error for a next value that is not `what`.
    #[cold]
    fn wrong(&self, what: &str) -> WireError {
        match self.peek() {
            Some(marker) => WireError::mismatch(what, describe(marker)),
            None => truncated(what),
        }
    }
}

/// Takes an entry out of a side table.
fn take_from<T>(table: &mut [Option<T>], index: usize, what: &str) -> Result<T, WireError> {
    let count = table.len();
    let slot = table.get_mut(index).ok_or_else(|| {
        WireError::mismatch(
            format!("a {what}"),
            format!("the index of {what} {index} of {count}"),
        )
    })?;
    slot.take()
        .ok_or_else(|| WireError::mismatch(format!("a {what}"), format!("{what} {index} a second time")))
}

fn is_integer(marker: Marker) -> bool {
    matches!(
        marker,
        Marker::FixPos(_)
            | Marker::FixNeg(_)
            | Marker::U8
            | Marker::U16
            | Marker::U32
            | Marker::U64
            | Marker::I8
            | Marker::I16
            | Marker::I32
            | Marker::I64
    )
}

#[cold]
fn inexact(what: &str, whole: i128) -> WireError {
    WireError::mismatch(
        what,
        format!("the integer {whole}, which it cannot represent exactly"),
    )
}

#[cold]
fn truncated(inside: &str) -> WireError {
    WireError::Truncated {
        path: Vec::new(),
        inside: inside.into(),
    }
}

fn describe(marker: Marker) -> &'static str {
    match marker {
        Marker::Null => "nil",
        Marker::True | Marker::False => "a boolean",
        Marker::F32 => "a 32-bit float",
        Marker::F64 => "a 64-bit float",
        Marker::FixPos(_) | Marker::U8 | Marker::U16 | Marker::U32 | Marker::U64 => "an unsigned integer",
        Marker::FixNeg(_) | Marker::I8 | Marker::I16 | Marker::I32 | Marker::I64 => "a signed integer",
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => "a string",
        Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => "bytes",
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => "an array",
        Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => "a map",
        Marker::FixExt4 => "a tensor, a reference or another extension",
        Marker::FixExt1
        | Marker::FixExt2
        | Marker::FixExt8
        | Marker::FixExt16
        | Marker::Ext8
        | Marker::Ext16
        | Marker::Ext32 => "an extension",
        Marker::Reserved => "a reserved byte",
    }
}
