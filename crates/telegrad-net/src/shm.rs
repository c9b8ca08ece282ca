//! Memory that two workers on one host share.
//!
//! A link between them has a [`Region`]: a ring for small frames in each direction, so that a call costs no
//! system call while both sides are at it, and a table in which lent memory is given back. The bytes of
//! large tensors lie in the [`arena`](Arena) of the sender, which the receiver maps once: it is lent the
//! block that a tensor was copied into and keeps it for as long as it keeps the tensor. Tensors too large for that are
//! copied through a few such blocks, chunk by chunk.
//!
//! All of it is anonymous memory whose descriptors are passed over the link's Unix socket. Nothing has a
//! name, so nothing is left when a process is killed.

mod memory;
mod ring;
mod region;
mod arena;
mod lending;
mod adopted;
#[cfg(test)]
mod tests;

pub(crate) use adopted::{is_adopted, release_adopted};
pub use arena::shared_tensor;
pub(crate) use arena::{KEEP, is_shared};
pub(crate) use lending::{Borrowed, LOAN_LEN, Lending, Loan, Segments};
pub(crate) use memory::{Memory, MemoryOffer};
pub(crate) use region::{Region, RegionEnd, RegionLease, RegionRing};
pub(crate) use ring::{CorruptRing, ReadReadiness, RingReader, RingWriter, WriteReadiness};
