//! Memory of one process that another one reads.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use telegrad_wire::{Buffer, DType, ExternalMemory, TensorSource};

use super::arena::{Arena, ArenaTensor, Block};
use super::region::{CHUNKS_LENT, LOANS, MAX_LENT};
use super::{Memory, MemoryOffer, Region, RegionLease, adopted};
use crate::message::LoanError;

/// A lent tensor or chunk, as a frame describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loan {
    /// Index of the tensor in its message.
    pub(crate) tensor: u16,
    /// The sender keeps no handle, so the borrower may write to the memory.
    pub(crate) is_exclusive: bool,
    /// Number of the loan, under which it is returned.
    number: u32,
    /// Number of its segment among those passed over the link, and the offset there.
    segment: u32,
    offset: u64,
}

/// Length of a [`Loan`] in a frame.
pub(crate) const LOAN_LEN: usize = 20;

impl Loan {
    pub(crate) fn to_bytes(self) -> [u8; LOAN_LEN] {
        let mut bytes = [0; LOAN_LEN];
        bytes[0..2].copy_from_slice(&self.tensor.to_le_bytes());
        bytes[2] = self.is_exclusive.into();
        bytes[4..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.segment.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; LOAN_LEN]) -> Self {
        let u32_at = |i: usize| u32::from_le_bytes(std::array::from_fn(|k| bytes[i + k]));
        Self {
            tensor: u16::from_le_bytes([bytes[0], bytes[1]]),
            is_exclusive: bytes[2] != 0,
            number: u32_at(4),
            segment: u32_at(8),
            offset: u64::from_le_bytes(std::array::from_fn(|k| bytes[12 + k])),
        }
    }

    /// Returns the loan unused.
    pub(crate) fn decline(&self, lease: &RegionLease) {
        if (self.number as usize) < LOANS {
            lease.borrowed(0);
            lease.return_loan(self.number as usize, 0);
        }
    }
}

/// The loans of one end of a link to the other.
pub(crate) struct Lending {
    region: Arc<Region>,
    table: Mutex<LoanTable>,
}

#[derive(Default)]
struct LoanTable {
    /// Lent blocks by number. It never shrinks.
    lent: Vec<Option<LentBlock>>,
    /// Bytes of lent tensors.
    bytes: usize,
    /// Bytes of the blocks of lent chunks.
    chunk_bytes: usize,
    /// Blocks of returned chunks, for the next ones: warm, and never more than may be lent.
    spare: Vec<Arc<Block>>,
    free: Vec<u32>,
    /// Returned loans at the last scan.
    returned: u32,
    /// Numbers of the segments that the other end has, by their id.
    segments: FxHashMap<u32, u32>,
    /// The link has ended, and lends nothing any more.
    is_closed: bool,
}

/// A lent block.
struct LentBlock {
    block: Arc<Block>,
    /// A chunk of a longer message, returned once the receiver has copy_to_block it.
    is_chunk: bool,
}

impl Lending {
    pub(crate) fn new(region: Arc<Region>) -> Arc<Self> {
        let lending = Arc::new(Self {
            region,
            table: Mutex::default(),
        });
        Arena::get().register(lending.clone());
        lending
    }

