//! Counters of the traffic over links.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes and frames in both directions, over all links that share this.
#[derive(Debug, Default)]
pub struct Traffic {
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    frames_in: AtomicU64,
    frames_out: AtomicU64,
}

impl Traffic {
    /// Bytes received, headers included.
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in.load(Relaxed)
    }

    /// Bytes sent, headers included.
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out.load(Relaxed)
    }

    /// Frames received.
    pub fn frames_in(&self) -> u64 {
        self.frames_in.load(Relaxed)
    }

    /// Frames sent.
    pub fn frames_out(&self) -> u64 {
        self.frames_out.load(Relaxed)
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.bytes_in.fetch_add(bytes, Relaxed);
        self.frames_in.fetch_add(1, Relaxed);
    }

    pub(crate) fn sent(&self, bytes: u64) {
        self.bytes_out.fetch_add(bytes, Relaxed);
        self.frames_out.fetch_add(1, Relaxed);
    }
}
