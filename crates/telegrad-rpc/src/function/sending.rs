//! Compile-time detection of function values that can be sent.

use std::marker::PhantomData;

use telegrad_wire::{Layouts, Payload, TypeNumber, Wire};

use super::LocalOnly;
use super::callable::Callable;
use super::local_only::encode;
use super::registration::Trouble;

/// The type of a function's value, for [`sending!`](crate::__private::sending).
///
/// Method lookup finds `sending` of [`Travels`], on the type itself, before that of [`Stays`], on the reference.
#[derive(Debug)]
pub struct ValueOf<T>(PhantomData<fn() -> T>);

/// Returns the type of a function's value.
pub fn value_of<M, F: Callable<M>>(_: F) -> ValueOf<F::Value> {
    ValueOf(PhantomData)
}

/// The operations on function values that can be sent.
#[derive(Debug)]
pub struct Sending<T> {
    pub(super) encode: fn(&T) -> Result<Payload, Trouble>,
    pub(super) keep: fn(T) -> LocalOnly,
    pub(super) describe: fn(&mut Layouts) -> TypeNumber,
}

/// Values that can be sent.
pub trait Travels<T> {
    /// Returns the operations.
    fn sending(&self) -> Option<Sending<T>>;
}

impl<T: Wire + Send + Sync> Travels<T> for ValueOf<T> {
    fn sending(&self) -> Option<Sending<T>> {
        Some(Sending {
            encode,
            keep: LocalOnly::wire,
            describe: T::layout,
        })
    }
}

/// Values that stay on their worker.
pub trait Stays<T> {
    /// Returns `None`.
    fn sending(&self) -> Option<Sending<T>>;
}

impl<T> Stays<T> for &ValueOf<T> {
    fn sending(&self) -> Option<Sending<T>> {
        None
    }
}

/// Returns the `Sending` operations of a function's value, if it can be sent.
#[doc(hidden)]
#[macro_export]
macro_rules! __sending {
    ($function:expr) => {{
        #[allow(unused_imports, reason = "one of the two is used")]
        use $crate::__private::{Stays as _, Travels as _};
        (&$crate::__private::value_of($function)).sending()
    }};
}
