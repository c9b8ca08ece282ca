//! Compile-time detection of function values that can be sent.

use std::marker::PhantomData;

use telegrad_wire::{Layouts, Payload, TypeNumber, Wire};

use super::LocalOnly;
use super::callable::Callable;
use super::local_only::encode;
use super::registration::Failure;

/// The type of a function's value, for [`sending!`](crate::__private::sending).
///
/// Method lookup finds `sending` of [`WireValue`], on the type itself, before that of [`LocalOnlyValue`], on the reference.
#[derive(Debug)]
pub struct ValueOf<T>(PhantomData<fn() -> T>);

/// Returns the type of a function's value.
pub fn value_of<M, F: Callable<M>>(_: F) -> ValueOf<F::Value> {
    ValueOf(PhantomData)
}

/// The operations on function values that can be sent.
#[derive(Debug)]
pub struct Sending<T> {
    pub(super) encode: fn(&T) -> Result<Payload, Failure>,
    pub(super) keep: fn(T) -> LocalOnly,
    pub(super) describe: fn(&mut Layouts) -> TypeNumber,
}

/// Values that can be sent.
pub trait WireValue<T> {
    /// Returns the operations.
    fn sending(&self) -> Option<Sending<T>>;
}

impl<T: Wire + Send + Sync> WireValue<T> for ValueOf<T> {
    fn sending(&self) -> Option<Sending<T>> {
        Some(Sending {
            encode,
            keep: LocalOnly::wire,
            describe: T::layout,
        })
    }
}

/// Values that stay on their worker.
pub trait LocalOnlyValue<T> {
    /// Returns `None`.
    fn sending(&self) -> Option<Sending<T>>;
}

impl<T> LocalOnlyValue<T> for &ValueOf<T> {
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
        use $crate::__private::{LocalOnlyValue as _, WireValue as _};
        (&$crate::__private::value_of($function)).sending()
    }};
}
