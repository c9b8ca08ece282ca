//! Positions in traces, and the numbers of traces.

use telegrad_wire::Rank;

/// A position in a trace: what new spans belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The trace, one for each profile. 0 when only this process records.
    pub trace: u64,
    /// The span that is open; 0 for none.
    pub span: u64,
}

/// The bit of a trace's number that asks for shapes.
const SHAPES_BIT: u64 = 1;

/// Returns the number of the `count`th trace that `opener` opens.
pub(crate) fn trace_number(opener: Rank, count: u64, with_shapes: bool) -> u64 {
    (u64::from(opener) + 1) << 40 | (count << 1) & ((1 << 40) - 1) | u64::from(with_shapes)
}

/// Returns the count of a trace among those of its opener.
pub(crate) fn trace_count(trace: u64) -> u64 {
    (trace & ((1 << 40) - 1)) >> 1
}

/// The trace of work done inside a subscriber: no worker records it. Otherwise the spans of two workers whose
/// subscribers call each other would never end (S62).
const UNSEEN: u64 = 1;

impl Position {
    /// The position of work done inside a subscriber.
    pub(crate) const UNSEEN: Self = Self {
        trace: UNSEEN,
        span: 0,
    };

    /// Returns whether nothing is recorded at this position.
    pub fn is_unseen(&self) -> bool {
        self.trace == UNSEEN
    }

    /// Returns whether the trace asks for shapes.
    pub fn has_shapes(&self) -> bool {
        self.trace & SHAPES_BIT != 0 && !self.is_unseen()
    }

    /// Returns the worker that opened a trace, if a worker did.
    pub fn opener(trace: u64) -> Option<Rank> {
        Rank::try_from((trace >> 40).checked_sub(1)?).ok()
    }
}
