//! References for people to look at.

use std::fmt;

use super::WorkerInfo;

/// A value that references refer to, or references to one; see [`World::references`](crate::World::references).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReferenceInfo {
    /// The type of the value, as far as it is known.
    pub type_name: String,
    /// The worker that has it.
    pub owner: WorkerInfo,
    /// How far it is.
    pub state: ReferenceState,
    /// Who refers to it, and with how many references. The owner knows all of them, others only their
    /// own.
    pub holders: Vec<(WorkerInfo, usize)>,
}

/// How far a value is, as seen from the worker that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReferenceState {
    /// On its owner: it is still being made.
    Pending,
    /// On its owner: it is there.
    Ready,
    /// On its owner: making it failed.
    Failed,
    /// Elsewhere: the owner does not know of the reference yet.
    Unconfirmed,
    /// Elsewhere: the owner knows of the reference.
    Confirmed,
    /// Elsewhere: the value is gone.
    Lost,
}

impl fmt::Display for ReferenceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Unconfirmed => "unconfirmed",
            Self::Confirmed => "confirmed",
            Self::Lost => "lost",
        })
    }
}

impl fmt::Display for ReferenceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, owner, state) = (&self.type_name, &self.owner.name, self.state);
        write!(f, "`{what}` on `{owner}` ({state}), held by ")?;
        if self.holders.is_empty() {
            return f.write_str("no worker yet");
        }
        for (i, (holder, count)) in self.holders.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}`{}`", holder.name)?;
            if *count > 1 {
                write!(f, " {count} times")?;
            }
        }
        Ok(())
    }
}
