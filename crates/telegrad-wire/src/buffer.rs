//! Memory that a tensor's bytes are received into.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use bytemuck::Pod;

use crate::DType;

/// The bytes of one received tensor, in an allocation that a tensor library can take over.
///
/// The bytes lie in a `Vec` of words as wide as the tensor's elements, so that the same allocation
/// becomes a `Vec<f32>` (or of whatever the element type is) without a copy: see [`Buffer::into_vec`].
#[derive(Clone)]
pub struct Buffer(Words);

#[derive(Clone)]
enum Words {
    One(Vec<u8>),
    Two(Vec<u16>),
    Four(Vec<u32>),
    Eight(Vec<u64>),
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

    /// A buffer of `dtype` elements with a copy of `bytes`, whose length must be a multiple of the element's.
    pub fn copy_from(dtype: DType, bytes: &[u8]) -> Self {
        Self(match dtype.size() {
            1 => Words::One(bytes.to_vec()),
            2 => Words::Two(copied(bytes)),
            4 => Words::Four(copied(bytes)),
            _ => Words::Eight(copied(bytes)),
        })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Words::One(v) => v,
            Words::Two(v) => bytemuck::cast_slice(v),
            Words::Four(v) => bytemuck::cast_slice(v),
            Words::Eight(v) => bytemuck::cast_slice(v),
        }
    }

    /// The elements, without a copy when `T` is as wide as the elements the buffer was made for.
    pub fn into_vec<T: Pod>(self) -> Vec<T> {
        match self.0 {
            Words::One(v) => cast_or_copy(v),
            Words::Two(v) => cast_or_copy(v),
            Words::Four(v) => cast_or_copy(v),
            Words::Eight(v) => cast_or_copy(v),
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

/// Memory for a [`Buffer`] whose bytes have yet to come, perhaps through several hands at once.
///
/// It is uninitialised: clearing it first would cost as much as the copy.
pub struct Unfilled {
    /// Empty, with the capacity that is needed.
    words: Words,
    /// Where the words' memory starts.
    start: NonNull<MaybeUninit<u8>>,
    len: usize,
}

// SAFETY: `start` is an address within memory that `words` owns, and only unsafe code of the caller's looks at
// what is there; everything else in it is `Send` and `Sync`.
unsafe impl Send for Unfilled {}
// SAFETY: as above; through a shared reference it only gives its address and length away.
unsafe impl Sync for Unfilled {}

impl Unfilled {
    /// Memory for `count` elements of `dtype`; `None` when there is not that much.
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

    /// Where the bytes are to go: [`len`](Self::len) of them, for as long as this lives.
    pub fn start(&self) -> NonNull<MaybeUninit<u8>> {
        self.start
    }

    /// How many bytes there are to be.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are to be none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The buffer.
    ///
    /// # Safety
    /// Every byte from `start` on must have been initialised, and nobody may write there any more.
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
        })
    }
}

impl fmt::Debug for Unfilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unfilled({} bytes)", self.len)
    }
}

fn reserved<W: Pod>(count: usize, wrap: fn(Vec<W>) -> Words) -> Option<(Words, NonNull<MaybeUninit<u8>>)> {
    let mut words: Vec<W> = Vec::new();
    words.try_reserve_exact(count).ok()?;
    // From the vector's own pointer, which stays good while the vector is moved and nothing is pushed.
    let start = NonNull::new(words.as_mut_ptr())?.cast();
    Some((wrap(words), start))
}

/// # Safety
/// `words` is empty, and the first `bytes` bytes of its capacity are initialised.
unsafe fn filled<W: Pod>(mut words: Vec<W>, bytes: usize) -> Vec<W> {
    // SAFETY: by this function's contract that many words are initialised and within the capacity; every bit
    // pattern is a value of a `Pod` type.
    unsafe { words.set_len(bytes / size_of::<W>()) };
    words
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

#[cfg(test)]
mod tests {
    use super::*;

    /// For Miri: halves written from two threads, and nothing but the pointer shared.
    #[test]
    fn memory_filled_from_two_threads_becomes_a_buffer() {
        for dtype in [DType::U8, DType::F16, DType::F32, DType::F64] {
            let unfilled = Unfilled::new(dtype, 100).unwrap();
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
    fn more_memory_than_there_is_is_refused() {
        assert!(Unfilled::new(DType::U8, isize::MAX as usize).is_none());
        assert!(Unfilled::new(DType::F64, usize::MAX / 2).is_none());
        assert!(Unfilled::new(DType::F32, 0).unwrap().is_empty());
    }
}
