//! The oracle: the real state of the world, independent of the protocol states.

use std::collections::BTreeMap;

use super::{ForkId, Loss, RefId};

/// A description of a violated rule.
pub(super) type Violation = String;

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Oracle {
    pub(super) values: BTreeMap<RefId, Value>,
    pub(super) forks: BTreeMap<ForkId, Fork>,
    /// Whether each worker lives: false after its crash.
    pub(super) up: Vec<bool>,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Value {
    pub(super) owner: usize,
    pub(super) status: Status,
    /// The creator was notified that the request may be lost.
    pub(super) in_doubt: bool,
    /// The request has been lost.
    pub(super) request_lost: bool,
    /// A call on the owner waits for the value to be created.
    pub(super) waited_for: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Status {
    Asked,
    Creation,
    /// Failed by the owner: calls that wait for the value get an error.
    Failed,
    Freed,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Fork {
    pub(super) reference: RefId,
    /// The worker that holds it, or will.
    pub(super) holder: usize,
    /// The fork that it was made from and its holder; `None` for the first fork.
    pub(super) parent: Option<(ForkId, usize)>,
    /// The connection that carried the fork, or the request for its value.
    pub(super) connection: u64,
    pub(super) location: ForkLocation,
    pub(super) confirmed: bool,
    pub(super) lost: bool,
    /// Whether it was confirmed after its value was freed.
    pub(super) stale: bool,
    /// Whether its sender was notified that it may be lost.
    pub(super) in_doubt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ForkLocation {
    InTransit,
    /// The program holds it.
    Held,
    /// The program has dropped it.
    Dropped,
    /// It was lost in transit.
    NeverArrived,
}

impl Oracle {
    pub(super) fn owner(&self, fork: &Fork) -> usize {
        self.values[&fork.reference].owner
    }

    /// Whether an unconfirmed fork keeps its value from being freed (R2): every sender in its chain lives, back to the last fork that
    /// the owner has listed.
    pub(super) fn protects_value(&self, fork: &Fork) -> bool {
        let Some((parent, sender)) = fork.parent else {
            return self.up[fork.holder];
        };
        let parent = &self.forks[&parent];
        self.up[sender]
            && match parent {
                Fork { lost: true, .. } => false,
                Fork { confirmed: true, .. } => !parent.stale,
                _ => self.protects_value(parent),
            }
    }

    /// Returns the forks that count: held by a living program, not lost, and with a living owner.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (&ForkId, &Fork)> {
        self.forks.iter().filter(|(_, fork)| {
            fork.location == ForkLocation::Held
                && !fork.lost
                && self.up[fork.holder]
                && self.up[self.owner(fork)]
        })
    }

    /// Notes that the holder of a fork was notified of its confirmation.
    pub(super) fn confirm(&mut self, id: ForkId) -> Result<(), Violation> {
        let fork = &self.forks[&id];
        let value = &self.values[&fork.reference];
        let stale = value.status == Status::Freed && self.up[value.owner];
        if stale && self.protects_value(fork) {
            return Err(format!("{} is confirmed after its value was freed (R2)", f(id)));
        }
        let fork = self.forks.get_mut(&id).expect("found just now");
        fork.confirmed = true;
        fork.stale = stale;
        Ok(())
    }

    pub(super) fn lose(&mut self, id: ForkId, loss: Loss) -> Result<(), Violation> {
        let fork = &self.forks[&id];
        let justified = match loss {
            Loss::Owner => !self.up[self.owner(fork)],
            Loss::Value => !fork.confirmed && !self.protects_value(fork),
            Loss::Creator | Loss::Request => false,
        };
        if !justified {
            return Err(format!("{} is lost ({loss:?}) without a reason (R1, R2)", f(id)));
        }
        self.forks.get_mut(&id).expect("found just now").lost = true;
        Ok(())
    }

    pub(super) fn make(&mut self, reference: RefId, carried_out: bool) -> Result<(), Violation> {
        let value = self.values.get_mut(&reference).expect("the value was requested");
        match (value.status, carried_out) {
            (Status::Asked, true) => value.status = Status::Creation,
            (status, true) => return Err(format!("{} is made though it is {status:?} (R5)", r(reference))),
            (Status::Asked | Status::Creation, false) => {
                return Err(format!("{} is not made though it was asked for", r(reference)));
            }
            (Status::Failed | Status::Freed, false) => {}
        }
        value.waited_for = false;
        Ok(())
    }

    pub(super) fn fail(&mut self, reference: RefId, loss: Loss) -> Result<(), Violation> {
        let creator_lives = self.up[reference.0.by.0 as usize];
        let value = self.values.get_mut(&reference).expect("the value was requested");
        let justified = match (value.status, loss) {
            (Status::Asked, Loss::Request) => value.in_doubt,
            (Status::Asked | Status::Freed, Loss::Creator) => !creator_lives,
            (Status::Freed, Loss::Value) => true,
            _ => false,
        };
        if !justified {
            let status = value.status;
            return Err(format!(
                "{} fails ({loss:?}) though it is {status:?}",
                r(reference)
            ));
        }
        value.status = Status::Failed;
        value.waited_for = false;
        Ok(())
    }

    pub(super) fn free(&mut self, reference: RefId) -> Result<(), Violation> {
        let value = self.values.get_mut(&reference).expect("the value was requested");
        match value.status {
            Status::Creation | Status::Failed => value.status = Status::Freed,
            Status::Asked => return Err(format!("{} is freed before it is made (R2)", r(reference))),
            Status::Freed => return Err(format!("{} is freed twice (R3)", r(reference))),
        }
        Ok(())
    }
}

/// Names a worker in the log.
pub(super) fn w(worker: usize) -> String {
    format!("w{worker}")
}

/// Names a value in the log.
pub(super) fn r(reference: RefId) -> String {
    format!("r{}.{}", reference.0.by.0, reference.0.number)
}

/// Names a fork in the log.
pub(super) fn f(fork: ForkId) -> String {
    format!("f{}.{}", fork.0.by.0, fork.0.number)
}
