//! Guards of the value of a reference, on its owner.

use std::any::Any;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use async_lock::{RwLockReadGuardArc, RwLockWriteGuardArc};

/// A guard for shared use of a value, as in a `&self` method; from [`RRef::local_value`](crate::RRef::local_value).
///
/// Exclusive uses wait until the guard is dropped.
pub struct LocalValue<T> {
    guard: RwLockReadGuardArc<Box<dyn Any + Send + Sync>>,
    of: PhantomData<T>,
}

/// A guard for exclusive use of a value, as in a `&mut self` method; from
/// [`RRef::local_value_mut`](crate::RRef::local_value_mut).
///
/// All other uses wait until the guard is dropped.
pub struct LocalValueMut<T> {
    guard: RwLockWriteGuardArc<Box<dyn Any + Send + Sync>>,
    of: PhantomData<T>,
}

impl<T: 'static> LocalValue<T> {
    /// Returns `None` if the value is of another type.
    pub(super) fn new(guard: RwLockReadGuardArc<Box<dyn Any + Send + Sync>>) -> Option<Self> {
        guard.is::<T>().then_some(Self {
            guard,
            of: PhantomData,
        })
    }
}

impl<T: 'static> LocalValueMut<T> {
    /// Returns `None` if the value is of another type.
    pub(super) fn new(guard: RwLockWriteGuardArc<Box<dyn Any + Send + Sync>>) -> Option<Self> {
        guard.is::<T>().then_some(Self {
            guard,
            of: PhantomData,
        })
    }
}

impl<T: 'static> Deref for LocalValue<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard
            .downcast_ref()
            .expect("the constructor checked the type")
    }
}

impl<T: 'static> Deref for LocalValueMut<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard
            .downcast_ref()
            .expect("the constructor checked the type")
    }
}

impl<T: 'static> DerefMut for LocalValueMut<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard
            .downcast_mut()
            .expect("the constructor checked the type")
    }
}

impl<T: std::fmt::Debug + 'static> std::fmt::Debug for LocalValue<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LocalValue").field(&**self).finish()
    }
}

impl<T: std::fmt::Debug + 'static> std::fmt::Debug for LocalValueMut<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LocalValueMut").field(&**self).finish()
    }
}
