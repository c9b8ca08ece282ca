//! Functions that wait, for each other or for the end of the test.

use std::pin::Pin;
use std::sync::{Condvar, Mutex};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use telegrad::prelude::*;

use super::super::LIMIT;

/// Something that one method at a time runs on.
pub(super) struct Slot;

#[remote]
impl Slot {
    pub(super) fn new() -> Result<Self> {
        Ok(Self)
    }

    /// Has `b` do the rest.
    pub(super) fn first(&mut self, this: RRef<Slot>) -> Result<u32> {
        World::current()?.rpc_sync("b", second, (this,))
    }

    pub(super) fn last(&mut self) -> u32 {
        4
    }

    /// Has something done that needs nothing but a thread, when somebody else is first in line for the only one.
    pub(super) fn look(&self, this: RRef<Slot>) -> Result<u32> {
        while World::current()?.debug_info().queued == 0 {
            thread::sleep(Duration::from_millis(5));
        }
        this.rpc_sync(Slot::glance, ())
    }

    pub(super) fn glance(&self) -> u32 {
        5
    }

    /// Waits for something of its own, then for something else, and lets go of it.
    pub(super) fn give_up(&mut self, this: RRef<Slot>) -> Result<()> {
        let mut last = this.rpc_async(Slot::last, ())?;
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut last).poll(&mut context).is_pending());
        last.detach();
        GATE.wait();
        Ok(())
    }

    /// Has more asked of this than there is room for.
    pub(super) fn ask(&mut self, this: RRef<Slot>) -> Result<()> {
        World::current()?.rpc_sync("a", flood, (this,))
    }

    pub(super) fn take(&mut self, bytes: Vec<u8>) -> usize {
        bytes.len()
    }

    /// Has something done later, and does not wait for it.
    pub(super) fn go_on(&mut self, this: RRef<Slot>) -> Result<()> {
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

/// Comes back to where it all began.
#[remote]
pub(super) fn third(slot: RRef<Slot>) -> Result<u32> {
    slot.rpc_sync(Slot::last, ())
}

/// A value that cannot be made without itself.
pub(super) struct Egg;

/// Where the two meet.
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
        let egg = self.0.as_ref().ok_or_else(|| Error::other("it is empty"))?;
        egg.rpc_sync(Egg::hatch, ())
    }
}

/// What stays shut until it is opened, and longer than any test takes.
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

/// Runs for as long as the test does.
#[remote]
pub(super) fn hold() {
    GATE.wait();
}

/// Comes back to the worker where it began, by way of the others, and stays there.
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
