//! Descriptions of references.

use std::fmt;

use crate::WorkerInfo;

/// A referenced value, as `World::references` lists it on its owner and on its borrowers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReferenceInfo {
    /// The type of the value; `?` if unknown.
    pub type_name: String,
    /// The worker that has the value.
    pub owner: WorkerInfo,
    /// The state of the value or of the reference.
    pub state: ReferenceState,
    /// The workers with references to the value, and how many each has. The owner lists all of them, a borrower only
    /// itself.
    pub holders: Vec<(WorkerInfo, usize)>,
}

/// The state of a referenced value, as the listing worker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReferenceState {
    /// On the owner: the value is being created.
    Pending,
    /// On the owner: the value exists.
    Ready,
    /// On the owner: creating the value failed.
    Failed,
    /// On a borrower: the owner has not confirmed the reference yet.
    Unconfirmed,
    /// On a borrower: the owner has confirmed the reference.
    Confirmed,
    /// On a borrower: the value is lost.
    Lost,
}

impl ReferenceInfo {
    /// Describes a value without holders.
    pub fn new(type_name: impl Into<String>, owner: WorkerInfo, state: ReferenceState) -> Self {
        Self {
            type_name: type_name.into(),
            owner,
            state,
            holders: Vec::new(),
        }
    }

    /// Sets the workers with references to the value.
    #[must_use]
    pub fn holders(mut self, holders: Vec<(WorkerInfo, usize)>) -> Self {
        self.holders = holders;
        self
    }
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
        write!(f, "`{what}` on `{owner}` ({state}), ")?;
        if self.holders.is_empty() {
            return f.write_str("without holders");
        }
        f.write_str("held by ")?;
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
