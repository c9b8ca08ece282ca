//! Large messages that have been announced and not yet received.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use telegrad_wire::{FrameHeader, HEADER_LEN};

use super::MIN_CHUNK;
use super::assembly::{Assembly, ChunkWriter};
use crate::message::Incoming;

/// Most announced messages. Far more than fit between the writer and the reader of a lane: only a peer that announces
/// without sending exceeds this, and loses its link.
const MAX_OPEN: usize = 4096;

/// Large messages that arrive over the bulk lanes of a link.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// A message was announced, or the link has closed.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    open: FxHashMap<u64, Arc<Assembly>>,
    /// Number of the last announced message, counted from 1.
    announced: u64,
    is_closed: bool,
}

/// The destination of a chunk.
pub(crate) enum ChunkRoute {
    Ready(ChunkWriter),
    /// Its descriptor has not arrived yet.
    Unannounced,
    /// The link has ended.
    Closed,
}

impl Inbox {
    /// Registers an announced message; returns its number of chunks.
    pub(crate) fn describe(&self, descriptor: &Incoming<'_>, max_message: u64) -> Result<u64, String> {
        let (number, chunk) = (descriptor.header.call.0, descriptor.header.context);
        let Some((header, rest)) = descriptor.body.split_first_chunk::<HEADER_LEN>() else {
            return Err("a descriptor has no header".into());
        };
        let header = FrameHeader::from_bytes(header, max_message).map_err(|error| error.to_string())?;
        // No overflow: `from_bytes` compared the sum with the length.
        let (body, table) = (header.body_len as usize, header.table_len as usize);
        if rest.len() != body + table {
            return Err(format!(
                "a descriptor has {} bytes, its header announces {}",
                rest.len(),
                body + table
            ));
        }
        if chunk < MIN_CHUNK {
            return Err(format!(
                "chunks of {chunk} bytes, below the minimum of {MIN_CHUNK}"
            ));
        }
        let (body, table) = rest.split_at(body);
        let assembly =
            Assembly::new(header, body.to_vec(), table, chunk).map_err(|error| error.to_string())?;
        let chunks = assembly.chunks();
        if chunks == 0 {
            return Err("a descriptor announces a message without data".into());
        }
        let mut state = self.state.lock();
        if number != state.announced + 1 {
            return Err(format!(
                "message {number} is announced after message {}",
                state.announced
            ));
        }
        if state.open.len() >= MAX_OPEN {
            return Err(format!("more than {MAX_OPEN} messages are announced and unsent"));
        }
        if !state.is_closed {
            state.announced = number;
            state.open.insert(number, Arc::new(assembly));
            self.changed.notify_all();
        }
        Ok(chunks)
    }

    /// Claims a chunk of `len` bytes.
    pub(crate) fn claim(&self, number: u64, index: u64, len: u64) -> Result<ChunkRoute, String> {
        let assembly = {
            let state = self.state.lock();
            match state.open.get(&number) {
                Some(assembly) => assembly.clone(),
                None if state.is_closed => return Ok(ChunkRoute::Closed),
                None if number > state.announced && number - state.announced <= MAX_OPEN as u64 => {
                    return Ok(ChunkRoute::Unannounced);
                }
                None => {
                    return Err(format!(
                        "a chunk belongs to message {number}, which is not announced"
                    ));
                }
            }
        };
        assembly.claim(index, len).map(ChunkRoute::Ready)
    }

    /// Waits until a message has been announced, or until `until`.
    pub(crate) fn wait_for(&self, number: u64, until: Instant) {
        let mut state = self.state.lock();
        while number > state.announced && !state.is_closed {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }

    /// Removes a complete message.
    pub(crate) fn completed(&self, number: u64) {
        self.state.lock().open.remove(&number);
    }

    /// Drops incomplete messages.
    pub(crate) fn close(&self) {
        let open = {
            let mut state = self.state.lock();
            state.is_closed = true;
            std::mem::take(&mut state.open)
        };
        self.changed.notify_all();
        drop(open);
    }
}
