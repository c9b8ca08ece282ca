//! Functions that wait for each other or for the end of the test.

use std::pin::Pin;
use std::sync::{Condvar, Mutex};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use telegrad::prelude::*;

use super::super::LIMIT;

/// An object whose methods run one at a time.
pub(super) struct Slot;

#[remote]
impl Slot {
    pub(super) fn new() -> Result<Self> {
        Ok(Self)
    }

    /// Calls `second` on `b`.
    pub(super) fn first(&mut self, this: RRef<Slot>) -> Result<u32> {
        World::current()?.rpc_sync("b", second, (this,))
    }

    pub(super) fn last(&mut self) -> u32 {
        4
    }

    /// Calls a method that needs only a thread, once another request queues for the only one.
    pub(super) fn look(&self, this: RRef<Slot>) -> Result<u32> {
        while World::current()?.debug_info().queued == 0 {
            thread::sleep(Duration::from_millis(5));
        }
        this.rpc_sync(Slot::glance, ())
    }

    pub(super) fn glance(&self) -> u32 {
        5
    }

    /// Waits for a call to this object, then gives it up and waits for the gate.
    pub(super) fn give_up(&mut self, this: RRef<Slot>) -> Result<()> {
        let mut last = this.rpc_async(Slot::last, ())?;
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut last).poll(&mut context).is_pending());
        last.detach();
        GATE.wait();
        Ok(())
    }

    /// Lets `a` send more requests than its credit allows.
    pub(super) fn ask(&mut self, this: RRef<Slot>) -> Result<()> {
        World::current()?.rpc_sync("a", flood, (this,))
    }

    pub(super) fn take(&mut self, bytes: Vec<u8>) -> usize {
        bytes.len()
    }

    /// Makes calls to this object without waiting for them.
    pub(super) fn proceed(&mut self, this: RRef<Slot>) -> Result<()> {
        this.rpc_async(Slot::last, ())?.detach();
        let _kept = this.rpc_async(Slot::last, ())?;
        GATE.wait();
        Ok(())
    }
}

#[remote]
pub(super) fn flood(slot: RRef<Slot>) -> Result<()> {
    let calls: Result<Vec<_>> = (0..100)
        .map(|_| slot.rpc_async(Slot::take, (vec![1; 8000],)))
        .collect();
    calls?.into_iter().for_each(RpcFuture::detach);
    Ok(())
}

#[remote]
pub(super) fn second(slot: RRef<Slot>) -> Result<u32> {
    World::current()?.rpc_sync("c", third, (slot,))
}

/// Returns to the first object.
#[remote]
pub(super) fn third(slot: RRef<Slot>) -> Result<u32> {
    slot.rpc_sync(Slot::last, ())
}

/// A value whose constructor waits for the value.
pub(super) struct Egg;

/// Holds the reference that the constructor waits for.
#[derive(Default)]
pub(super) struct Nest(Option<RRef<Egg>>);

#[remote]
impl Egg {
    pub(super) fn lay(nest: RRef<Nest>) -> Result<Self> {
        while !nest.rpc_sync(Nest::is_full, ())? {
            thread::sleep(Duration::from_millis(5));
        }
        nest.rpc_sync(Nest::hatch, ())?;
        Ok(Self)
    }

    pub(super) fn hatch(&self) -> u32 {
        1
    }
}

#[remote]
impl Nest {
    pub(super) fn build() -> Result<Self> {
        Ok(Self::default())
    }

    pub(super) fn put(&mut self, egg: RRef<Egg>) {
        self.0 = Some(egg);
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn hatch(&self) -> Result<u32> {
        let egg = self.0.as_ref().ok_or_else(|| Error::other("the nest is empty"))?;
        egg.rpc_sync(Egg::hatch, ())
    }
}

/// A gate that stays closed for longer than any test takes.
pub(super) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(super) const fn new() -> Self {
        Self {
            is_open: Mutex::new(false),
            opened: Condvar::new(),
        }
    }

    pub(super) fn wait(&self) {
        let is_open = self.is_open.lock().unwrap();
        let waited = self
            .opened
            .wait_timeout_while(is_open, 3 * LIMIT, |is_open| !*is_open);
        drop(waited.unwrap());
    }
}

pub(super) static GATE: Gate = Gate::new();

/// Runs until the test ends.
#[remote]
pub(super) fn hold() {
    GATE.wait();
}

/// Visits the workers of `to` by nested calls, and waits on the last one.
#[remote]
pub(super) fn round(to: Vec<String>) -> Result<()> {
    match to.split_first() {
        Some((next, rest)) => World::current()?.rpc_sync(&**next, round, (rest.to_vec(),)),
        None => {
            GATE.wait();
            Ok(())
        }
    }
}
