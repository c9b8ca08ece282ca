//! The contexts that a worker knows of, and those that it knows to be over.
//!
//! A context is over when its opener says so. Messages that belong to it may still be on their way then, and
//! must not bring it back. Openers number their contexts, and say with each end which ones are open, so what has to
//! be remembered is bounded by that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use telegrad_wire::{ContextId, Rank, Wire};

use crate::backend::AutogradBackend;
use crate::error::AutogradError;
use crate::graph::Graph;

/// What a worker has of a context.
pub(crate) enum State<B: AutogradBackend> {
    Open(Graph<B>),
    /// A pass in it has failed. Those whom this worker has called in it will have to be told of its end, and those
    /// who have called this worker are the ones that it hears of it from.
    Failed {
        cause: String,
        callees: Vec<Rank>,
        callers: FxHashSet<Rank>,
    },
    Ended,
}

/// Which contexts of a worker are open: these, and any from that number on.
#[derive(Clone, Debug, Wire)]
pub(crate) struct StillOpen {
    open: Vec<u64>,
    next: u64,
}

/// A context, shared by whoever works in it.
pub(crate) type Shared<B> = Arc<Mutex<State<B>>>;

pub(crate) struct Contexts<B: AutogradBackend> {
    books: Mutex<Books<B>>,
    next: AtomicU64,
}

struct Books<B: AutogradBackend> {
    open: FxHashMap<ContextId, Shared<B>>,
    openers: FxHashMap<Rank, Opener>,
}

/// What is known of the contexts of one worker.
#[derive(Default)]
struct Opener {
    /// All below this number are over,
    next: u64,
    /// but for these.
    open: BTreeSet<u64>,
    /// And these are.
    ended: BTreeSet<u64>,
    /// The worker is gone, and with it all its contexts.
    gone: bool,
    /// The contexts that it has open itself; kept by the opener alone.
    own: BTreeSet<u64>,
}

impl<B: AutogradBackend> Default for Contexts<B> {
    fn default() -> Self {
        Self {
            books: Mutex::new(Books {
                open: FxHashMap::default(),
                openers: FxHashMap::default(),
            }),
            next: AtomicU64::new(1),
        }
    }
}

impl<B: AutogradBackend> Contexts<B> {
    /// Opens a context of this worker's own.
    pub(crate) fn open(&self, here: Rank) -> ContextId {
        let mut books = self.books.lock();
        let number = self.next.fetch_add(1, SeqCst);
        let context = ContextId::new(here, number);
        books.openers.entry(here).or_default().own.insert(number);
        books.open.insert(context, new_shared());
        context
    }

    /// A context, if it is known here.
    pub(crate) fn get(&self, context: ContextId) -> Option<Shared<B>> {
        self.books.lock().open.get(&context).cloned()
    }

    /// A context, known here from now on; nothing when it is over.
    pub(crate) fn get_or_join(&self, context: ContextId) -> Option<Shared<B>> {
        let mut books = self.books.lock();
        if let Some(shared) = books.open.get(&context) {
            return Some(shared.clone());
        }
        let opener = books.openers.entry(context.opener()).or_default();
        if opener.is_over(context.number()) {
            return None;
        }
        let shared = new_shared();
        books.open.insert(context, shared.clone());
        Some(shared)
    }

    /// A context of this worker's own is over: which are not.
    pub(crate) fn close(&self, context: ContextId) -> StillOpen {
        let mut books = self.books.lock();
        let opener = books.openers.entry(context.opener()).or_default();
        opener.own.remove(&context.number());
        StillOpen {
            open: opener.own.iter().copied().collect(),
            next: self.next.load(SeqCst),
        }
    }

    /// A context is over, and so are its opener's others that are not among those. What was known of them.
    pub(crate) fn end(&self, context: ContextId, still: Option<&StillOpen>) -> Vec<(ContextId, Shared<B>)> {
        let mut books = self.books.lock();
        let mut opener = books.openers.remove(&context.opener()).unwrap_or_default();
        opener.hear(context.number(), still);
        let over = books.take(|other| other.opener() == context.opener() && opener.is_over(other.number()));
        books.openers.insert(context.opener(), opener);
        over
    }

    /// The opener of contexts is gone. What was known of them.
    pub(crate) fn gone(&self, opener: Rank) -> Vec<(ContextId, Shared<B>)> {
        let mut books = self.books.lock();
        *books.openers.entry(opener).or_default() = Opener {
            gone: true,
            ..Opener::default()
        };
        books.take(|context| context.opener() == opener)
    }

    /// All contexts that are known.
    pub(crate) fn all(&self) -> Vec<(ContextId, Shared<B>)> {
        let books = self.books.lock();
        books
            .open
            .iter()
            .map(|(id, shared)| (*id, shared.clone()))
            .collect()
    }

    /// Ends that have to be remembered.
    pub(crate) fn remembered(&self) -> usize {
        let books = self.books.lock();
        books.openers.values().map(|opener| opener.ended.len()).sum()
    }
}

impl Opener {
    fn is_over(&self, number: u64) -> bool {
        self.gone
            || match number < self.next {
                true => !self.open.contains(&number),
                false => self.ended.contains(&number),
            }
    }

    /// One is over. What the opener says of the others may have been overtaken by something later.
    fn hear(&mut self, ended: u64, still: Option<&StillOpen>) {
        if let Some(StillOpen { open, next }) = still {
            if *next > self.next {
                let open = open.iter().copied().filter(|number| !self.is_over(*number));
                self.open = open.collect();
                self.next = *next;
                self.ended = self.ended.split_off(next);
            } else {
                self.open.retain(|number| number >= next || open.contains(number));
            }
        }
        match ended < self.next {
            true => self.open.remove(&ended),
            false => self.ended.insert(ended),
        };
    }
}

impl<B: AutogradBackend> Books<B> {
    fn take(&mut self, which: impl Fn(ContextId) -> bool) -> Vec<(ContextId, Shared<B>)> {
        self.open.extract_if(|context, _| which(*context)).collect()
    }
}

impl<B: AutogradBackend> State<B> {
    /// Whether a worker has called this one in the context.
    pub(crate) fn was_called_by(&self, worker: Rank) -> bool {
        match self {
            Self::Open(Graph { callers, .. }) | Self::Failed { callers, .. } => callers.contains(&worker),
            Self::Ended => false,
        }
    }

    /// The graph.
    ///
    /// # Errors
    /// When the context has ended or failed.
    pub(crate) fn graph(&mut self, context: ContextId) -> Result<&mut Graph<B>, AutogradError> {
        match self {
            Self::Open(graph) => Ok(graph),
            Self::Failed { cause, .. } => Err(AutogradError::Failed {
                context,
                cause: cause.clone(),
            }),
            Self::Ended => Err(AutogradError::Ended(context)),
        }
    }
}

fn new_shared<B: AutogradBackend>() -> Shared<B> {
    Arc::new(Mutex::new(State::Open(Graph::default())))
}

#[cfg(test)]
mod tests;
