//! Signals of values that are dropped.

use crate::board::Board;

/// Raises a signal when it is dropped; see [`Board::raise_on_drop`].
#[derive(Debug)]
#[must_use = "the signal is raised when this is dropped"]
pub struct RaiseOnDrop {
    pub(crate) board: Board,
    pub(crate) signal: &'static str,
}

impl Drop for RaiseOnDrop {
    fn drop(&mut self) {
        self.board.raise(self.signal);
    }
}
