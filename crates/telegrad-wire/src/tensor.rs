//! Tensors of messages.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{Buffer, DType, ExternalMemory, WireError};

/// Element type and shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMeta {
    /// Element type.
    pub dtype: DType,
    /// Length of each dimension; empty for a scalar.
    pub shape: Vec<usize>,
}

impl TensorMeta {
    /// Number of elements; `None` on overflow.
    ///
    /// The product of the non-zero dimensions must not overflow either, because tensor libraries multiply them into strides.
    /// A shape with a number of elements is therefore safe for any library.
    pub fn elements(&self) -> Option<usize> {
        elements(self.dtype, &self.shape)
    }

    /// Length in bytes of the contiguous content; `None` on overflow.
    pub fn bytes(&self) -> Option<usize> {
        self.elements()?.checked_mul(self.dtype.size())
    }
}

fn elements(dtype: DType, shape: &[usize]) -> Option<usize> {
    let extent = shape
        .iter()
        .try_fold(1_usize, |n, &dim| n.checked_mul(dim.max(1)))?;
    // An allocation has at most `isize::MAX` bytes.
    isize::try_from(extent.checked_mul(dtype.size())?).ok()?;
    Some(if shape.contains(&0) { 0 } else { extent })
}

impl fmt::Display for TensorMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// A tensor to be sent.
///
/// The encoder stores the tensor itself behind this trait: the link writes the bytes from the tensor's own memory, and
/// autograd can identify the tensor.
pub trait TensorSource: Send + Sync + 'static {
    /// The element type.
    fn dtype(&self) -> DType;

    /// Length of each dimension.
    fn shape(&self) -> &[usize];

    /// Element type and shape.
    fn meta(&self) -> TensorMeta {
        TensorMeta {
            dtype: self.dtype(),
            shape: self.shape().to_vec(),
        }
    }

    /// Length in bytes of the contiguous content; `None` on overflow.
    fn byte_len(&self) -> Option<usize> {
        elements(self.dtype(), self.shape())?.checked_mul(self.dtype().size())
    }

    /// Calls `read` with the contiguous little-endian content of [`byte_len`](Self::byte_len) bytes.
    fn with_bytes(&self, read: &mut dyn FnMut(&[u8]));

    /// The tensor, to downcast.
    fn as_any(&self) -> &dyn Any;

    /// The immutable memory of a tensor outside the heap, and whether this source is its only owner.
    ///
    /// A receiver with access to that memory needs no copy.
    fn external(&self) -> Option<(&dyn ExternalMemory, bool)> {
        None
    }
}

/// A tensor of no particular library: element type, shape and bytes.
///
/// Clones share the bytes, so sending one copies nothing.
#[derive(Clone, PartialEq)]
pub struct RawTensor(Arc<Parts>);

#[derive(Clone, PartialEq)]
struct Parts {
    meta: TensorMeta,
    data: Buffer,
}

impl RawTensor {
    /// A tensor with this content.
    ///
    /// # Errors
    /// When the length of `data` does not match `meta`.
    pub fn new(meta: TensorMeta, data: Buffer) -> Result<Self, WireError> {
        let found = data.as_bytes().len();
        if meta.bytes() != Some(found) {
            return Err(WireError::TensorBytes { meta, found });
        }
        Ok(Self(Arc::new(Parts { meta, data })))
    }

    /// Copies a tensor.
    ///
    /// # Errors
    /// When the number of bytes does not match the shape, or the allocation fails.
    pub fn copy_of(tensor: &dyn TensorSource) -> Result<Self, WireError> {
        let meta = tensor.meta();
        let mut data = Buffer::try_copy_from(meta.dtype, &[]);
        tensor.with_bytes(&mut |bytes| data = Buffer::try_copy_from(meta.dtype, bytes));
        let data = data.ok_or_else(|| WireError::NoMemory {
            bytes: meta.bytes().unwrap_or_default() as u64,
        })?;
        Self::new(meta, data)
    }

    /// Element type and shape.
    pub fn meta(&self) -> &TensorMeta {
        &self.0.meta
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.0.meta.dtype
    }

    /// Length of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.0.meta.shape
    }

    /// The contiguous little-endian content.
    pub fn bytes(&self) -> &[u8] {
        self.0.data.as_bytes()
    }

    /// The parts, without a copy unless a clone of this tensor exists.
    pub fn into_parts(self) -> (TensorMeta, Buffer) {
        let Parts { meta, data } = Arc::unwrap_or_clone(self.0);
        (meta, data)
    }
}

/// Omits the content, which can be of any length.
impl fmt::Debug for RawTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawTensor({})", self.0.meta)
    }
}

impl TensorSource for RawTensor {
    fn dtype(&self) -> DType {
        self.0.meta.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.0.meta.shape
    }

    fn with_bytes(&self, read: &mut dyn FnMut(&[u8])) {
        read(self.bytes());
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn external(&self) -> Option<(&dyn ExternalMemory, bool)> {
        let memory = self.0.data.external()?;
        Some((memory, Arc::strong_count(&self.0) == 1))
    }
}
