//! Values that references refer to, and the slots that hold them.

use std::any::Any;
use std::sync::Arc;

use async_lock::{OnceCell, RwLock, RwLockReadGuardArc, RwLockWriteGuardArc};
use telegrad_wire::{Payload, TypeLayout};

use crate::error::RemoteError;
use crate::function::{Access, Encode, Failure, LocalOnly, Receiver, not_wire};

/// The slot of a value that exists or is being created. Waiting for the value holds no thread.
pub(super) type Slot = OnceCell<Result<Value, RemoteError>>;

/// A value behind an async lock: many users at a time for `&self`, one for `&mut self`.
pub(crate) struct Value {
    cell: Arc<Cell>,
    pub(super) type_name: &'static str,
    encode: Option<Encode>,
    /// `None` if the value cannot be sent.
    pub(crate) layout: Option<fn() -> TypeLayout>,
    is_quick: fn(&(dyn Any + Send + Sync)) -> bool,
}

type Cell = RwLock<Box<dyn Any + Send + Sync>>;

/// A lock guard of a value.
pub(crate) enum ValueGuard {
    Shared(RwLockReadGuardArc<Box<dyn Any + Send + Sync>>),
    Exclusive(RwLockWriteGuardArc<Box<dyn Any + Send + Sync>>),
}

impl Value {
    pub(crate) fn new(local: LocalOnly) -> Self {
        Self {
            cell: Arc::new(RwLock::new(local.value)),
            type_name: local.type_name,
            encode: local.encode,
            layout: local.layout,
            is_quick: local.is_quick,
        }
    }

    /// Whether the value is quick to encode; false while it is locked.
    pub(crate) fn is_quick(&self) -> bool {
        self.cell
            .try_read()
            .is_some_and(|value| (self.is_quick)(&**value))
    }

    /// Locks the value if it is free.
    pub(crate) fn try_enter(&self, access: Access) -> Option<ValueGuard> {
        match access {
            Access::Exclusive => self.cell.try_write_arc().map(ValueGuard::Exclusive),
            Access::Shared | Access::None => self.cell.try_read_arc().map(ValueGuard::Shared),
        }
    }

    /// Locks the value, waiting in turn.
    pub(crate) async fn enter(&self, access: Access) -> ValueGuard {
        match access {
            Access::Exclusive => ValueGuard::Exclusive(self.cell.write_arc().await),
            Access::Shared | Access::None => ValueGuard::Shared(self.cell.read_arc().await),
        }
    }

    /// Encodes the value.
    pub(crate) fn encode(&self, guard: &mut ValueGuard) -> Result<Payload, Failure> {
        let encode = self.encode.ok_or_else(|| not_wire(self.type_name))?;
        match guard.receiver() {
            Receiver::Shared(value) => encode(value),
            Receiver::Exclusive(value) => encode(value),
        }
    }
}

/// Takes the value out of a slot that has no other holder.
pub(super) fn last_of(slot: Arc<Slot>) -> Option<Box<dyn Any + Send + Sync>> {
    let value = Arc::into_inner(slot)?.into_inner()?.ok()?;
    Arc::into_inner(value.cell).map(RwLock::into_inner)
}

impl ValueGuard {
    pub(crate) fn receiver(&mut self) -> Receiver<'_> {
        match self {
            Self::Shared(value) => Receiver::Shared(&***value),
            Self::Exclusive(value) => Receiver::Exclusive(&mut ***value),
        }
    }
}
