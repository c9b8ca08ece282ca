//! The link between two workers of one process, which delivers by a function call.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use telegrad_wire::{HEADER_LEN, RawTensor, WireError};

use crate::credit::{CreditReturn, Window, cost, costs_credit};
use crate::message::{Sealed, check_length};
use crate::{
    Closed, Credit, Flush, Identity, Incoming, Link, LinkOptions, Outgoing, SendError, Sink, Spin, Waiting,
};

/// One end of an in-memory link.
pub(crate) struct MemLink {
    me: Weak<MemLink>,
    peer: Identity,
    /// Takes messages that arrive at this end.
    sink: Arc<dyn Sink>,
    /// The other end, set once both have been made.
    other: OnceLock<Weak<MemLink>>,
    /// Credit for requests of this end.
    window: Window,
    options: LinkOptions,
    /// Learns from the waits at this end.
    spin: Mutex<Spin>,
    closed: OnceLock<Closed>,
}

impl MemLink {
    /// Makes both ends of a link, each with the identity of its peer and the sink of its side.
    pub(crate) fn pair(
        (peer_a, sink_a, options_a): (Identity, Arc<dyn Sink>, LinkOptions),
        (peer_b, sink_b, options_b): (Identity, Arc<dyn Sink>, LinkOptions),
    ) -> (Arc<Self>, Arc<Self>) {
        let end = |peer, sink, options: LinkOptions| {
            Arc::new_cyclic(|me| Self {
                me: me.clone(),
                peer,
                sink,
                other: OnceLock::new(),
                window: Window::new(options.window),
                spin: Mutex::new(Spin::new(options.spin)),
                options,
                closed: OnceLock::new(),
            })
        };
        let a = end(peer_a, sink_a, options_a);
        let b = end(peer_b, sink_b, options_b);
        // Both are new, so neither has another end yet.
        let _ = a.other.set(Arc::downgrade(&b));
        let _ = b.other.set(Arc::downgrade(&a));
        (a, b)
    }

    fn other(&self) -> Option<Arc<Self>> {
        self.other.get()?.upgrade()
    }

    /// Delivers a message at this end.
    fn arrive(self: Arc<Self>, from: &Arc<Self>, sealed: Sealed, cost: u32) -> Result<(), SendError> {
        let Sealed {
            header,
            body,
            tensors,
            ..
        } = sealed;
        let credit = if cost > 0 {
            Credit::new(from.clone(), cost)
        } else {
            Credit::none()
        };
        // Copied as on any other link: the receiver's tensors are its own.
        let copies = tensors.iter().map(|tensor| RawTensor::copy_of(&**tensor));
        let (raw, lacking) = match copies.collect() {
            Ok(raw) => (raw, 0),
            Err(WireError::NoMemory { .. }) => {
                let parts = u64::from(header.body_len) + u64::from(header.table_len);
                (Vec::new(), header.length - parts)
            }
            Err(error) => return Err(error.into()),
        };
        self.options.traffic.received(header.length + HEADER_LEN as u64);
        let link: Arc<dyn Link> = self.clone();
        self.sink.receive(
            &link,
            Incoming {
                header,
                body: Cow::Owned(body),
                tensors: raw,
                lacking,
                credit,
                more: false,
            },
        );
        Ok(())
    }

    fn end(&self, closed: Closed) {
        if self.closed.set(closed.clone()).is_ok() {
            self.window.notify();
            self.sink.closed(&closed);
        }
    }
}

impl Link for MemLink {
    fn peer(&self) -> &Identity {
        &self.peer
    }

    fn send(&self, message: Outgoing, _: Flush, _: Option<Instant>) -> Result<(), SendError> {
        if let Some(closed) = self.closed.get() {
            return Err(SendError::Closed(closed.clone()));
        }
        let sealed = message.seal()?;
        let length = sealed.header.length;
        check_length(length, self.options.max_message)?;
        let cost = if costs_credit(&sealed.header) {
            cost(length, self.options.window)
        } else {
            0
        };
        if cost > 0 && !self.window.try_take(cost) {
            return Err(SendError::Full(Box::new(sealed.unseal())));
        }
        let (Some(me), Some(other)) = (self.me.upgrade(), self.other()) else {
            let closed = Closed {
                graceful: false,
                why: "the other worker dropped the link".into(),
            };
            self.end(closed.clone());
            return Err(SendError::Closed(closed));
        };
        self.options.traffic.sent(length + HEADER_LEN as u64);
        other.arrive(&me, sealed, cost)
    }

    fn flush(&self) {}

    fn wait_for_credit(&self, deadline: Option<Instant>) -> Result<bool, Closed> {
        let ready = || self.window.is_open() || self.closed.get().is_some();
        let in_time = self.window.wait(ready, deadline);
        self.closed().map_or(Ok(in_time), Err)
    }

    fn wait(&self, waiting: &dyn Waiting, deadline: Option<Instant>) {
        let done = || waiting.done().then_some(());
        // One thread polls; several would take the processor from the thread that answers.
        let spin = self.spin.try_lock();
        if done().is_none() && spin.is_none_or(|mut spin| spin.poll_until(deadline, done).is_none()) {
            waiting.park(deadline);
        }
    }

    fn poll(&self) {}

    fn interrupt(&self) {}

    fn watch(&self, _: bool) {}

    fn close(&self, why: &str) {
        self.end(Closed {
            graceful: true,
            why: why.into(),
        });
        if let Some(other) = self.other() {
            other.end(Closed {
                graceful: true,
                why: why.into(),
            });
        }
    }

    fn closed(&self) -> Option<Closed> {
        self.closed.get().cloned()
    }
}

impl CreditReturn for MemLink {
    fn return_credit(&self, units: u32) {
        self.window.release(units);
    }
}

impl Drop for MemLink {
    fn drop(&mut self) {
        self.end(Closed {
            graceful: true,
            why: "the link was dropped".into(),
        });
        if let Some(other) = self.other() {
            other.end(Closed {
                graceful: false,
                why: "the other worker dropped the link".into(),
            });
        }
    }
}
