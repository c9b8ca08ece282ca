//! Large messages that have been announced and not yet arrived.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use telegrad_wire::{FrameHeader, HEADER_LEN};

use super::MIN_CHUNK;
use super::assembly::{Assembly, ChunkWriter};
use crate::message::Incoming;

/// Messages that may be announced at a time. Far more than what fits between the writer and the reader of a
/// lane: all that a peer reaches that announces without end is that its link ends.
const MAX_OPEN: usize = 4096;

/// What comes in over the bulk lanes of a link.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// A message was announced, or all is over.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    open: FxHashMap<u64, Arc<Assembly>>,
    /// The number of the message announced last; they are counted from 1.
    announced: u64,
    is_closed: bool,
}

/// What becomes of a chunk.
pub(crate) enum ChunkRoute {
    Ready(ChunkWriter),
    /// Its descriptor is still on its way.
    Unannounced,
    /// The link has ended.
    Closed,
}

impl Inbox {
    /// A message is announced; how many chunks it has.
    pub(crate) fn describe(&self, descriptor: &Incoming<'_>, max_message: u64) -> Result<u64, String> {
        let (number, chunk) = (descriptor.header.call.0, descriptor.header.context);
        let Some((header, rest)) = descriptor.body.split_first_chunk::<HEADER_LEN>() else {
            return Err("a descriptor without a header".into());
        };
        let header = FrameHeader::from_bytes(header, max_message).map_err(|error| error.to_string())?;
        // No overflow: `from_bytes` has compared the sum with the length.
        let (body, table) = (header.body_len as usize, header.table_len as usize);
        if rest.len() != body + table {
            return Err(format!(
                "a descriptor of {} bytes for {}",
                rest.len(),
                body + table
            ));
        }
        if chunk < MIN_CHUNK {
            return Err(format!("chunks of {chunk} bytes, the least is {MIN_CHUNK}"));
        }
        let (body, table) = rest.split_at(body);
        let assembly =
            Assembly::new(header, body.to_vec(), table, chunk).map_err(|error| error.to_string())?;
        let chunks = assembly.chunks();
        if chunks == 0 {
            return Err("a descriptor of a message without data".into());
        }
        let mut state = self.state.lock();
        if number != state.announced + 1 {
            return Err(format!("message {number} is announced after {}", state.announced));
        }
        if state.open.len() >= MAX_OPEN {
            return Err(format!("more than {MAX_OPEN} messages announced and not sent"));
        }
        if !state.is_closed {
            state.announced = number;
            state.open.insert(number, Arc::new(assembly));
            self.changed.notify_all();
        }
        Ok(chunks)
    }

    /// The place of a chunk of `len` bytes.
    pub(crate) fn claim(&self, number: u64, index: u64, len: u64) -> Result<ChunkRoute, String> {
        let assembly = {
            let state = self.state.lock();
            match state.open.get(&number) {
                Some(assembly) => assembly.clone(),
                None if state.is_closed => return Ok(ChunkRoute::Closed),
                None if number > state.announced && number - state.announced <= MAX_OPEN as u64 => {
                    return Ok(ChunkRoute::Unannounced);
                }
                None => return Err(format!("a chunk of message {number}, which is not under way")),
            }
        };
        assembly.claim(index, len).map(ChunkRoute::Ready)
    }

    /// Waits until a message has been announced, until `until` at most.
    pub(crate) fn wait_for(&self, number: u64, until: Instant) {
        let mut state = self.state.lock();
        while number > state.announced && !state.is_closed {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }

    /// A message is complete.
    pub(crate) fn completed(&self, number: u64) {
        self.state.lock().open.remove(&number);
    }

    /// Forgets what has not arrived.
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
