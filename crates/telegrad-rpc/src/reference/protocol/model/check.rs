//! What has to be true.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::truth::{Status, ValueLocation, Wrong, f, r, w};
use super::world::{Step, World, incarnation, index};
use super::{Count, ForkId, Made};

impl World {
    /// Takes a step and looks whether all is well.
    pub(super) fn try_step(&mut self, step: Step) -> Result<(), Wrong> {
        // The protocol states are not used again after a panic; the story up to it is.
        let taken = catch_unwind(AssertUnwindSafe(|| self.take(step)));
        taken.unwrap_or_else(|_| Err("a protocol state panics, see above".into()))?;
        self.check()
    }

    /// After every step.
    fn check(&self) -> Result<(), Wrong> {
        let truth = &self.truth;
        for (at, worker) in self.workers.iter().enumerate() {
            let held = worker.protocol.held.values();
            if held.filter(|held| held.is_unconfirmed()).count() != worker.protocol.unconfirmed {
                return Err(format!("{} has miscounted", w(at)));
            }
        }
        for (id, fork) in &truth.forks {
            let owner = truth.owner(fork);
            let value = &truth.values[&fork.reference];
            if !truth.up[owner] || !truth.up[fork.holder] || fork.lost {
                continue;
            }
            let on_list = || {
                let owned = self.workers[owner].protocol.owned.get(&fork.reference);
                owned.and_then(|owned| owned.forks.get(id)) == Some(&incarnation(fork.holder))
            };
            match fork.place {
                ValueLocation::Here if fork.confirmed && !on_list() => {
                    return Err(format!(
                        "{} is confirmed, but its owner does not know (R1)",
                        f(*id)
                    ));
                }
                ValueLocation::Here if fork.confirmed && !fork.stale && value.status == Status::Freed => {
                    return Err(format!("{} is confirmed, but its value is freed (R1)", f(*id)));
                }
                // From when its giver is in doubt the receiver decides.
                ValueLocation::Flying if fork.in_doubt => {}
                ValueLocation::Here | ValueLocation::Flying
                    if !fork.confirmed && value.status == Status::Freed && truth.has_claim(fork) =>
                {
                    return Err(format!("{} has a claim, but its value is freed (R2)", f(*id)));
                }
                ValueLocation::Here
                | ValueLocation::Flying
                | ValueLocation::Dropped
                | ValueLocation::Nowhere => {}
            }
        }
        for (id, fork) in &truth.forks {
            let owner = truth.owner(fork);
            if fork.place == ValueLocation::Here
                && truth.up[fork.holder]
                && !fork.lost
                && self.counts_as_dead(fork.holder, owner)
            {
                return Err(format!("{} outlives its owner (R6)", f(*id)));
            }
        }
        Ok(())
    }

    /// When nothing happens any more by itself.
    pub(super) fn check_settled(&self) -> Result<(), Wrong> {
        for (id, fork) in self.truth.in_use() {
            if !fork.confirmed {
                return Err(format!("{} is neither confirmed nor lost", f(*id)));
            }
        }
        for (reference, value) in &self.truth.values {
            if value.waited_for && self.truth.up[value.owner] {
                return Err(format!("{} is waited for in vain", r(*reference)));
            }
        }
        let living = (0..self.workers.len()).filter(|worker| self.truth.up[*worker]);
        living.into_iter().try_for_each(|at| self.check_protocol(at))
    }

    /// A protocol state has what it should have and nothing else (R3, R4, R6).
    fn check_protocol(&self, at: usize) -> Result<(), Wrong> {
        let truth = &self.truth;
        let protocol = &self.workers[at].protocol;
        let here = |(id, fork): (&ForkId, &super::truth::Fork)| {
            (fork.place == ValueLocation::Here && fork.holder == at).then_some(*id)
        };
        let mut held: Vec<_> = protocol.held.keys().copied().collect();
        held.sort_unstable();
        if !truth.forks.iter().filter_map(here).eq(held.iter().copied()) {
            return Err(format!(
                "{} holds {held:?}, its program something else (R4)",
                w(at)
            ));
        }
        let count = protocol.count();
        let still = Count {
            owned: count.owned,
            held: held.len(),
            ..Count::default()
        };
        if count != still || !protocol.accepting.is_empty() {
            return Err(format!("{} is not done: {count:?}", w(at)));
        }
        let mut on_lists = 0;
        for (reference, owned) in &protocol.owned {
            if owned.made == Made::Awaited || owned.forks.is_empty() {
                return Err(format!("{} still has {}: {owned:?} (R4)", w(at), r(*reference)));
            }
            for (id, holder) in &owned.forks {
                let fork = &truth.forks[id];
                let same = (fork.reference, fork.holder) == (*reference, index(*holder));
                if !same || !truth.up[fork.holder] || fork.place != ValueLocation::Here {
                    return Err(format!("{} is on the list of {} (R3, R6)", f(*id), r(*reference)));
                }
            }
            on_lists += owned.forks.len();
        }
        let in_use = truth.in_use().filter(|(_, fork)| truth.owner(fork) == at).count();
        if on_lists != in_use {
            return Err(format!(
                "{} knows of {on_lists} references of {in_use} (R1)",
                w(at)
            ));
        }
        for id in &protocol.refused {
            let by = index(id.0.by);
            let handed_over = truth.forks.get(id).is_some_and(|fork| match fork.parent {
                Some(_) => fork.place == ValueLocation::Nowhere && fork.holder == at,
                None => {
                    let value = &truth.values[&fork.reference];
                    value.vanished && value.owner == at
                }
            });
            if !handed_over || !truth.up[by] {
                return Err(format!(
                    "{} has a note of {}, which was not lost (R4)",
                    w(at),
                    f(*id)
                ));
            }
        }
        let gone = |worker: &usize| !truth.up[*worker];
        for other in (0..self.workers.len()).filter(gone) {
            let lost = protocol.held.values().any(|held| index(held.owner) == other);
            if protocol.concerns(incarnation(other)) && !lost
                || protocol.channels.contains_key(&incarnation(other))
            {
                return Err(format!("{} still has something of {} (R6)", w(at), w(other)));
            }
        }
        Ok(())
    }

    pub(super) fn is_awaited(&self, reference: super::RefId) -> bool {
        let owner = self.truth.values[&reference].owner;
        let owned = self.workers[owner].protocol.owned.get(&reference);
        owned.is_some_and(|owned| owned.made == Made::Awaited)
    }
}
