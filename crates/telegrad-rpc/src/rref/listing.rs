//! Listing of references, for `World::references`.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use telegrad_wire::Incarnation;

use crate::link::Members;
use crate::reference::OwnedValue;
use crate::types::{ReferenceInfo, WorkerInfo};
use crate::worker::Worker;

/// Lists the references of this worker, by owner and type.
pub(super) fn references(worker: &Arc<Worker>) -> Vec<ReferenceInfo> {
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
        .map(|value| {
            let known = types.get(&value.reference).cloned();
            owned_info(value, &me, members, known)
        })
        .collect();
    let mut elsewhere: FxHashMap<_, ReferenceInfo> = FxHashMap::default();
    for handle in handles {
        if handle.owner.identity.rank == me.rank {
            continue;
        }
        let info = elsewhere.entry(handle.reference).or_insert_with(|| {
            let (type_name, owner) = (handle.type_name.to_string(), handle.owner.info());
            ReferenceInfo::new(type_name, owner, handle.state()).holders(vec![(me.clone(), 0)])
        });
        info.holders[0].1 += 1;
    }
    infos.extend(elsewhere.into_values());
    infos.sort_by(|a, b| (&a.owner, &a.type_name).cmp(&(&b.owner, &b.type_name)));
    infos
}

fn owned_info(value: OwnedValue, me: &WorkerInfo, members: &Members, known: Option<String>) -> ReferenceInfo {
    let type_name = value.type_name.map(str::to_owned).or(known);
    let type_name = type_name.unwrap_or_else(|| "?".into());
    ReferenceInfo::new(type_name, me.clone(), value.state).holders(holders(&value.holders, members))
}

/// Counts the references of each worker.
fn holders(incarnations: &[Incarnation], members: &Members) -> Vec<(WorkerInfo, usize)> {
    let mut counts: FxHashMap<Incarnation, usize> = FxHashMap::default();
    for incarnation in incarnations {
        *counts.entry(*incarnation).or_default() += 1;
    }
    let mut holders: Vec<_> = counts
        .into_iter()
        .filter_map(|(incarnation, count)| Some((members.of_incarnation(incarnation)?.info.clone(), count)))
        .collect();
    holders.sort_by_key(|(info, _)| info.rank);
    holders
}
