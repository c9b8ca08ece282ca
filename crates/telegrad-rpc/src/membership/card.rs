//! Cards: the entries of members at the rendezvous.

use telegrad_net::{Address, Identity};
use telegrad_wire::Wire;

use crate::types::WorkerInfo;

/// The entry of a member at the rendezvous: its identity and addresses.
#[derive(Clone, Debug, Wire)]
pub(crate) struct Card {
    pub(crate) identity: Identity,
    /// The id of the world, assigned by rank 0; 0 on the cards of the others.
    pub(crate) world: u64,
    /// The addresses that the member listens on.
    pub(crate) addresses: Vec<Address>,
    /// The host that the member runs on.
    pub(crate) host: String,
    /// The process that the member runs in.
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
