//! What is true in the world, kept apart from what the protocol states believe.

use std::collections::BTreeMap;

use super::{ForkId, Loss, RefId};

/// What is wrong.
pub(super) type Wrong = String;

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Truth {
    pub(super) values: BTreeMap<RefId, Value>,
    pub(super) forks: BTreeMap<ForkId, Fork>,
    /// Whether each worker lives.
    pub(super) up: Vec<bool>,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Value {
    pub(super) owner: usize,
    pub(super) status: Status,
    /// Its creator has been told that the request may be lost.
    pub(super) in_doubt: bool,
    /// The request has been lost.
    pub(super) vanished: bool,
    /// A call on the owner waits for it to be made.
    pub(super) waited_for: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Status {
    Asked,
    Made,
    /// The owner has given it up: who waits for it gets an error.
    Failed,
    Freed,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Fork {
    pub(super) reference: RefId,
    /// Who has it, or will.
    pub(super) holder: usize,
    /// What it was made from, and by whom; nothing for the first.
    pub(super) parent: Option<(ForkId, usize)>,
    /// The connection that it, or the request for its value, went over.
    pub(super) over: u64,
    pub(super) place: ValueLocation,
    pub(super) confirmed: bool,
    pub(super) lost: bool,
    /// It was confirmed after its value had been freed.
    pub(super) stale: bool,
    /// Its giver has been told that it may be lost.
    pub(super) in_doubt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ValueLocation {
    Flying,
    /// The program holds it.
    Here,
    /// The program has dropped it.
    Dropped,
    /// It has not arrived and will not.
    Nowhere,
}

impl Truth {
    pub(super) fn owner(&self, fork: &Fork) -> usize {
        self.values[&fork.reference].owner
    }

    /// Whether an unconfirmed fork has a claim to its value: everybody lives through whose hands it came
    /// since it was last certain that the owner knows.
    pub(super) fn has_claim(&self, fork: &Fork) -> bool {
        let Some((parent, giver)) = fork.parent else {
            return self.up[fork.holder];
        };
        let parent = &self.forks[&parent];
        self.up[giver]
            && match parent {
                Fork { lost: true, .. } => false,
                Fork { confirmed: true, .. } => !parent.stale,
                _ => self.has_claim(parent),
            }
    }

    /// Forks that living programs hold of values whose owners live, and that are not known to be useless.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (&ForkId, &Fork)> {
        self.forks.iter().filter(|(_, fork)| {
            fork.place == ValueLocation::Here
                && !fork.lost
                && self.up[fork.holder]
                && self.up[self.owner(fork)]
        })
    }

    /// The owner knows of this fork, or so its holder is told.
    pub(super) fn confirm(&mut self, id: ForkId) -> Result<(), Wrong> {
        let fork = &self.forks[&id];
        let value = &self.values[&fork.reference];
        let stale = value.status == Status::Freed && self.up[value.owner];
        if stale && self.has_claim(fork) {
            return Err(format!("{} is confirmed after its value was freed (R2)", f(id)));
        }
        let fork = self.forks.get_mut(&id).expect("it was found just now");
        fork.confirmed = true;
        fork.stale = stale;
        Ok(())
    }

    pub(super) fn lose(&mut self, id: ForkId, loss: Loss) -> Result<(), Wrong> {
        let fork = &self.forks[&id];
        let justified = match loss {
            Loss::Owner => !self.up[self.owner(fork)],
            Loss::Gone => !fork.confirmed && !self.has_claim(fork),
            Loss::Creator | Loss::Request => false,
        };
        if !justified {
            return Err(format!("{} is lost ({loss:?}) without a reason (R1, R2)", f(id)));
        }
        self.forks.get_mut(&id).expect("it was found just now").lost = true;
        Ok(())
    }

    pub(super) fn make(&mut self, reference: RefId, carried_out: bool) -> Result<(), Wrong> {
        let value = self
            .values
            .get_mut(&reference)
            .expect("somebody has asked for it");
        match (value.status, carried_out) {
            (Status::Asked, true) => value.status = Status::Made,
            (status, true) => return Err(format!("{} is made though it is {status:?} (R5)", r(reference))),
            (Status::Asked | Status::Made, false) => {
                return Err(format!("{} is not made though it was asked for", r(reference)));
            }
            (Status::Failed | Status::Freed, false) => {}
        }
        value.waited_for = false;
        Ok(())
    }

    pub(super) fn fail(&mut self, reference: RefId, loss: Loss) -> Result<(), Wrong> {
        let creator_lives = self.up[reference.0.by.0 as usize];
        let value = self
            .values
            .get_mut(&reference)
            .expect("somebody has asked for it");
        let justified = match (value.status, loss) {
            (Status::Asked, Loss::Request) => value.in_doubt,
            (Status::Asked | Status::Freed, Loss::Creator) => !creator_lives,
            (Status::Freed, Loss::Gone) => true,
            _ => false,
        };
        if !justified {
            let status = value.status;
            return Err(format!(
                "{} is given up ({loss:?}) though it is {status:?}",
                r(reference)
            ));
        }
        value.status = Status::Failed;
        value.waited_for = false;
        Ok(())
    }

    pub(super) fn free(&mut self, reference: RefId) -> Result<(), Wrong> {
        let value = self
            .values
            .get_mut(&reference)
            .expect("somebody has asked for it");
        match value.status {
            Status::Made | Status::Failed => value.status = Status::Freed,
            Status::Asked => return Err(format!("{} is freed before it is made (R2)", r(reference))),
            Status::Freed => return Err(format!("{} is freed twice (R3)", r(reference))),
        }
        Ok(())
    }
}

/// What a worker is called in a trace.
pub(super) fn w(worker: usize) -> String {
    format!("w{worker}")
}

/// What a value is called in a trace.
pub(super) fn r(reference: RefId) -> String {
    format!("r{}.{}", reference.0.by.0, reference.0.number)
}

/// What a fork is called in a trace.
pub(super) fn f(fork: ForkId) -> String {
    format!("f{}.{}", fork.0.by.0, fork.0.number)
}
