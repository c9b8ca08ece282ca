//! Memory that a tensor's bytes are received into.

use std::any::Any;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use bytemuck::Pod;

use crate::DType;

/// Memory beside the heap that the bytes of a tensor can lie in: shared with another process, for one.
///
/// # Safety
/// [`bytes`](Self::bytes) gives the same memory every time, nobody writes to it while this lives, and it
/// is aligned for every element type. [`into_heap`](Self::into_heap) keeps the promise in its description.
pub unsafe trait Outside: Any + Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// Makes the memory part of the heap: the global allocator will take it back, as a block with the
    /// length of `bytes` and the alignment of any element type, and nobody else has a hold on it. Gives
    /// the memory back as it is when that is not possible.
    fn into_heap(self: Box<Self>) -> Result<NonNull<u8>, Box<dyn Outside>>;

    /// The memory, to downcast.
    fn as_any(&self) -> &dyn Any;
}

/// The bytes of one received tensor, in an allocation that a tensor library can take over.
///
/// The bytes lie in a `Vec` of words as wide as the tensor's elements, so that the same allocation
/// becomes a `Vec<f32>` (or of whatever the element type is) without a copy: see [`Buffer::into_vec`].
/// Or they lie [`Outside`] the heap, and become part of it then.
#[derive(Clone)]
pub struct Buffer(Words);

enum Words {
    One(Vec<u8>),
    Two(Vec<u16>),
    Four(Vec<u32>),
    Eight(Vec<u64>),
    /// And the width that a copy of it is to have.
    Outside(Box<dyn Outside>, usize),
}

/// A clone is on the heap.
impl Clone for Words {
    fn clone(&self) -> Self {
        match self {
            Self::One(v) => Self::One(v.clone()),
            Self::Two(v) => Self::Two(v.clone()),
            Self::Four(v) => Self::Four(v.clone()),
            Self::Eight(v) => Self::Eight(v.clone()),
            Self::Outside(memory, width) => Self::copied(*width, memory.bytes()),
        }
    }
}

impl Words {
    fn copied(width: usize, bytes: &[u8]) -> Self {
        match width {
            1 => Self::One(bytes.to_vec()),
            2 => Self::Two(copied(bytes)),
            4 => Self::Four(copied(bytes)),
            _ => Self::Eight(copied(bytes)),
        }
    }
}

impl Buffer {
    /// Takes over `data`.
    pub fn from_vec<T: Pod>(data: Vec<T>) -> Self {
        let data = match bytemuck::try_cast_vec(data) {
            Ok(words) => return Self(Words::One(words)),
            Err((_, data)) => data,
        };
        let data = match bytemuck::try_cast_vec(data) {
            Ok(words) => return Self(Words::Two(words)),
            Err((_, data)) => data,
        };
        let data = match bytemuck::try_cast_vec(data) {
            Ok(words) => return Self(Words::Four(words)),
            Err((_, data)) => data,
        };
        match bytemuck::try_cast_vec(data) {
            Ok(words) => Self(Words::Eight(words)),
            // An element type of another width: its bytes are all that is left of it.
            Err((_, data)) => Self(Words::One(bytemuck::cast_slice(&data).to_vec())),
        }
    }

    /// A buffer for `count` elements of `dtype`, filled by `fill`.
    ///
    /// `fill` gets the memory uninitialised: clearing it first would cost as much as the copy.
    ///
    /// # Errors
    /// Whatever `fill` fails with; the memory is released.
    ///
    /// # Safety
    /// When `fill` returns `Ok`, it must have initialised every byte of the slice it was given.
    pub unsafe fn fill_with<E>(
        dtype: DType,
        count: usize,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<(), E>,
    ) -> Result<Self, E> {
        Ok(Self(match dtype.size() {
            // SAFETY: passed on from this function's own contract.
            1 => Words::One(unsafe { filled(count, fill) }?),
            // SAFETY: as above.
            2 => Words::Two(unsafe { filled(count, fill) }?),
            // SAFETY: as above.
            4 => Words::Four(unsafe { filled(count, fill) }?),
            // SAFETY: as above.
            _ => Words::Eight(unsafe { filled(count, fill) }?),
        }))
    }