    /// Lends a tensor, copying it into the arena unless it is there already. `pass` passes a descriptor to the
    /// other end. Returns `None` when lending is impossible now; the tensor is then sent by other means.
    pub(crate) fn lend(
        &self,
        (index, tensor): (u16, &dyn TensorSource),
        pass: impl FnOnce(BorrowedFd<'_>) -> bool,
    ) -> Option<Loan> {
        let in_arena = tensor
            .external()
            .and_then(|(memory, is_only)| Some((memory.as_any().downcast_ref::<ArenaTensor>()?, is_only)));
        let (block, is_exclusive) = match in_arena {
            Some((ArenaTensor(block), is_only)) => {
                let is_exclusive = is_only && Arc::strong_count(block) == 1;
                (block.clone(), is_exclusive)
            }
            None => (Arc::new(copy_to_block(tensor).ok()?), true),
        };
        let mut table = self.table.lock();
        table.reclaim(&self.region);
        if table.bytes + block.bytes().len() > MAX_LENT {
            return None;
        }
        let lent = LentBlock {
            block,
            is_chunk: false,
        };
        let loan = table.insert(lent, pass)?;
        Some(Loan {
            tensor: index,
            is_exclusive,
            ..loan
        })
    }

    /// Whether this many tensors, of this many bytes, can be lent now. Checked before any is copy_to_block.
    pub(crate) fn can_lend(&self, tensors: usize, bytes: usize) -> bool {
        let mut table = self.table.lock();
        table.reclaim(&self.region);
        let loans = table.free.len() + LOANS - table.lent.len();
        !table.is_closed && tensors <= loans && bytes <= MAX_LENT - table.bytes.min(MAX_LENT)
    }

    /// Lends a chunk of a longer message, whose bytes `fill` writes; `false` from it cancels. Returns `None` while
    /// enough chunks are lent, or without shared memory. The chunk then takes the socket, whose reader sets the pace.
    pub(crate) fn lend_chunk(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> bool,
        pass: impl FnOnce(BorrowedFd<'_>) -> bool,
    ) -> Option<Loan> {
        let spare = {
            let mut table = self.table.lock();
            table.reclaim(&self.region);
            if table.chunk_bytes + len > CHUNKS_LENT {
                return None;
            }
            table.spare.pop().filter(|block| block.bytes().len() >= len)
        };
        let mut block = match spare {
            Some(block) => block,
            None => Arc::new(Arena::get().block(len).ok()?),
        };
        if !fill(&mut Arc::get_mut(&mut block)?.bytes_mut()[..len]) {
            return None;
        }
        let lent = LentBlock {
            block,
            is_chunk: true,
        };
        self.table.lock().insert(lent, pass)
    }

    /// Takes back a loan that was never sent.
    pub(crate) fn revoke(&self, loan: Loan) {
        let mut table = self.table.lock();
        table.clear(loan.number as usize);
    }

    /// Closes the table at the end of the link. Lent blocks stay lent: the other end may still read them.
    pub(crate) fn end(&self) {
        {
            let mut table = self.table.lock();
            table.is_closed = true;
            table.spare.clear();
        }
        Arena::get().collect();
    }

    /// Reclaims returned loans; true when the link has ended and nothing is lent.
    pub(crate) fn collect(&self) -> bool {
        let mut table = self.table.lock();
        if table.is_closed && self.region.is_abandoned() {
            table.lent.clear();
            return true;
        }
        table.reclaim(&self.region);
        table.is_closed && table.lent.iter().all(Option::is_none)
    }
}

impl LoanTable {
    /// Gives a block a number, and passes its segment if it is new. The loan belongs to no tensor yet.
    fn insert(&mut self, lent: LentBlock, pass: impl FnOnce(BorrowedFd<'_>) -> bool) -> Option<Loan> {
        if self.is_closed {
            return None;
        }
        let (segment, offset) = lent.block.location()?;
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.lent.len() < LOANS => {
                self.lent.push(None);
                self.lent.len() as u32 - 1
            }
            None => return None,
        };
        let next = self.segments.len() as u32;
        let known = match self.segments.get(&segment.id) {
            Some(known) => *known,
            None if pass(segment.fd.as_fd()) => {
                self.segments.insert(segment.id, next);
                next
            }
            None => {
                self.free.push(number);
                return None;
            }
        };
        let len = lent.block.bytes().len();
        if lent.is_chunk {
            self.chunk_bytes += len;
        } else {
            self.bytes += len;
        }
        self.lent[number as usize] = Some(lent);
        Some(Loan {
            tensor: 0,
            is_exclusive: true,
            number,
            segment: known,
            offset: offset as u64,
        })
    }

    fn reclaim(&mut self, region: &Region) {
        let returned = region.returned();
        if returned == self.returned {
            return;
        }
        self.returned = returned;
        for number in 0..self.lent.len() {
            if self.lent[number].is_some() && region.reclaim(number) {
                self.clear(number);
            }
        }
    }

    fn clear(&mut self, number: usize) {
        let Some(LentBlock { block, is_chunk }) = self.lent[number].take() else {
            return;
        };
        self.free.push(number as u32);
        let len = block.bytes().len();
        if is_chunk {
            self.chunk_bytes -= len;
            self.spare.extend((!self.is_closed).then_some(block));
        } else {
            self.bytes -= len;
        }
    }
}

/// Copies a tensor into a block.
fn copy_to_block(tensor: &dyn TensorSource) -> io::Result<Block> {
    let len = tensor.byte_len().ok_or(io::ErrorKind::FileTooLarge)?;
    let mut block = Arena::get().block(len)?;
    let mut is_whole = false;
    tensor.with_bytes(&mut |bytes| {
        if bytes.len() == len {
            block.bytes_mut().copy_from_slice(bytes);
            is_whole = true;
        }
    });
    is_whole.then_some(block).ok_or(io::ErrorKind::InvalidData.into())
}

/// The segments of the other end, in the order of their arrival.
#[derive(Default)]
pub(crate) struct Segments(Vec<Arc<PeerSegment>>);

/// A segment of the other end.
struct PeerSegment {
    /// Mapped on arrival, or, without memory for that, on first use.
    memory: OnceLock<Memory>,
    /// The descriptor, until it is mapped.
    offer: Mutex<Option<MemoryOffer>>,
    /// Start addresses of blocks whose pages this process has mapped.
    populated: Mutex<FxHashSet<usize>>,
}

impl PeerSegment {
    /// Its memory; `None` if it cannot be mapped now.
    fn memory(&self) -> Option<&Memory> {
        if let Some(mapped) = self.memory.get() {
            return Some(mapped);
        }
        let mut offer = self.offer.lock();
        if let Some(offered) = &*offer {
            // Set only here, under the lock.
            let _ = self.memory.set(offered.map().ok()?);
            *offer = None;
        }
        self.memory.get()
    }

    /// Maps the pages of a block, which is quicker than one at a time on access.
    fn populate(&self, start: NonNull<u8>, len: usize) {
        if self.populated.lock().insert(start.addr().get()) {
            // After a failure each page comes when it is touched.
            let _ = self.memory().map(|memory| memory.populate(start, len));
        }
    }
}

impl Segments {
    pub(crate) fn add(&mut self, fd: OwnedFd) -> io::Result<()> {
        let segment = PeerSegment {
            memory: OnceLock::new(),
            offer: Mutex::new(Some(MemoryOffer::check(fd)?)),
            populated: Mutex::default(),
        };
        segment.memory();
        self.0.push(Arc::new(segment));
        Ok(())
    }

    pub(crate) fn knows(&self, loan: &Loan) -> bool {
        (loan.segment as usize) < self.0.len()
    }

    /// Checks a loan and returns its memory.
    pub(crate) fn borrow(
        &self,
        lease: &Arc<RegionLease>,
        loan: &Loan,
        len: usize,
    ) -> Result<Borrowed, LoanError> {
        let segment = self.0.get(loan.segment as usize).ok_or(LoanError::Invalid)?;
        let memory = segment.memory().ok_or(LoanError::NoMemory)?;
        let location = || {
            let offset = usize::try_from(loan.offset).ok()?;
            let is_valid = offset.is_multiple_of(adopted::PAGE) && (loan.number as usize) < LOANS;
            memory.at(offset, len).filter(|_| is_valid)
        };
        let start = location().ok_or(LoanError::Invalid)?;
        lease.borrowed(len);
        Ok(Borrowed {
            start,
            len,
            loan: loan.number as usize,
            is_exclusive: loan.is_exclusive,
            segment: segment.clone(),
            lease: lease.clone(),
        })
    }
}

/// Memory that the other end has lent. Dropping it returns the loan.
pub(crate) struct Borrowed {
    start: NonNull<u8>,
    len: usize,
    loan: usize,
    is_exclusive: bool,
    /// Keeps it mapped.
    segment: Arc<PeerSegment>,
    lease: Arc<RegionLease>,
}

// SAFETY: it is an address range in memory that `segment` keeps mapped, and that the lender does not write to
// until it is returned.
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}

impl Borrowed {
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.start
    }

