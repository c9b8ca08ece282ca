//! Where in a trace a thread or a request is.

use telegrad_wire::Rank;

/// Where in a recording something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The trace: one profile. 0 when only this process records.
    pub trace: u64,
    /// The event that is going on; 0 for none.
    pub span: u64,
}

/// The bit of a trace's number that asks for shapes.
const SHAPES: u64 = 1;

/// The number of a trace of this worker.
pub(crate) fn trace_number(opener: Rank, count: u64, with_shapes: bool) -> u64 {
    (u64::from(opener) + 1) << 40 | (count << 1) & ((1 << 40) - 1) | u64::from(with_shapes)
}

/// Which of the traces of its worker one is; they are counted up.
pub(crate) fn trace_count(trace: u64) -> u64 {
    (trace & ((1 << 40) - 1)) >> 1
}

/// The trace of what is done for subscribers while they are shown something: it is recorded nowhere, on no worker. Otherwise
/// subscribers of two workers that call each other would never come to an end (S47).
const UNSEEN: u64 = 1;

impl Position {
    /// Where what is done for subscribers happens.
    pub(crate) const UNSEEN: Self = Self {
        trace: UNSEEN,
        span: 0,
    };

    /// Whether nothing is recorded there.
    pub fn is_unseen(&self) -> bool {
        self.trace == UNSEEN
    }

    /// Whether shapes are asked for.
    pub fn has_shapes(&self) -> bool {
        self.trace & SHAPES != 0 && !self.is_unseen()
    }

    /// Who has opened the trace, if a worker has.
    pub fn opener(trace: u64) -> Option<Rank> {
        Rank::try_from((trace >> 40).checked_sub(1)?).ok()
    }
}
