//! Memory for the bytes of received tensors.

use std::any::Any;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use bytemuck::Pod;

use crate::{DType, WireError};

/// Memory outside the heap that holds the bytes of a tensor, such as memory shared with another process.
///
/// # Safety
/// [`bytes`](Self::bytes) returns the same memory every time. During the lifetime of the object the memory is not written to,
/// and it is aligned for every element type. [`into_heap`](Self::into_heap) fulfils the contract in its description.
pub unsafe trait ExternalMemory: Any + Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// Makes the memory part of the heap, or returns it unchanged if that is impossible.
    ///
    /// On success the returned block has no other owner, and the global allocator accepts it for deallocation with the
    /// length of `bytes` and the alignment of any element type.
    fn into_heap(self: Box<Self>) -> Result<NonNull<u8>, Box<dyn ExternalMemory>>;

    /// The memory, to downcast.
    fn as_any(&self) -> &dyn Any;
}

/// The bytes of one received tensor, in an allocation that a tensor library can take over.
///
/// The bytes lie in a `Vec` of words of the element's width, so that [`Buffer::into_vec`] returns the same allocation as a
/// `Vec` of elements without a copy. Or they lie in [`ExternalMemory`], and `into_vec` makes that memory part of it.
#[derive(Clone)]
pub struct Buffer(Words);

enum Words {
    One(Vec<u8>),
    Two(Vec<u16>),
    Four(Vec<u32>),
    Eight(Vec<u64>),
    /// Memory outside the heap, with the word width of a copy.
    External(Box<dyn ExternalMemory>, usize),
}

/// Clones to the heap.
impl Clone for Words {
    fn clone(&self) -> Self {
        match self {
            Self::One(v) => Self::One(v.clone()),
            Self::Two(v) => Self::Two(v.clone()),
            Self::Four(v) => Self::Four(v.clone()),
            Self::Eight(v) => Self::Eight(v.clone()),
            Self::External(memory, width) => Self::copied(*width, memory.bytes()),
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
            // Elements of another width keep their bytes only.
            Err((_, data)) => Self(Words::One(bytemuck::cast_slice(&data).to_vec())),
        }
    }

    /// Copies `bytes` as elements of `dtype`; the length must be a multiple of the element size.
    pub fn copy_from(dtype: DType, bytes: &[u8]) -> Self {
        Self(Words::copied(dtype.size(), bytes))
    }

    /// As [`copy_from`](Self::copy_from); `None` if the allocation fails.
    pub fn try_copy_from(dtype: DType, bytes: &[u8]) -> Option<Self> {
        let unfilled = UninitBuffer::new(dtype, bytes.len() / dtype.size())?;
        // SAFETY: the memory is new, so the two ranges do not overlap. It holds `len` bytes, which is at most the length of
        // `bytes`. All of them are written before the buffer is made.
        unsafe {
            let start = unfilled.start().cast::<u8>().as_ptr();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, unfilled.len());
            Some(unfilled.assume_filled())
        }
    }

    /// The `dtype` elements that lie in `memory`.
    pub fn from_external(dtype: DType, memory: Box<dyn ExternalMemory>) -> Self {
        Self(Words::External(memory, dtype.size()))
    }

    /// The memory, if it is outside the heap.
    pub fn external(&self) -> Option<&dyn ExternalMemory> {
        match &self.0 {
            Words::External(memory, _) => Some(&**memory),
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
            Words::External(memory, _) => memory.bytes(),
        }
    }

    /// The elements, without a copy if `T` has the width of the buffer's elements.
    pub fn into_vec<T: Pod>(self) -> Vec<T> {
        match self.0 {
            Words::One(v) => cast_or_copy(v),
            Words::Two(v) => cast_or_copy(v),
            Words::Four(v) => cast_or_copy(v),
            Words::Eight(v) => cast_or_copy(v),
            Words::External(memory, _) => on_heap(memory).unwrap_or_else(|memory| {
                // A failed allocation ends the process here, as elsewhere.
                bytemuck::pod_collect_to_vec(memory.bytes())
            }),
        }
    }

    /// As [`into_vec`](Self::into_vec), with an error if the allocation for a copy fails.
    ///
    /// # Errors
    /// [`WireError::NoMemory`] if the allocation fails.
    pub fn try_into_vec<T: Pod>(self) -> Result<Vec<T>, WireError> {
        match self.0 {
            Words::External(memory, _) => on_heap(memory).or_else(|memory| try_collect(memory.bytes())),
            heap => Ok(Self(heap).into_vec()),
        }
    }
}

/// Compares bytes, whatever the word width.
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

/// Uninitialised memory for a [`Buffer`], which several threads may fill.
///
/// Zeroing it first would cost as much as the copy.
pub struct UninitBuffer {
    /// An empty vector with the required capacity.
    words: Words,
    /// Start of the vector's memory.
    start: NonNull<MaybeUninit<u8>>,
    len: usize,
}

// SAFETY: `start` is an address within memory that `words` owns, and only unsafe code of callers accesses the bytes there;
// all other fields are `Send` and `Sync`.
unsafe impl Send for UninitBuffer {}
// SAFETY: as above; a shared reference gives access to the address and the length only.
unsafe impl Sync for UninitBuffer {}

impl UninitBuffer {
    /// Memory for `count` elements of `dtype`; `None` if the allocation fails.
    pub fn new(dtype: DType, count: usize) -> Option<Self> {
        let len = count.checked_mul(dtype.size())?;
        let (words, start) = match dtype.size() {
            1 => reserved(count, Words::One),
            2 => reserved(count, Words::Two),
            4 => reserved(count, Words::Four),
            _ => reserved(count, Words::Eight),
        }?;
        Some(Self { words, start, len })
    }

