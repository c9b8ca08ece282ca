//! Tells states apart: equal worlds have equal prints, whatever happened before and in whatever order
//! their maps are.

use std::hash::{Hash, Hasher};

use super::ProtocolState;
use super::world::World;

impl World {
    pub(super) fn print(&self) -> u64 {
        let mut print = Print::default();
        for worker in &self.workers {
            protocol(&worker.protocol).hash(&mut print);
            (&worker.due, &worker.over, &worker.ended).hash(&mut print);
            (&worker.sent, &worker.heard).hash(&mut print);
        }
        unordered(&self.flying).hash(&mut print);
        (&self.truth, &self.left).hash(&mut print);
        print.finish()
    }
}

fn protocol(protocol: &ProtocolState) -> u64 {
    let owned = protocol.owned.iter();
    one((
        protocol.next,
        unordered(owned.map(|(reference, owned)| (reference, owned.made, unordered(&owned.forks)))),
        unordered(&protocol.held),
        unordered(&protocol.given),
        unordered(&protocol.refused),
        unordered(&protocol.accepting),
        unordered(&protocol.channels),
        unordered(&protocol.dead),
    ))
}

fn one(value: impl Hash) -> u64 {
    let mut print = Print::default();
    value.hash(&mut print);
    print.finish()
}

fn unordered(values: impl IntoIterator<Item = impl Hash>) -> u64 {
    values.into_iter().map(one).fold(0, u64::wrapping_add)
}

/// Every word is mixed in thoroughly (splitmix64): among a million states no two share a print but by a
/// chance of one in ten million.
#[derive(Default)]
struct Print(u64);

impl Hasher for Print {
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
