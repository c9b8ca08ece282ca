//! The contexts that a worker knows of, and those that it knows to be over.
//!
//! A context is over when its opener says so. Messages that belong to it may still be on their way then, and
//! must not bring it back. Openers number their contexts, and say with each end which others are over, so that what
//! has to be remembered is a few ranges of numbers. What they say is never withdrawn, since no context is opened
//! twice: it may arrive in any order.

mod ranges;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use telegrad_wire::{ContextId, Rank, Wire};

use crate::backend::AutogradBackend;
use crate::graph::Graph;
use telegrad_error::AutogradError;

use ranges::Ranges;

/// How many open contexts an opener lists with an end. Few have more open at a time; those who do go through them in
/// turns, so that an end costs the same however many there are.
const LISTED: usize = 32;

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

/// Which contexts of a worker with these numbers are open: only those listed, in order. Says nothing of others.
#[derive(Clone, Debug, Wire)]
pub(crate) struct StillOpen {
    from: u64,
    to: u64,
    open: Vec<u64>,
}

impl StillOpen {
    /// The numbers between those that are open.
    fn over(&self) -> impl Iterator<Item = Range<u64>> {
        let starts = std::iter::once(self.from).chain(self.open.iter().map(|number| number + 1));
        let ends = self.open.iter().copied().chain([self.to]);
        let between = starts.zip(ends).map(|(start, end)| start..end);
        between.filter(|range| !range.is_empty())
    }
}

/// A context, shared by whoever works in it.
pub(crate) type Shared<B> = Arc<Mutex<State<B>>>;

pub(crate) struct Contexts<B: AutogradBackend> {
    books: Mutex<Books<B>>,
    next: AtomicU64,
}

struct Books<B: AutogradBackend> {
    /// In order, to find those of a range of numbers.
    open: BTreeMap<ContextId, Shared<B>>,
    openers: FxHashMap<Rank, Opener>,
}

/// What is known of the contexts of one worker.
struct Opener {
    /// Those that are over.
    over: Ranges,
    /// The worker is gone, and with it all its contexts.
    gone: bool,
    /// The contexts that it has open itself; kept by the opener alone.
    own: BTreeSet<u64>,
    /// The first that it lists next time, when there are too many for one.
    turn: u64,
}

impl Default for Opener {
    fn default() -> Self {
        let mut over = Ranges::default();
        // Numbers start at 1, so that those from there on join this range.
        over.add(0..1);
        Self {
            over,
            gone: false,
            own: BTreeSet::new(),
            turn: 0,
        }
    }
}

impl<B: AutogradBackend> Default for Contexts<B> {
    fn default() -> Self {
        Self {
            books: Mutex::new(Books {
                open: BTreeMap::new(),
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

    /// A context of this worker's own is over: what to say of the others.
    pub(crate) fn close(&self, context: ContextId) -> StillOpen {
        let mut books = self.books.lock();
        let opener = books.openers.entry(context.opener()).or_default();
        opener.own.remove(&context.number());
        opener.still_open(self.next.load(SeqCst))
    }

    /// A context is over, and so are those of its opener's others that it says so of. What was known of them.
    pub(crate) fn end(&self, context: ContextId, still: Option<&StillOpen>) -> Vec<(ContextId, Shared<B>)> {
        let mut books = self.books.lock();
        let number = context.number();
        let others = still.into_iter().flat_map(StillOpen::over);
        let mut known = Vec::new();
        for over in others.chain(std::iter::once(number..number + 1)) {
            known.extend(books.take(context.opener(), over.clone()));
            let opener = books.openers.entry(context.opener()).or_default();
            opener.over.add(over);
        }
        known
    }

    /// The opener of contexts is gone. What was known of them.
    pub(crate) fn gone(&self, opener: Rank) -> Vec<(ContextId, Shared<B>)> {
        let mut books = self.books.lock();
        *books.openers.entry(opener).or_default() = Opener {
            gone: true,
            ..Opener::default()
        };
        books.take(opener, 0..ContextId(u64::MAX).number() + 1)
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

    /// Ranges of ends that have to be remembered, besides the first: that all below a number are over.
    pub(crate) fn remembered(&self) -> usize {
        let books = self.books.lock();
        books.openers.values().map(|opener| opener.over.len() - 1).sum()
    }
}

impl Opener {
    fn is_over(&self, number: u64) -> bool {
        self.gone || self.over.contains(number)
    }

    /// Which are open of those whose turn it is; `next` is the number of none yet.
    fn still_open(&mut self, next: u64) -> StillOpen {
        let from = if self.own.len() > LISTED { self.turn } else { 0 };
        let mut own = self.own.range(from..).copied();
        let open = own.by_ref().take(LISTED).collect();
        let rest = own.next();
        self.turn = rest.unwrap_or(0);
        let to = rest.unwrap_or(next);
        StillOpen { from, to, open }
    }
}

impl<B: AutogradBackend> Books<B> {
    /// Takes out what is known of an opener's contexts with these numbers.
    fn take(&mut self, opener: Rank, numbers: Range<u64>) -> Vec<(ContextId, Shared<B>)> {
        let first = ContextId::new(opener, numbers.start);
        let last = ContextId::new(opener, numbers.end - 1);
        self.open.extract_if(first..=last, |_, _| true).collect()
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
