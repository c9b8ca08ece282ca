//! Checks of the protocol states against the oracle.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::oracle::{ForkLocation, Status, Violation, f, r, w};
use super::world::{Step, World, incarnation, index};
use super::{Creation, ForkId, ProtocolCounts};

impl World {
    /// Applies a step and checks the world.
    pub(super) fn step_and_check(&mut self, step: Step) -> Result<(), Violation> {
        // After a panic only the log is used, not the protocol states.
        let taken = catch_unwind(AssertUnwindSafe(|| self.take(step)));
        taken.unwrap_or_else(|_| Err("a protocol state panicked, see above".into()))?;
        self.check()
    }

    /// Checks what holds after every step.
    fn check(&self) -> Result<(), Violation> {
        let oracle = &self.oracle;
        for (at, worker) in self.workers.iter().enumerate() {
            let held = worker.protocol.held.values();
            if held.filter(|held| held.is_unconfirmed()).count() != worker.protocol.unconfirmed {
                return Err(format!("{} has a wrong count of unconfirmed references", w(at)));
            }
        }
        for (id, fork) in &oracle.forks {
            let owner = oracle.owner(fork);
            let value = &oracle.values[&fork.reference];
            if !oracle.up[owner] || !oracle.up[fork.holder] || fork.lost {
                continue;
            }
            let on_list = || {
                let owned = self.workers[owner].protocol.owned.get(&fork.reference);
                owned.and_then(|owned| owned.forks.get(id)) == Some(&incarnation(fork.holder))
            };
            match fork.location {
                ForkLocation::Held if fork.confirmed && !on_list() => {
                    return Err(format!(
                        "{} is confirmed, but not listed by its owner (R1)",
                        f(*id)
                    ));
                }
                ForkLocation::Held if fork.confirmed && !fork.stale && value.status == Status::Freed => {
                    return Err(format!("{} is confirmed, but its value is freed (R1)", f(*id)));
                }
                // Once its sender is in doubt, the receiver decides.
                ForkLocation::InTransit if fork.in_doubt => {}
                ForkLocation::Held | ForkLocation::InTransit
                    if !fork.confirmed && value.status == Status::Freed && oracle.protects_value(fork) =>
                {
                    return Err(format!("{} is unconfirmed, but its value is freed (R2)", f(*id)));
                }
                ForkLocation::Held
                | ForkLocation::InTransit
                | ForkLocation::Dropped
                | ForkLocation::NeverArrived => {}
            }
        }
        for (id, fork) in &oracle.forks {
            let owner = oracle.owner(fork);
            if fork.location == ForkLocation::Held
                && oracle.up[fork.holder]
                && !fork.lost
                && self.counts_as_lost(fork.holder, owner)
            {
                return Err(format!("{} outlives its owner (R6)", f(*id)));
            }
        }
        Ok(())
    }

    /// Checks what holds in an idle world.
    pub(super) fn check_idle(&self) -> Result<(), Violation> {
        for (id, fork) in self.oracle.in_use() {
            if !fork.confirmed {
                return Err(format!("{} is neither confirmed nor lost", f(*id)));
            }
        }
        for (reference, value) in &self.oracle.values {
            if value.waited_for && self.oracle.up[value.owner] {
                return Err(format!("{} is awaited, but will not be created", r(*reference)));
            }
        }
        let living = (0..self.workers.len()).filter(|worker| self.oracle.up[*worker]);
        living.into_iter().try_for_each(|at| self.check_protocol(at))
    }

    /// Checks that a protocol state has exactly what the oracle expects (R3, R4, R6).
    fn check_protocol(&self, at: usize) -> Result<(), Violation> {
        let oracle = &self.oracle;
        let protocol = &self.workers[at].protocol;
        let here = |(id, fork): (&ForkId, &super::oracle::Fork)| {
            (fork.location == ForkLocation::Held && fork.holder == at).then_some(*id)
        };
        let mut held: Vec<_> = protocol.held.keys().copied().collect();
        held.sort_unstable();
        if !oracle.forks.iter().filter_map(here).eq(held.iter().copied()) {
            return Err(format!("{} holds {held:?}, unlike its program (R4)", w(at)));
        }
        let count = protocol.counts();
        let still = ProtocolCounts {
            owned: count.owned,
            held: held.len(),
            ..ProtocolCounts::default()
        };
        if count != still || !protocol.accepting.is_empty() {
            return Err(format!("{} is not idle: {count:?}", w(at)));
        }
        let mut on_lists = 0;
        for (reference, owned) in &protocol.owned {
            if owned.creation == Creation::Awaited || owned.forks.is_empty() {
                return Err(format!(
                    "{} has not freed {}: {owned:?} (R4)",
                    w(at),
                    r(*reference)
                ));
            }
            for (id, holder) in &owned.forks {
                let fork = &oracle.forks[id];
                let same = (fork.reference, fork.holder) == (*reference, index(*holder));
                if !same || !oracle.up[fork.holder] || fork.location != ForkLocation::Held {
                    return Err(format!(
                        "{} is still listed for {} (R3, R6)",
                        f(*id),
                        r(*reference)
                    ));
                }
            }
            on_lists += owned.forks.len();
        }
        let in_use = oracle
            .in_use()
            .filter(|(_, fork)| oracle.owner(fork) == at)
            .count();
        if on_lists != in_use {
            return Err(format!(
                "{} lists {on_lists} references, {in_use} are in use (R1)",
                w(at)
            ));
        }
        for id in &protocol.refused {
            let by = index(id.0.by);
            let is_justified = oracle.forks.get(id).is_some_and(|fork| match fork.parent {
                Some(_) => fork.location == ForkLocation::NeverArrived && fork.holder == at,
                None => {
                    let value = &oracle.values[&fork.reference];
                    value.request_lost && value.owner == at
                }
            });
            if !is_justified || !oracle.up[by] {
                return Err(format!(
                    "{} has a tombstone of {}, which was not lost (R4)",
                    w(at),
                    f(*id)
                ));
            }
        }
        let crashed = |worker: &usize| !oracle.up[*worker];
        for other in (0..self.workers.len()).filter(crashed) {
            let lost = protocol.held.values().any(|held| index(held.owner) == other);
            if protocol.concerns(incarnation(other)) && !lost
                || protocol.channels.contains_key(&incarnation(other))
            {
                return Err(format!("{} has state left of {} (R6)", w(at), w(other)));
            }
        }
        Ok(())
    }

    pub(super) fn is_awaited(&self, reference: super::RefId) -> bool {
        let owner = self.oracle.values[&reference].owner;
        let owned = self.workers[owner].protocol.owned.get(&reference);
        owned.is_some_and(|owned| owned.creation == Creation::Awaited)
    }
}
