//! Tensors on their way out and in.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{Buffer, DType, Outside, WireError};

/// Element type and shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMeta {
    /// Element type.
    pub dtype: DType,
    /// Length of each dimension; empty for a scalar.
    pub shape: Vec<usize>,
}

impl TensorMeta {
    /// Number of elements; `None` when it does not fit the machine.
    ///
    /// Dimensions beside one of length zero must fit too, because tensor libraries multiply them into
    /// strides: a shape that has a number of elements here is safe to hand to any of them.
    pub fn elements(&self) -> Option<usize> {
        elements(self.dtype, &self.shape)
    }

    /// Number of bytes of the contiguous content; `None` when it does not fit the machine.
    pub fn bytes(&self) -> Option<usize> {
        self.elements()?.checked_mul(self.dtype.size())
    }
}

fn elements(dtype: DType, shape: &[usize]) -> Option<usize> {
    let extent = shape
        .iter()
        .try_fold(1_usize, |n, &dim| n.checked_mul(dim.max(1)))?;
    // No allocation is longer than `isize::MAX` bytes.
    isize::try_from(extent.checked_mul(dtype.size())?).ok()?;
    Some(if shape.contains(&0) { 0 } else { extent })
}

impl fmt::Display for TensorMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// A tensor that is about to be sent.
///
/// The encoder keeps the tensor itself behind this trait, so that its bytes go from its own memory
/// straight to the link, and so that a layer above (autograd) can find the tensor again.
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

    /// Number of bytes of the contiguous content; `None` when it does not fit the machine.
    fn byte_len(&self) -> Option<usize> {
        elements(self.dtype(), self.shape())?.checked_mul(self.dtype().size())
    }

    /// Lends the contiguous little-endian content, exactly as long as [`byte_len`](Self::byte_len) says.
    fn with_bytes(&self, read: &mut dyn FnMut(&[u8]));

    /// The tensor, to downcast.
    fn as_any(&self) -> &dyn Any;

    /// The memory of a tensor that does not lie on the heap and never changes, and whether nobody but this
    /// source holds it. Where the receiver can be shown that memory, it need not be copied.
    fn outside(&self) -> Option<(&dyn Outside, bool)> {
        None
    }
}

/// A tensor as the core knows it: element type, shape and bytes, of no particular library.
///
/// A clone shares the bytes, so that sending one copies nothing.
#[derive(Clone, PartialEq)]
pub struct RawTensor(Arc<Parts>);

#[derive(Clone, PartialEq)]
struct Parts {
    meta: TensorMeta,
    data: Buffer,
}

impl RawTensor {
    /// Puts the parts together.
    ///
    /// # Errors
    /// When `data` is not as long as `meta` says.
    pub fn new(meta: TensorMeta, data: Buffer) -> Result<Self, WireError> {
        let found = data.as_bytes().len();
        if meta.bytes() != Some(found) {
            return Err(WireError::TensorBytes { meta, found });
        }
        Ok(Self(Arc::new(Parts { meta, data })))
    }

    /// A copy of any tensor that can be sent.
    ///
    /// # Errors
    /// When the tensor's bytes are not as many as its shape needs, or there is no memory for them.
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

    /// The parts, without a copy unless a clone of this tensor is still alive.
    pub fn into_parts(self) -> (TensorMeta, Buffer) {
        let Parts { meta, data } = Arc::unwrap_or_clone(self.0);
        (meta, data)
    }
}

/// Shows what it is; the content could be of any length.
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

    fn outside(&self) -> Option<(&dyn Outside, bool)> {
        let memory = self.0.data.outside()?;
        Some((memory, Arc::strong_count(&self.0) == 1))
    }
}
