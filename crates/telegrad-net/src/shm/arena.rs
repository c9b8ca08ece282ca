//! The memory of tensors that are lent to other processes.
//!
//! The arena of a process consists of segments, each a piece of shared memory that a peer maps once. Blocks are
//! cut from segments and reused: touching fresh memory costs several times what copying into it does.

use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rustix::mm::{Advice, madvise};
use telegrad_wire::{Buffer, ExternalMemory, RawTensor, TensorMeta, TensorSource, WireError};

use super::{Lending, Memory};
use crate::classes::{class_of_size, size_of_class};

/// Size of the smallest block, and the unit of larger ones.
const BASE: usize = 16 * 1024;

/// Four classes per doubling, from `BASE` to 1 GiB. Longer tensors are streamed: lent memory stays in use for a
/// while, and a tensor that fills the machine must not.
const CLASSES: usize = 4 * 16 + 1;

/// Length of a segment, unless a block needs more. Only used pages take memory.
const SEGMENT: usize = 256 << 20;

/// Bytes of free blocks whose pages are kept.
pub(crate) const KEEP: usize = 512 << 20;

/// Allocates memory that can be lent to other processes.
pub(crate) struct Arena {
    state: Mutex<State>,
}

struct State {
    segments: u32,
    /// The newest segment, and how many of its bytes have been cut.
    newest: Option<(Arc<Segment>, usize)>,
    /// Free blocks by class: those with pages, and those whose pages went back to the system.
    warm: [Vec<BlockLocation>; CLASSES],
    cold: [Vec<BlockLocation>; CLASSES],
    warm_bytes: usize,
    /// Lenders of all links. They reclaim returned loans before the arena grows.
    lendings: Vec<Arc<Lending>>,
}

/// A piece of shared memory.
pub(crate) struct Segment {
    /// Unique in this process.
    pub(crate) id: u32,
    /// The descriptor from which a peer maps it.
    pub(crate) fd: OwnedFd,
    memory: Memory,
}

/// The position of a block in its segment.
struct BlockLocation {
    segment: Arc<Segment>,
    offset: usize,
}

/// A block of the arena in use. Dropping it returns it to the arena.
pub(crate) struct Block {
    location: Option<BlockLocation>,
    class: usize,
    len: usize,
}

static ARENA: LazyLock<Arena> = LazyLock::new(|| Arena {
    state: Mutex::new(State {
        segments: 0,
        newest: None,
        warm: [const { Vec::new() }; CLASSES],
        cold: [const { Vec::new() }; CLASSES],
        warm_bytes: 0,
        lendings: Vec::new(),
    }),
});

impl Arena {
    pub(crate) fn get() -> &'static Self {
        &ARENA
    }

    /// A block of `len` bytes with arbitrary content.
    pub(crate) fn block(&self, len: usize) -> io::Result<Block> {
        let class = class_of_size(BASE, len);
        if class >= CLASSES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let warm = self.take_warm(class).or_else(|| {
            self.collect();
            self.take_warm(class)
        });
        let location = match warm {
            Some(location) => location,
            None => self.cut_block(class)?,
        };
        Ok(Block {
            location: Some(location),
            class,
            len,
        })
    }

    fn take_warm(&self, class: usize) -> Option<BlockLocation> {
        let mut state = self.state.lock();
        let location = state.warm[class].pop()?;
        state.warm_bytes -= size_of_class(BASE, class);
        Some(location)
    }

    /// Takes a block without pages, or cuts a new one, and maps its pages.
    fn cut_block(&self, class: usize) -> io::Result<BlockLocation> {
        let size = size_of_class(BASE, class);
        let mut state = self.state.lock();
        let location = match state.cold[class].pop() {
            Some(location) => location,
            None => {
                let fits = |(segment, used): &(Arc<Segment>, usize)| used + size <= segment.memory.len();
                if !state.newest.as_ref().is_some_and(fits) {
                    let (fd, memory) = Memory::create(size.max(SEGMENT))?;
                    let id = state.segments;
                    state.segments += 1;
                    state.newest = Some((Arc::new(Segment { id, fd, memory }), 0));
                }
                let (segment, used) = state.newest.as_mut().ok_or(io::ErrorKind::OutOfMemory)?;
                let offset = *used;
                *used += size;
                BlockLocation {
                    segment: segment.clone(),
                    offset,
                }
            }
        };
        drop(state);
        // All pages at once: quicker than one at a time, and reports when there is no memory.
        match location.segment.memory.populate(location.start(size), size) {
            // Not supported by old kernels; then each page comes when it is touched.
            Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(location),
            Err(error) => {
                self.state.lock().cold[class].push(location);
                Err(error.into())
            }
        }
    }

    fn free(&self, location: BlockLocation, class: usize) {
        let size = size_of_class(BASE, class);
        let mut state = self.state.lock();
        if state.warm_bytes + size <= KEEP {
            state.warm_bytes += size;
            state.warm[class].push(location);
            return;
        }
        drop(state);
        // Returns the pages to the system and keeps the location. After a failure it is still free memory.
        // SAFETY: the range is that of a free block, in use neither here nor in another process.
        let _ = unsafe { madvise(location.start(size).as_ptr().cast(), size, Advice::LinuxRemove) };
        self.state.lock().cold[class].push(location);
    }

    /// Registers a lender whose returned loans the arena reclaims.
    pub(crate) fn register(&self, lending: Arc<Lending>) {
        self.state.lock().lendings.push(lending);
    }

    /// Reclaims returned loans, and removes closed lenders without loans.
    pub(crate) fn collect(&self) {
        let lendings = self.state.lock().lendings.clone();
        // Reclaimed blocks come back to the arena, so its lock is not held.
        let closed: Vec<_> = lendings.into_iter().filter(|lending| lending.collect()).collect();
        if !closed.is_empty() {
            let mut state = self.state.lock();
            state
                .lendings
                .retain(|lending| !closed.iter().any(|other| Arc::ptr_eq(other, lending)));
        }
    }
}

