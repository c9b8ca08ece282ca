//! The order in which the roots of a backward pass run on one worker.
//!
//! This module is independent of tensors, messages and threads. A worker's part of the graph lies between its
//! *roots* (the messages that it sent, and the loss where the pass starts) and the messages that it received. The
//! gradient of a received message is complete when every root that reaches it has run; then it returns to the
//! sender.
//!
//! A root can run once it has a gradient. A run costs a traversal of the graph, so all ready roots run together,
//! and not before that completes a message: a straight pipeline costs one traversal per worker.
//!
//! At first the pass awaits every root. A root whose result is unused never gets a gradient: the pass then stops
//! while gradients are still held, and [`restrict_to`](Schedule::restrict_to) names the roots that will get one.

use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};

/// The schedule of one pass on one worker. `R` names roots, `V` received messages.
#[derive(Debug)]
pub(crate) struct Schedule<R, V> {
    roots: FxHashMap<R, ScheduledRoot<V>>,
    received: FxHashMap<V, Received>,
    /// The number of roots that await a gradient.
    awaited: usize,
    /// Roots with a gradient that have not run.
    ready: Vec<R>,
    /// The number of running roots.
    running: usize,
    /// A run of the ready roots completes the gradient of a received message.
    worthwhile: bool,
    /// The number of received messages with an incomplete gradient.
    incomplete: usize,
}

#[derive(Debug)]
struct ScheduledRoot<V> {
    /// The received messages that the root was computed from.
    reaches: Vec<V>,
    state: RootState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RootState {
    Waiting,
    Ready,
    Running,
    Ran,
    /// Will not get a gradient.
    Unused,
}

#[derive(Debug, Default)]
struct Received {
    /// The number of roots that reach the message and await a gradient.
    awaited: usize,
    /// The number of roots that reach the message and have not run.
    remaining: usize,
    /// A root that reaches the message has run: part of its gradient is known.
    has_gradient: bool,
}

/// Why a gradient of a root is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// There is no such root.
    Unknown,
    /// The root has a gradient.
    Duplicate,
    /// The loss does not depend on the root.
    Unused,
}

impl<R, V> Schedule<R, V>
where
    R: Copy + Ord + Hash,
    V: Copy + Eq + Hash,
{
    /// Schedules a pass over these roots, each with the received messages that it was computed from.
    pub(crate) fn new(roots: impl IntoIterator<Item = (R, Vec<V>)>) -> Self {
        let mut schedule = Self {
            roots: FxHashMap::default(),
            received: FxHashMap::default(),
            awaited: 0,
            ready: Vec::new(),
            running: 0,
            worthwhile: false,
            incomplete: 0,
        };
        for (root, reaches) in roots {
            for message in &reaches {
                let received = schedule.received.entry(*message).or_default();
                received.awaited += 1;
                received.remaining += 1;
            }
            schedule.awaited += 1;
            let state = RootState::Waiting;
            schedule.roots.insert(root, ScheduledRoot { reaches, state });
        }
        schedule
    }

    /// Marks a root as ready: its gradient has arrived.
    pub(crate) fn gradient(&mut self, of: R) -> Result<(), Rejection> {
        let root = self.roots.get_mut(&of).ok_or(Rejection::Unknown)?;
        match root.state {
            RootState::Waiting => {}
            RootState::Unused => return Err(Rejection::Unused),
            RootState::Ready | RootState::Running | RootState::Ran => return Err(Rejection::Duplicate),
        }
        root.state = RootState::Ready;
        self.awaited -= 1;
        // A root that reaches no message blocks none, and runs at once.
        self.worthwhile |= root.reaches.is_empty();
        for message in &root.reaches {
            if let Some(received) = self.received.get_mut(message) {
                received.awaited -= 1;
                self.worthwhile |= received.awaited == 0;
            }
        }
        self.ready.push(of);
        Ok(())
    }

    /// Returns the roots to run now, together; none when it is better to wait.
    pub(crate) fn next_batch(&mut self) -> Vec<R> {
        if self.awaited > 0 && !self.worthwhile {
            return Vec::new();
        }
        self.worthwhile = false;
        let mut run = std::mem::take(&mut self.ready);
        // Sums of floats depend on the order, which must not depend on the order of arrival.
        run.sort_unstable();
        for root in &run {
            self.set(root, RootState::Running);
        }
        self.running += run.len();
        run
    }

    /// Marks roots as run; returns the received messages whose gradients this completes.
    pub(crate) fn finish(&mut self, roots: &[R]) -> Vec<V> {
        let mut complete = Vec::new();
        self.running -= roots.len();
        for root in roots {
            self.set(root, RootState::Ran);
            let Some(root) = self.roots.get(root) else {
                continue;
            };
            for message in &root.reaches {
                if let Some(received) = self.received.get_mut(message) {
                    received.remaining -= 1;
                    if !received.has_gradient {
                        received.has_gradient = true;
                        self.incomplete += 1;
                    }
                    if received.remaining == 0 {
                        self.incomplete -= 1;
                        complete.push(*message);
                    }
                }
            }
        }
        complete
    }

    /// Awaits only these roots from now on; returns the received messages whose gradients this completes.
    pub(crate) fn restrict_to(&mut self, active: &FxHashSet<R>) -> Vec<V> {
        let mut complete = Vec::new();
        for (name, root) in &mut self.roots {
            if root.state != RootState::Waiting || active.contains(name) {
                continue;
            }
            root.state = RootState::Unused;
            self.awaited -= 1;
            for message in &root.reaches {
                if let Some(received) = self.received.get_mut(message) {
                    received.awaited -= 1;
                    received.remaining -= 1;
                    self.worthwhile |= received.awaited == 0 && received.remaining > 0;
                    if received.remaining == 0 && received.has_gradient {
                        self.incomplete -= 1;
                        complete.push(*message);
                    }
                }
            }
        }
        complete
    }

    /// Counts held gradients: those of ready roots, and incomplete ones of received messages. The pass has ended when
    /// the count is zero on every worker.
    pub(crate) fn held(&self) -> usize {
        self.ready.len() + self.incomplete
    }

    /// Whether no root awaits a gradient or a run.
    #[cfg(test)]
    pub(crate) fn is_over(&self) -> bool {
        self.awaited == 0 && self.ready.is_empty() && self.running == 0
    }

    /// The number of roots that await a gradient.
    pub(crate) fn awaited_count(&self) -> usize {
        self.awaited
    }

    /// The roots that await a gradient.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = R> {
        let awaited = |(_, root): &(&R, &ScheduledRoot<V>)| root.state == RootState::Waiting;
        self.roots.iter().filter(awaited).map(|(name, _)| *name)
    }

    /// Returns the received messages that a root was computed from.
    pub(crate) fn reaches(&self, root: &R) -> Option<&[V]> {
        self.roots.get(root).map(|root| root.reaches.as_slice())
    }

    fn set(&mut self, root: &R, state: RootState) {
        if let Some(root) = self.roots.get_mut(root) {
            root.state = state;
        }
    }
}

#[cfg(test)]
mod tests;
