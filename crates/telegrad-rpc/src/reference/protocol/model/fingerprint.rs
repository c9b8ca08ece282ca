//! Fingerprints of worlds: equal states have equal fingerprints, independent of history and map order.

use std::hash::{Hash, Hasher};

use super::ProtocolState;
use super::world::World;

impl World {
    pub(super) fn fingerprint(&self) -> u64 {
        let mut fingerprint = Fingerprint::default();
        for worker in &self.workers {
            protocol(&worker.protocol).hash(&mut fingerprint);
            (&worker.due, &worker.connections, &worker.ended).hash(&mut fingerprint);
            (&worker.sent, &worker.received).hash(&mut fingerprint);
        }
        unordered(&self.in_flight).hash(&mut fingerprint);
        (&self.oracle, &self.left).hash(&mut fingerprint);
        fingerprint.finish()
    }
}

fn protocol(protocol: &ProtocolState) -> u64 {
    let owned = protocol.owned.iter();
    hash_one((
        protocol.next,
        unordered(owned.map(|(reference, owned)| (reference, owned.creation, unordered(&owned.forks)))),
        unordered(&protocol.held),
        unordered(&protocol.transfers),
        unordered(&protocol.refused),
        unordered(&protocol.accepting),
        unordered(&protocol.channels),
        unordered(&protocol.lost_workers),
    ))
}

fn hash_one(value: impl Hash) -> u64 {
    let mut fingerprint = Fingerprint::default();
    value.hash(&mut fingerprint);
    fingerprint.finish()
}

fn unordered(values: impl IntoIterator<Item = impl Hash>) -> u64 {
    values.into_iter().map(hash_one).fold(0, u64::wrapping_add)
}

/// Mixes all bits of each word (splitmix64): a collision among a million states has a probability of one in ten million.
#[derive(Default)]
struct Fingerprint(u64);

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = super::random::mix(self.0 ^ word);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