impl BlockLocation {
    fn start(&self, size: usize) -> NonNull<u8> {
        // Always inside its segment.
        self.segment
            .memory
            .at(self.offset, size)
            .unwrap_or(NonNull::dangling())
    }
}

impl Block {
    /// The block's segment, and its offset there.
    pub(crate) fn location(&self) -> Option<(&Arc<Segment>, usize)> {
        self.location
            .as_ref()
            .map(|location| (&location.segment, location.offset))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let start = self.start();
        // SAFETY: the block has at least `len` bytes, all initialised, because its memory was zero at first.
        // A `&Block` is never written through, nor does any borrower of the block write to it.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.start();
        // SAFETY: as in `bytes`; this is the only reference to the block, which is not lent yet.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.len) }
    }

    fn start(&self) -> NonNull<u8> {
        let location = self.location.as_ref();
        // Present until drop.
        location.map_or(NonNull::dangling(), |location| location.start(self.len))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(location) = self.location.take() {
            Arena::get().free(location, self.class);
        }
    }
}

/// Makes a tensor in memory that can be shared with workers on this host.
///
/// Sending it to one of them copies nothing, however often and to however many. `fill` writes its bytes, which
/// are arbitrary at first.
///
/// A function that takes a [`RawTensor`] gets these bytes themselves. A function that takes a library's tensor
/// gets them without a copy if the sender holds no other handle to the tensor, as with a returned one.
///
/// ```
/// use telegrad_net::shared_tensor;
/// use telegrad_wire::{DType, TensorMeta};
///
/// let meta = TensorMeta { dtype: DType::F32, shape: vec![256, 1024] };
/// let zeros = shared_tensor(meta, |bytes| bytes.fill(0))?;
/// assert_eq!(zeros.bytes().len(), 4 * 256 * 1024);
/// # Ok::<(), telegrad_wire::WireError>(())
/// ```
///
/// # Errors
/// When the shape is too large for the machine, or shared memory cannot be allocated.
pub fn shared_tensor(meta: TensorMeta, fill: impl FnOnce(&mut [u8])) -> Result<RawTensor, WireError> {
    let unusable = |why: String| WireError::Unsendable { why };
    let bytes = meta
        .bytes()
        .ok_or_else(|| unusable("its byte length does not fit the machine".into()))?;
    let mut block = Arena::get()
        .block(bytes)
        .map_err(|error| unusable(format!("shared memory cannot be allocated: {error}")))?;
    fill(block.bytes_mut());
    let dtype = meta.dtype;
    RawTensor::new(
        meta,
        Buffer::from_external(dtype, Box::new(ArenaTensor(Arc::new(block)))),
    )
}

/// Whether a tensor lies in the arena, so that lending it copies nothing.
pub(crate) fn is_shared(tensor: &dyn TensorSource) -> bool {
    tensor
        .external()
        .is_some_and(|(memory, _)| memory.as_any().is::<ArenaTensor>())
}

/// The memory of a tensor of this process, in a block of the arena.
pub(crate) struct ArenaTensor(pub(crate) Arc<Block>);

// SAFETY: a shared block is not written to any more, here or by its borrowers: a borrower may write only to a
// block that it alone holds. Blocks are aligned to pages. It never becomes part of the heap.
unsafe impl ExternalMemory for ArenaTensor {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn into_heap(self: Box<Self>) -> Result<NonNull<u8>, Box<dyn ExternalMemory>> {
        Err(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
