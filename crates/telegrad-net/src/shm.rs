//! Shared memory between two workers on one host.
//!
//! The link between them has a [`Region`] with a ring for small frames and a loan table in each direction. A
//! call costs no system call while both sides poll. The bytes of large tensors lie in the [`arena`] of
//! the sender, which the receiver maps once. The sender copies a tensor into a block and lends the block; the
//! receiver keeps the loan for as long as it keeps the tensor. Tensors too large for that are copied through a
//! few such blocks, chunk by chunk.
//!
//! All of it is anonymous memory, whose descriptors pass over the link's Unix socket. It has no name, so a
//! killed process leaves nothing behind.

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