    /// Start of the memory: [`len`](Self::len) bytes, valid for the lifetime of the object.
    pub fn start(&self) -> NonNull<MaybeUninit<u8>> {
        self.start
    }

    /// Number of bytes to be filled.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes to be filled.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the filled buffer.
    ///
    /// # Safety
    /// All `len` bytes from `start` on must be initialised, and no more writes to them may follow.
    pub unsafe fn assume_filled(self) -> Buffer {
        let len = self.len;
        Buffer(match self.words {
            // SAFETY: passed on from this function's own contract.
            Words::One(words) => Words::One(unsafe { filled(words, len) }),
            // SAFETY: as above.
            Words::Two(words) => Words::Two(unsafe { filled(words, len) }),
            // SAFETY: as above.
            Words::Four(words) => Words::Four(unsafe { filled(words, len) }),
            // SAFETY: as above.
            Words::Eight(words) => Words::Eight(unsafe { filled(words, len) }),
            external @ Words::External(..) => external,
        })
    }
}

impl fmt::Debug for UninitBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UninitBuffer({} bytes)", self.len)
    }
}

fn reserved<W: Pod>(count: usize, wrap: fn(Vec<W>) -> Words) -> Option<(Words, NonNull<MaybeUninit<u8>>)> {
    let mut words: Vec<W> = Vec::new();
    words.try_reserve_exact(count).ok()?;
    // The vector's own pointer stays valid while the vector is moved, as nothing is pushed.
    let start = NonNull::new(words.as_mut_ptr())?.cast();
    Some((wrap(words), start))
}

/// # Safety
/// `words` is empty, and the first `bytes` bytes of its capacity are initialised.
unsafe fn filled<W: Pod>(mut words: Vec<W>, bytes: usize) -> Vec<W> {
    // SAFETY: by the contract of this function, that many words are initialised and within the capacity. Every bit pattern
    // is a value of a `Pod` type.
    unsafe { words.set_len(bytes / size_of::<W>()) };
    words
}

fn copied<W: Pod>(bytes: &[u8]) -> Vec<W> {
    let words = bytes.chunks_exact(size_of::<W>());
    words.map(bytemuck::pod_read_unaligned).collect()
}

fn cast_or_copy<W: Pod, T: Pod>(words: Vec<W>) -> Vec<T> {
    match bytemuck::try_cast_vec(words) {
        Ok(v) => v,
        Err((_, words)) => bytemuck::pod_collect_to_vec(&words),
    }
}

/// Converts the memory in place, or returns it if the elements must be copied.
fn on_heap<T: Pod>(memory: Box<dyn ExternalMemory>) -> Result<Vec<T>, Box<dyn ExternalMemory>> {
    let bytes = memory.bytes().len();
    if size_of::<T>() == 0 || bytes == 0 || !bytes.is_multiple_of(size_of::<T>()) {
        return Err(memory);
    }
    let count = bytes / size_of::<T>();
    let start = memory.into_heap()?;
    // SAFETY: by the contract of `ExternalMemory` the block has `bytes` bytes, all initialised, is aligned for
    // any element type, has no other owner, and the global allocator takes it back with this layout.
    Ok(unsafe { Vec::from_raw_parts(start.cast().as_ptr(), count, count) })
}

fn try_collect<T: Pod>(bytes: &[u8]) -> Result<Vec<T>, WireError> {
    let mut elements = Vec::new();
    let count = bytes.len().div_ceil(size_of::<T>().max(1));
    elements
        .try_reserve_exact(count)
        .map_err(|_| WireError::NoMemory {
            bytes: bytes.len() as u64,
        })?;
    elements.resize(count, T::zeroed());
    bytemuck::cast_slice_mut(&mut elements)[..bytes.len()].copy_from_slice(bytes);
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For Miri: two threads each write one half and share only the pointer.
    #[test]
    fn memory_filled_from_two_threads_becomes_a_buffer() {
        for dtype in [DType::U8, DType::F16, DType::F32, DType::F64] {
            let unfilled = UninitBuffer::new(dtype, 100).unwrap();
            assert_eq!(unfilled.len(), 100 * dtype.size());
            let half = unfilled.len() / 2;
            std::thread::scope(|scope| {
                for part in 0..2 {
                    let unfilled = &unfilled;
                    scope.spawn(move || {
                        for i in part * half..(part + 1) * half {
                            // SAFETY: within the memory, and each byte is written by one thread.
                            unsafe { unfilled.start().add(i).write(MaybeUninit::new(i as u8)) };
                        }
                    });
                }
            });
            // SAFETY: all bytes have been written, and the threads have ended.
            let buffer = unsafe { unfilled.assume_filled() };
            assert!(
                buffer
                    .as_bytes()
                    .iter()
                    .enumerate()
                    .all(|(i, &byte)| byte == i as u8)
            );
            assert_eq!(buffer.as_bytes().len(), 2 * half);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends the program when an allocation fails")]
    fn an_impossible_allocation_is_refused() {
        assert!(UninitBuffer::new(DType::U8, isize::MAX as usize).is_none());
        assert!(UninitBuffer::new(DType::F64, usize::MAX / 2).is_none());
        assert!(UninitBuffer::new(DType::F32, 0).unwrap().is_empty());
    }
}
