//! References for people to look at.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::protocol::Life;
use super::references::Listed;
use crate::members::Members;
use crate::worker::Worker;
use crate::worker_info::WorkerInfo;

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
            return f.write_str("nobody yet");
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

/// What this worker knows of references: its own values first, then values elsewhere.
pub(crate) fn references(worker: &Arc<Worker>) -> Vec<ReferenceInfo> {
    let Ok(members) = worker.members() else {
        return Vec::new();
    };
    let me = WorkerInfo {
        name: worker.name().into(),
        rank: worker.identity.rank,
    };
    let (owned, handles) = worker.references.list();
    let types: FxHashMap<_, _> = handles
        .iter()
        .map(|handle| (handle.reference, handle.type_name.to_string()))
        .collect();
    let mut infos: Vec<_> = owned
        .into_iter()
        .map(|listed| {
            let known = types.get(&listed.reference).cloned();
            owned_info(listed, &me, members, known)
        })
        .collect();
    let mut elsewhere: FxHashMap<_, ReferenceInfo> = FxHashMap::default();
    for handle in handles {
        if handle.owner.info == me {
            continue;
        }
        let info = elsewhere
            .entry(handle.reference)
            .or_insert_with(|| ReferenceInfo {
                type_name: handle.type_name.to_string(),
                owner: handle.owner.info.clone(),
                state: handle.state(),
                holders: vec![(me.clone(), 0)],
            });
        info.holders[0].1 += 1;
    }
    infos.extend(elsewhere.into_values());
    infos.sort_by(|a, b| (&a.owner, &a.type_name).cmp(&(&b.owner, &b.type_name)));
    infos
}

fn owned_info(listed: Listed, me: &WorkerInfo, members: &Members, known: Option<String>) -> ReferenceInfo {
    let type_name = listed.type_name.map(str::to_owned).or(known);
    ReferenceInfo {
        type_name: type_name.unwrap_or_else(|| "?".into()),
        owner: me.clone(),
        state: listed.state,
        holders: holders(&listed.holders, members),
    }
}

/// Counts the references of each worker.
fn holders(lives: &[Life], members: &Members) -> Vec<(WorkerInfo, usize)> {
    let mut counts: FxHashMap<Life, usize> = FxHashMap::default();
    for life in lives {
        *counts.entry(*life).or_default() += 1;
    }
    let mut holders: Vec<_> = counts
        .into_iter()
        .filter_map(|(life, count)| Some((members.of_life(life)?.info.clone(), count)))
        .collect();
    holders.sort_by_key(|(info, _)| info.rank);
    holders
}
