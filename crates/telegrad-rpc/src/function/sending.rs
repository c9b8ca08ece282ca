//! Whether and how the value of a function travels.

use std::marker::PhantomData;

use telegrad_wire::{Layouts, Payload, TypeNumber, Wire};

use super::LocalOnly;
use super::callable::Callable;
use super::local_only::encode;
use super::registration::Trouble;

/// A function's value, for [`sending!`](crate::__private::sending): the compiler finds the method of [`Travels`], on the
/// type itself, before that of [`Stays`], on the reference.
#[derive(Debug)]
pub struct ValueOf<T>(PhantomData<fn() -> T>);

/// The value of a function.
pub fn value_of<M, F: Callable<M>>(_: F) -> ValueOf<F::Value> {
    ValueOf(PhantomData)
}

/// What can be done with values that travel.
#[derive(Debug)]
pub struct Sending<T> {
    pub(super) encode: fn(&T) -> Result<Payload, Trouble>,
    pub(super) keep: fn(T) -> LocalOnly,
    pub(super) describe: fn(&mut Layouts) -> TypeNumber,
}

/// Values that can travel.
pub trait Travels<T> {
    /// How.
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

/// Values that stay where they are made.
pub trait Stays<T> {
    /// Not at all.
    fn sending(&self) -> Option<Sending<T>>;
}

impl<T> Stays<T> for &ValueOf<T> {
    fn sending(&self) -> Option<Sending<T>> {
        None
    }
}

/// Whether and how a function's value travels.
#[doc(hidden)]
#[macro_export]
macro_rules! __sending {
    ($function:expr) => {{
        #[allow(unused_imports, reason = "one of the two is used")]
        use $crate::__private::{Stays as _, Travels as _};
        (&$crate::__private::value_of($function)).sending()
    }};
}
