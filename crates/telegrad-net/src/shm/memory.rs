//! Anonymous memory that can be passed to another process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// A mapping of memory that other processes may map too.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a `Memory` is only an address range; its users follow the rules of threads and of the other process
// when they access it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes `len` bytes of zeros, and the descriptor from which other processes map them. The length is sealed:
    /// no process can truncate the memory under the others.
    pub(crate) fn create(len: usize) -> io::Result<(OwnedFd, Self)> {
        let fd = memfd_create("telegrad", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, len as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let memory = Self::map(&fd, len)?;
        Ok((fd, memory))
    }

    /// Maps memory of another process.
    pub(crate) fn open(fd: OwnedFd) -> io::Result<Self> {
        MemoryOffer::check(fd)?.map()
    }

    fn map(fd: impl AsFd, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice affects nothing else.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// The address of `len` bytes at `offset`, if they are inside the mapping.
    pub(crate) fn at(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        // SAFETY: `offset` is within the mapping, which is one allocation.
        (end <= self.len).then(|| unsafe { self.start.add(offset) })
    }

    /// Maps the pages of a range, all at once. The range comes from [`at`](Self::at).
    pub(crate) fn populate(&self, start: NonNull<u8>, len: usize) -> rustix::io::Result<()> {
        // SAFETY: the range is inside the mapping, whose content this does not change.
        unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxPopulateWrite) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Memory that another process offers for mapping.
pub(crate) struct MemoryOffer {
    fd: OwnedFd,
    len: usize,
}

impl MemoryOffer {
    /// Checks that the memory cannot shrink.
    pub(crate) fn check(fd: OwnedFd) -> io::Result<Self> {
        if !fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::other(
                "the offered shared memory is not sealed against shrinking",
            ));
        }
        let len = usize::try_from(fstat(&fd)?.st_size).unwrap_or(0);
        Ok(Self { fd, len })
    }

    pub(crate) fn map(&self) -> io::Result<Memory> {
        Memory::map(&self.fd, self.len)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping made by `map`, and its users hold the `Memory`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
