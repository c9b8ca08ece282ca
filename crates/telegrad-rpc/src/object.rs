//! A value that methods are called on.

use std::any::Any;

use parking_lot::RwLock;

/// Holds a value of any type for methods to run on: `&self` methods side by side, `&mut self`
/// methods alone.
pub struct Object(RwLock<Box<dyn Any + Send + Sync>>);

impl Object {
    /// Holds `value`.
    pub fn new<T: Any + Send + Sync>(value: T) -> Self {
        Self(RwLock::new(Box::new(value)))
    }

    /// Runs `with` on the value; `None` when it is of another type.
    pub fn shared<T: Any, R>(&self, with: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.read().downcast_ref().map(with)
    }

    /// Runs `with` on the value while nobody else does; `None` when it is of another type.
    pub fn exclusive<T: Any, R>(&self, with: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.write().downcast_mut().map(with)
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object").finish_non_exhaustive()
    }
}
