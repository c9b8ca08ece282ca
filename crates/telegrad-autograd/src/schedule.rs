//! When which part of a backward pass runs on one worker.
//!
//! Nothing here knows tensors, messages or threads. A worker's part of the graph is cut out by what it sent
//! (the *roots* of its part, and the loss where the pass starts) and what it received (the *leaves* that others
//! wait for, one for each message). The gradient of a received message is complete when every root that it
//! reaches has run; then it goes back to the sender.
//!
//! A root can run when its gradient is there. Running costs a traversal of the graph, so all that are ready run
//! together, and not before that completes something: a straight pipeline costs one traversal per worker.
//!
//! At first every root is waited for. One whose result nobody used never gets a gradient; then the pass comes to
//! rest while something is still held here, and [`only`](Schedule::only) says which roots will get one at all.

use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};

/// One worker's part of one pass. `R` names roots, `V` received messages.
#[derive(Debug)]
pub(crate) struct Schedule<R, V> {
    roots: FxHashMap<R, Root<V>>,
    received: FxHashMap<V, Received>,
    /// Roots that are waited for and have no gradient yet.
    waiting: usize,
    /// Roots with a gradient that have not run.
    ready: Vec<R>,
    /// Roots that run right now.
    running: usize,
    /// Running what is ready completes the gradient of a received message.
    pays: bool,
    /// Received messages with a gradient that is not complete.
    open: usize,
}

#[derive(Debug)]
struct Root<V> {
    /// The received messages that it was computed from.
    reaches: Vec<V>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Ready,
    Running,
    Ran,
    /// Not waited for any more.
    Unused,
}

#[derive(Debug, Default)]
struct Received {
    /// Roots that reach it and have no gradient yet.
    waiting: usize,
    /// Roots that reach it and have not run.
    left: usize,
    /// A root that reaches it has run: it has a gradient, if not all of it.
    touched: bool,
}

/// Why a gradient cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unexpected {
    /// There is no such root.
    Unknown,
    /// It has one.
    Again,
    /// It was found not to matter.
    Unused,
}

impl<R, V> Schedule<R, V>
where
    R: Copy + Ord + Hash,
    V: Copy + Eq + Hash,
{
    /// A pass over these roots, each with the received messages that it was computed from.
    pub(crate) fn new(roots: impl IntoIterator<Item = (R, Vec<V>)>) -> Self {
        let mut schedule = Self {
            roots: FxHashMap::default(),
            received: FxHashMap::default(),
            waiting: 0,
            ready: Vec::new(),
            running: 0,
            pays: false,
            open: 0,
        };
        for (root, reaches) in roots {
            for message in &reaches {
                let received = schedule.received.entry(*message).or_default();
                received.waiting += 1;
                received.left += 1;
            }
            schedule.waiting += 1;
            let state = State::Waiting;
            schedule.roots.insert(root, Root { reaches, state });
        }
        schedule
    }

    /// The gradient of a root has come.
    pub(crate) fn gradient(&mut self, of: R) -> Result<(), Unexpected> {
        let root = self.roots.get_mut(&of).ok_or(Unexpected::Unknown)?;
        match root.state {
            State::Waiting => {}
            State::Unused => return Err(Unexpected::Unused),
            State::Ready | State::Running | State::Ran => return Err(Unexpected::Again),
        }
        root.state = State::Ready;
        self.waiting -= 1;
        // One that nobody is waiting behind need not wait for others.
        self.pays |= root.reaches.is_empty();
        for message in &root.reaches {
            if let Some(received) = self.received.get_mut(message) {
                received.waiting -= 1;
                self.pays |= received.waiting == 0;
            }
        }
        self.ready.push(of);
        Ok(())
    }

    /// The roots to run now, all at once; none when it is better to wait.
    pub(crate) fn next(&mut self) -> Vec<R> {
        if self.waiting > 0 && !self.pays {
            return Vec::new();
        }
        self.pays = false;
        let mut run = std::mem::take(&mut self.ready);
        // Sums of floats depend on the order: it should not depend on who came first.
        run.sort_unstable();
        for root in &run {
            self.set(root, State::Running);
        }
        self.running += run.len();
        run
    }

    /// These roots have run: the received messages whose gradients are complete now.
    pub(crate) fn ran(&mut self, roots: &[R]) -> Vec<V> {
        let mut complete = Vec::new();
        self.running -= roots.len();
        for root in roots {
            self.set(root, State::Ran);
            let Some(root) = self.roots.get(root) else {
                continue;
            };
            for message in &root.reaches {
                if let Some(received) = self.received.get_mut(message) {
                    received.left -= 1;
                    if !received.touched {
                        received.touched = true;
                        self.open += 1;
                    }
                    if received.left == 0 {
                        self.open -= 1;
                        complete.push(*message);
                    }
                }
            }
        }
        complete
    }

    /// Only these roots will get a gradient: the received messages that are complete now.
    pub(crate) fn only(&mut self, active: &FxHashSet<R>) -> Vec<V> {
        let mut complete = Vec::new();
        for (name, root) in &mut self.roots {
            if root.state != State::Waiting || active.contains(name) {
                continue;
            }
            root.state = State::Unused;
            self.waiting -= 1;
            for message in &root.reaches {
                if let Some(received) = self.received.get_mut(message) {
                    received.waiting -= 1;
                    received.left -= 1;
                    self.pays |= received.waiting == 0 && received.left > 0;
                    if received.left == 0 && received.touched {
                        self.open -= 1;
                        complete.push(*message);
                    }
                }
            }
        }
        complete
    }

    /// How much has come to a halt here: gradients that have not been used, and gradients of received messages
    /// that are not complete. Zero on every worker means that the pass is over.
    pub(crate) fn held(&self) -> usize {
        self.ready.len() + self.open
    }

    /// Whether nothing more can come.
    #[cfg(test)]
    pub(crate) fn is_over(&self) -> bool {
        self.waiting == 0 && self.ready.is_empty() && self.running == 0
    }

    /// How many roots are waited for.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The roots that are waited for.
    pub(crate) fn waits_for(&self) -> impl Iterator<Item = R> {
        let waiting = |(_, root): &(&R, &Root<V>)| root.state == State::Waiting;
        self.roots.iter().filter(waiting).map(|(name, _)| *name)
    }

    /// The received messages that a root was computed from.
    pub(crate) fn reaches(&self, root: &R) -> Option<&[V]> {
        self.roots.get(root).map(|root| root.reaches.as_slice())
    }

    fn set(&mut self, root: &R, state: State) {
        if let Some(root) = self.roots.get_mut(root) {
            root.state = state;
        }
    }
}

#[cfg(test)]
mod tests;