    /// A buffer of `dtype` elements with a copy of `bytes`, whose length must be a multiple of the element's.
    pub fn copy_from(dtype: DType, bytes: &[u8]) -> Self {
        Self(Words::copied(dtype.size(), bytes))
    }

    /// The `dtype` elements that lie in `memory`.
    pub fn from_outside(dtype: DType, memory: Box<dyn Outside>) -> Self {
        Self(Words::Outside(memory, dtype.size()))
    }

    /// The memory, when it is not on the heap.
    pub fn outside(&self) -> Option<&dyn Outside> {
        match &self.0 {
            Words::Outside(memory, _) => Some(&**memory),
            _ => None,
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Words::One(v) => v,
            Words::Two(v) => bytemuck::cast_slice(v),
            Words::Four(v) => bytemuck::cast_slice(v),
            Words::Eight(v) => bytemuck::cast_slice(v),
            Words::Outside(memory, _) => memory.bytes(),
        }
    }

    /// The elements, without a copy when `T` is as wide as the elements the buffer was made for.
    pub fn into_vec<T: Pod>(self) -> Vec<T> {
        match self.0 {
            Words::One(v) => cast_or_copy(v),
            Words::Two(v) => cast_or_copy(v),
            Words::Four(v) => cast_or_copy(v),
            Words::Eight(v) => cast_or_copy(v),
            Words::Outside(memory, _) => on_heap(memory),
        }
    }
}

/// Equal bytes are equal, whatever words they lie in.
impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.as_bytes().len())
    }
}

/// # Safety
/// As [`Buffer::fill_with`].
unsafe fn filled<W: Pod, E>(
    count: usize,
    fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<(), E>,
) -> Result<Vec<W>, E> {
    let mut words: Vec<W> = Vec::with_capacity(count);
    let spare = &mut words.spare_capacity_mut()[..count];
    // SAFETY: the slice covers exactly the `count` words of `spare`, which `words` owns and nobody
    // else refers to while the slice lives; `MaybeUninit<u8>` has no alignment or validity demands.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(spare.as_mut_ptr().cast::<MaybeUninit<u8>>(), size_of_val(spare))
    };
    fill(bytes)?;
    // SAFETY: `fill` returned `Ok`, so by this function's contract all `count` words are
    // initialised; every bit pattern is a value of a `Pod` type; the capacity is at least `count`.
    unsafe { words.set_len(count) };
    Ok(words)
}

fn copied<W: Pod>(bytes: &[u8]) -> Vec<W> {
    let mut words = vec![W::zeroed(); bytes.len() / size_of::<W>()];
    bytemuck::cast_slice_mut(&mut words).copy_from_slice(bytes);
    words
}

fn cast_or_copy<W: Pod, T: Pod>(words: Vec<W>) -> Vec<T> {
    match bytemuck::try_cast_vec(words) {
        Ok(v) => v,
        Err((_, words)) => bytemuck::pod_collect_to_vec(&words),
    }
}

fn on_heap<T: Pod>(memory: Box<dyn Outside>) -> Vec<T> {
    let bytes = memory.bytes().len();
    if size_of::<T>() == 0 || bytes == 0 || !bytes.is_multiple_of(size_of::<T>()) {
        return bytemuck::pod_collect_to_vec(memory.bytes());
    }
    let count = bytes / size_of::<T>();
    match memory.into_heap() {
        // SAFETY: by the contract of `Outside` the block has `bytes` bytes, all initialised, is aligned for
        // any element type, is owned by nobody else, and the global allocator takes it back with this layout.
        Ok(start) => unsafe { Vec::from_raw_parts(start.cast().as_ptr(), count, count) },
        Err(memory) => bytemuck::pod_collect_to_vec(memory.bytes()),
    }
}