    /// Makes a tensor's buffer: in place if it has at least `keep_from` bytes and few enough loans are kept, else a
    /// copy. `None` if there is no memory for the copy.
    pub(crate) fn into_buffer(self, dtype: DType, keep_from: usize) -> Option<Buffer> {
        if self.len >= keep_from && self.lease.may_keep() {
            Some(Buffer::from_external(dtype, Box::new(self)))
        } else {
            Buffer::try_copy_from(dtype, self.as_bytes())
        }
    }

    /// The bytes, with their pages mapped, for one read from start to end.
    pub(crate) fn populated(&self) -> &[u8] {
        self.segment.populate(self.start, self.len);
        self.as_bytes()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped and initialised, and not written to while it is borrowed: the lender keeps
        // the rules of lending, and this process would take the `Borrowed` apart first.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

// SAFETY: the memory stays in place and unchanged until it is returned, when this is dropped; it is aligned to
// pages. `into_heap` gives away only memory without another holder, and only if the global allocator is the one
// that can return it.
unsafe impl ExternalMemory for Borrowed {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    fn into_heap(self: Box<Self>) -> Result<NonNull<u8>, Box<dyn ExternalMemory>> {
        if self.is_exclusive && adopted::can_adopt() {
            self.segment.populate(self.start, self.len);
            Ok(adopted::adopt(*self))
        } else {
            Err(self)
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.lease.return_loan(self.loan, self.len);
    }
}
