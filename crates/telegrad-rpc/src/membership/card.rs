//! Cards of members.

use telegrad_net::{Address, Identity};
use telegrad_wire::Wire;

use crate::types::WorkerInfo;

/// The entry of a member: its identity and addresses, left at the rendezvous for the others.
#[derive(Clone, Debug, Wire)]
pub(crate) struct Card {
    pub(crate) identity: Identity,
    /// The world, as rank 0 has named it; 0 on the cards of the others.
    pub(crate) world: u64,
    /// The addresses that it listens on.
    pub(crate) addresses: Vec<Address>,
    /// The host that it runs on.
    pub(crate) host: String,
    /// The process that it runs in.
    pub(crate) process: u32,
}

impl Card {
    pub(crate) fn info(&self) -> WorkerInfo {
        WorkerInfo {
            name: self.identity.name.clone(),
            rank: self.identity.rank,
        }
    }
}
