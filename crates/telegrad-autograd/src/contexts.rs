//! The table of open and ended contexts of a worker.
//!
//! The opener ends a context. A message of the context may arrive later and must not reopen it. Openers number
//! their contexts, and report with each end which others have ended, so that a worker remembers a few ranges of
//! numbers. A context opens once, so these reports may arrive in any order.

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

/// The largest number of open contexts that an opener lists with an end. Few openers have more at a time; one that does
/// lists them in turns, so that the cost of an end is bounded.
const MAX_LISTED: usize = 32;

/// A context on one worker.
pub(crate) enum ContextState<B: AutogradBackend> {
    Open(Graph<B>),
    /// A pass has failed. This worker will notify the callees of the end, and expects that notice from a caller.
    Failed {
        cause: String,
        callees: Vec<Rank>,
        callers: FxHashSet<Rank>,
    },
    Ended,
}

/// The contexts of a worker that are still open, in order, among those numbered `from..to`.
#[derive(Clone, Debug, Wire)]
pub(crate) struct StillOpen {
    from: u64,
    to: u64,
    open: Vec<u64>,
}

impl StillOpen {
    /// Iterates over the ranges of ended contexts.
    fn ended(&self) -> impl Iterator<Item = Range<u64>> {
        let starts = std::iter::once(self.from).chain(self.open.iter().map(|number| number + 1));
        let ends = self.open.iter().copied().chain([self.to]);
        let between = starts.zip(ends).map(|(start, end)| start..end);
        between.filter(|range| !range.is_empty())
    }
}

/// A context, shared by the calls and passes in it.
pub(crate) type SharedContext<B> = Arc<Mutex<ContextState<B>>>;

pub(crate) struct Contexts<B: AutogradBackend> {
    table: Mutex<ContextTable<B>>,
    next: AtomicU64,
}

struct ContextTable<B: AutogradBackend> {
    /// Ordered, to find the contexts in a range of numbers.
    open: BTreeMap<ContextId, SharedContext<B>>,
    openers: FxHashMap<Rank, Opener>,
}

/// The contexts of one opener.
struct Opener {
    ended: Ranges,
    /// The worker was lost, which ended all its contexts.
    lost: bool,
    /// Its open contexts; filled on the opener alone.
    own: BTreeSet<u64>,
    /// The first context to list with the next end, when there are more than [`MAX_LISTED`].
    turn: u64,
}

impl Default for Opener {
    fn default() -> Self {
        let mut ended = Ranges::default();
        // Numbers start at 1: ends from there on extend this range.
        ended.add(0..1);
        Self {
            ended,
            lost: false,
            own: BTreeSet::new(),
            turn: 0,
        }
    }
}

impl<B: AutogradBackend> Default for Contexts<B> {
    fn default() -> Self {
        Self {
            table: Mutex::new(ContextTable {
                open: BTreeMap::new(),
                openers: FxHashMap::default(),
            }),
            next: AtomicU64::new(1),
        }
    }
}

impl<B: AutogradBackend> Contexts<B> {
    /// Opens a context of this worker.
    pub(crate) fn open(&self, here: Rank) -> ContextId {
        let mut table = self.table.lock();
        let number = self.next.fetch_add(1, SeqCst);
        let context = ContextId::new(here, number);
        table.openers.entry(here).or_default().own.insert(number);
        table.open.insert(context, new_shared());
        context
    }

    /// Returns a context that this worker takes part in.
    pub(crate) fn get(&self, context: ContextId) -> Option<SharedContext<B>> {
        self.table.lock().open.get(&context).cloned()
    }

    /// Returns a context, and joins it if necessary; `None` when it has ended.
    pub(crate) fn get_or_join(&self, context: ContextId) -> Option<SharedContext<B>> {
        let mut table = self.table.lock();
        if let Some(shared) = table.open.get(&context) {
            return Some(shared.clone());
        }
        let opener = table.openers.entry(context.opener()).or_default();
        if opener.has_ended(context.number()) {
            return None;
        }
        let shared = new_shared();
        table.open.insert(context, shared.clone());
        Some(shared)
    }

    /// Closes a context of this worker; returns the list of open ones to report.
    pub(crate) fn close(&self, context: ContextId) -> StillOpen {
        let mut table = self.table.lock();
        let opener = table.openers.entry(context.opener()).or_default();
        opener.own.remove(&context.number());
        opener.still_open(self.next.load(SeqCst))
    }

    /// Ends a context, and those of its opener that `still` reports as ended; takes out their state.
    pub(crate) fn end(
        &self,
        context: ContextId,
        still: Option<&StillOpen>,
    ) -> Vec<(ContextId, SharedContext<B>)> {
        let mut table = self.table.lock();
        let number = context.number();
        let others = still.into_iter().flat_map(StillOpen::ended);
        let mut known = Vec::new();
        for ended in others.chain(std::iter::once(number..number + 1)) {
            known.extend(table.take(context.opener(), ended.clone()));
            let opener = table.openers.entry(context.opener()).or_default();
            opener.ended.add(ended);
        }
        known
    }

    /// Ends all contexts of a lost worker; takes out their state.
    pub(crate) fn end_all_of(&self, opener: Rank) -> Vec<(ContextId, SharedContext<B>)> {
        let mut table = self.table.lock();
        *table.openers.entry(opener).or_default() = Opener {
            lost: true,
            ..Opener::default()
        };
        table.take(opener, 0..ContextId(u64::MAX).number() + 1)
    }

    /// Lists the contexts that this worker takes part in.
    pub(crate) fn all(&self) -> Vec<(ContextId, SharedContext<B>)> {
        let table = self.table.lock();
        table
            .open
            .iter()
            .map(|(id, shared)| (*id, shared.clone()))
            .collect()
    }

    /// Counts the remembered ranges of ended contexts, except the lowest of each opener.
    pub(crate) fn ended_ranges(&self) -> usize {
        let table = self.table.lock();
        table.openers.values().map(|opener| opener.ended.len() - 1).sum()
    }
}

impl Opener {
    fn has_ended(&self, number: u64) -> bool {
        self.lost || self.ended.contains(number)
    }

    /// Lists open contexts, in turns if there are many; `next` is the first unused number.
    fn still_open(&mut self, next: u64) -> StillOpen {
        let from = if self.own.len() > MAX_LISTED { self.turn } else { 0 };
        let mut own = self.own.range(from..).copied();
        let open = own.by_ref().take(MAX_LISTED).collect();
        let rest = own.next();
        self.turn = rest.unwrap_or(0);
        let to = rest.unwrap_or(next);
        StillOpen { from, to, open }
    }
}

impl<B: AutogradBackend> ContextTable<B> {
    /// Takes out an opener's contexts with these numbers.
    fn take(&mut self, opener: Rank, numbers: Range<u64>) -> Vec<(ContextId, SharedContext<B>)> {
        let first = ContextId::new(opener, numbers.start);
        let last = ContextId::new(opener, numbers.end - 1);
        self.open.extract_if(first..=last, |_, _| true).collect()
    }
}

impl<B: AutogradBackend> ContextState<B> {
    /// Whether another worker has called this one in the context.
    pub(crate) fn was_called_by(&self, worker: Rank) -> bool {
        match self {
            Self::Open(Graph { callers, .. }) | Self::Failed { callers, .. } => callers.contains(&worker),
            Self::Ended => false,
        }
    }

    /// Returns the graph of an open context.
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

fn new_shared<B: AutogradBackend>() -> SharedContext<B> {
    Arc::new(Mutex::new(ContextState::Open(Graph::default())))
}

#[cfg(test)]
mod tests;
