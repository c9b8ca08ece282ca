//! A sink that keeps messages.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::ThreadId;
use std::time::Instant;

use telegrad_net::{Closed, Credit, Flush, Incoming, Link, Sink, Waiting};
use telegrad_wire::{FrameHeader, FrameKind, RawTensor};

use super::{LIMIT, frame};

/// A received message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) header: FrameHeader,
    pub(crate) body: Vec<u8>,
    pub(crate) tensors: Vec<RawTensor>,
    /// The thread that received it.
    pub(crate) thread: ThreadId,
}

/// A test's reaction to a message, on the thread that received it.
pub(crate) type Reaction = Box<dyn Fn(&Arc<dyn Link>, &Incoming<'_>) + Send + Sync>;

/// A sink that keeps messages.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
    reaction: Option<Reaction>,
    /// Whether messages keep their credit until [`Inbox::let_go`].
    holds_credit: bool,
    /// Whether messages are dropped.
    forgets: bool,
}

#[derive(Default)]
struct State {
    messages: Vec<Message>,
    closed: Vec<Closed>,
    credits: Vec<Credit>,
}

impl Inbox {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn reacting(
        reaction: impl Fn(&Arc<dyn Link>, &Incoming<'_>) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            reaction: Some(Box::new(reaction)),
            ..Self::default()
        })
    }

    pub(crate) fn holding_credit() -> Arc<Self> {
        Arc::new(Self {
            holds_credit: true,
            ..Self::default()
        })
    }

    pub(crate) fn forgetting() -> Arc<Self> {
        Arc::new(Self {
            forgets: true,
            ..Self::default()
        })
    }

    /// Makes a sink that answers every request with its own body.
    pub(crate) fn echoing() -> Arc<Self> {
        Self::reacting(|link, message| {
            if message.header.kind == FrameKind::Request {
                let reply = frame(FrameKind::Reply, message.header.call.0, &message.body);
                let _ = link.send(reply, Flush::Later, None);
            }
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn wait(&self, what: &str, ready: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let (state, result) = self
            .changed
            .wait_timeout_while(self.state(), LIMIT / 2, |state| !ready(state))
            .unwrap();
        assert!(
            !result.timed_out(),
            "waited in vain for {what}: {} messages, closed {:?}",
            state.messages.len(),
            state.closed
        );
        state
    }

    /// Waits for `count` messages and takes all.
    pub(crate) fn take(&self, count: usize) -> Vec<Message> {
        let mut state = self.wait(&format!("{count} messages"), |state| {
            state.messages.len() >= count
        });
        std::mem::take(&mut state.messages)
    }

    /// Waits for the next message and takes it.
    pub(crate) fn next(&self) -> Message {
        self.wait("a message", |state| !state.messages.is_empty())
            .messages
            .remove(0)
    }

    /// Waits for the message of a call, and takes it.
    pub(crate) fn take_call(&self, call: u64) -> Message {
        let is_it = |message: &Message| message.header.call.0 == call;
        let mut state = self.wait("an answer", |state| state.messages.iter().any(is_it));
        let at = state.messages.iter().position(is_it).unwrap();
        state.messages.remove(at)
    }

    /// Number of messages.
    pub(crate) fn len(&self) -> usize {
        self.state().messages.len()
    }

    /// Waits until the link has ended.
    pub(crate) fn closed(&self) -> Closed {
        self.wait("the end", |state| !state.closed.is_empty()).closed[0].clone()
    }

    /// Number of reported ends.
    pub(crate) fn closings(&self) -> usize {
        self.state().closed.len()
    }

    /// Number of held credits.
    pub(crate) fn held(&self) -> usize {
        self.state().credits.len()
    }

    /// Returns `count` of the held credits.
    pub(crate) fn let_go(&self, count: usize) {
        let credits: Vec<_> = self.state().credits.drain(..count).collect();
        drop(credits);
    }
}

impl Sink for Inbox {
    fn receive(&self, link: &Arc<dyn Link>, message: Incoming<'_>) {
        if self.forgets {
            return;
        }
        if let Some(reaction) = &self.reaction {
            reaction(link, &message);
        }
        let Incoming {
            header,
            body,
            tensors,
            credit,
            ..
        } = message;
        let thread = std::thread::current().id();
        {
            let mut state = self.state();
            state.messages.push(Message {
                header,
                body: body.into_owned(),
                tensors,
                thread,
            });
            if self.holds_credit {
                state.credits.push(credit);
            }
            self.changed.notify_all();
        }
        link.interrupt();
    }

    fn closed(&self, closed: &Closed) {
        self.state().closed.push(closed.clone());
        self.changed.notify_all();
    }
}

/// Waits for the message of a call, or for the end of the link.
pub(crate) struct Answer<'a>(pub(crate) &'a Inbox, pub(crate) u64);

impl Answer<'_> {
    fn is_in(&self, state: &State) -> bool {
        !state.closed.is_empty()
            || state
                .messages
                .iter()
                .any(|message| message.header.call.0 == self.1)
    }
}

impl Waiting for Answer<'_> {
    fn done(&self) -> bool {
        self.is_in(&self.0.state())
    }

    fn park(&self, deadline: Option<Instant>) {
        let deadline = deadline.unwrap_or_else(|| Instant::now() + LIMIT);
        let left = deadline.saturating_duration_since(Instant::now());
        let _ = self
            .0
            .changed
            .wait_timeout_while(self.0.state(), left, |state| !self.is_in(state))
            .unwrap();
    }
}
