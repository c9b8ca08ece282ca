//! The traits of functions that can be called remotely.
//!
//! The caller passes the function itself, which gives the compiler the types of arguments and result. [`Callable`] is
//! implemented for every kind of function. Its marker parameter distinguishes the kinds and is inferred.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use telegrad_wire::{BoxError, Outcome, Wire};

/// The outcome of starting a function.
pub enum Started<T> {
    /// The function has returned.
    Returned(Result<T, BoxError>),
    /// The future of an async function.
    Pending(Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>),
    /// A method without an object of its type.
    NoObject,
}

/// The object that a method runs on.
pub enum Receiver<'a> {
    /// For shared use.
    Shared(&'a (dyn Any + Send + Sync)),
    /// For exclusive use.
    Exclusive(&'a mut (dyn Any + Send + Sync)),
}

impl std::fmt::Debug for Receiver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Shared(_) => "Shared",
            Self::Exclusive(_) => "Exclusive",
        })
    }
}

/// How a function uses the value that it is called on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Not called on a value.
    None,
    /// As `&self`.
    Shared,
    /// As `&mut self`.
    Exclusive,
}

/// A function that can be registered with `#[remote]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a remote function",
    note = "arguments must implement `Wire`; the result must implement `Wire` or be a `Result`; an async function's future must be `Send`"
)]
pub trait Callable<Marker>: Copy + Send + Sync + 'static {
    /// The arguments, as a tuple.
    type Args: Wire;
    /// The value it returns, errors aside.
    type Value: Send + Sync + 'static;

    /// How it uses the value that it is called on.
    const ACCESS: Access;

    /// Runs the function; a method on `receiver`.
    fn run(self, args: Self::Args, receiver: Option<Receiver<'_>>) -> Started<Self::Value>;
}

/// A function that is not a method. It can be called on any worker.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be called on a worker",
    note = "it must be a remote function, and not a method: a method is called on a reference to its object"
)]
pub trait FreeFn<Marker>: Callable<Marker> {}

impl<F: Callable<M>, M: OfFree> FreeFn<M> for F {}

/// A method. It can be called on a reference to its object.
pub trait Method<Marker>: Callable<Marker> {
    /// The type it is a method of.
    type Object: 'static;
}

impl<F: Callable<M>, M: OfMethod> Method<M> for F {
    type Object = M::Object;
}

/// Rejects function pointers and capturing closures at compile time. Only the type of a function item, whose values have
/// no size, identifies the function.
#[track_caller]
pub(crate) const fn assert_is_function<F>() {
    assert!(
        size_of::<F>() == 0,
        "a function pointer or a capturing closure cannot be called remotely: pass a function marked #[remote] by its name"
    );
}

/// The markers of functions that are not methods.
pub trait OfFree {}

/// The markers of methods.
pub trait OfMethod {
    /// The type it is a method of.
    type Object: 'static;
}

/// Marks a function.
#[derive(Debug)]
pub struct Plain<Args, R>(PhantomData<fn(Args) -> R>);

/// Marks an async function.
#[derive(Debug)]
pub struct Async<Args, R>(PhantomData<fn(Args) -> R>);

/// Marks a `&self` method.
#[derive(Debug)]
pub struct Shared<T, Args, R>(PhantomData<fn(T, Args) -> R>);

/// Marks a `&mut self` method.
#[derive(Debug)]
pub struct Exclusive<T, Args, R>(PhantomData<fn(T, Args) -> R>);

impl<Args, R> OfFree for Plain<Args, R> {}

impl<Args, R> OfFree for Async<Args, R> {}

impl<T: 'static, Args, R> OfMethod for Shared<T, Args, R> {
    type Object = T;
}

impl<T: 'static, Args, R> OfMethod for Exclusive<T, Args, R> {
    type Object = T;
}

macro_rules! callable {
    ($($arg:ident)*) => {
        impl<F, R, $($arg),*> Callable<Plain<($($arg,)*), R>> for F
        where
            F: Fn($($arg),*) -> R + Copy + Send + Sync + 'static,
            R: Outcome,
            $($arg: Wire,)*
        {
            type Args = ($($arg,)*);
            type Value = R::Value;
            const ACCESS: Access = Access::None;

            #[allow(non_snake_case, reason = "type parameters name the arguments")]
            fn run(self, ($($arg,)*): Self::Args, _: Option<Receiver<'_>>) -> Started<Self::Value> {
                Started::Returned(self($($arg),*).into_result())
            }
        }

        impl<F, R, $($arg),*> Callable<Async<($($arg,)*), R>> for F
        where
            F: Fn($($arg),*) -> R + Copy + Send + Sync + 'static,
            R: Future<Output: Outcome> + Send + 'static,
            $($arg: Wire,)*
        {
            type Args = ($($arg,)*);
            type Value = <R::Output as Outcome>::Value;
            const ACCESS: Access = Access::None;

            #[allow(non_snake_case, reason = "type parameters name the arguments")]
            fn run(self, ($($arg,)*): Self::Args, _: Option<Receiver<'_>>) -> Started<Self::Value> {
                let future = self($($arg),*);
                Started::Pending(Box::pin(async move { future.await.into_result() }))
            }
        }

        impl<F, T, R, $($arg),*> Callable<Shared<T, ($($arg,)*), R>> for F
        where
            F: for<'a> Fn(&'a T, $($arg),*) -> R + Copy + Send + Sync + 'static,
            T: Send + Sync + 'static,
            R: Outcome,
            $($arg: Wire,)*
        {
            type Args = ($($arg,)*);
            type Value = R::Value;
            const ACCESS: Access = Access::Shared;

            #[allow(non_snake_case, reason = "type parameters name the arguments")]
            fn run(self, ($($arg,)*): Self::Args, receiver: Option<Receiver<'_>>) -> Started<Self::Value> {
                let this = match &receiver {
                    Some(Receiver::Shared(this)) => this.downcast_ref(),
                    Some(Receiver::Exclusive(this)) => this.downcast_ref(),
                    None => None,
                };
                this.map_or(Started::NoObject, |this| Started::Returned(self(this, $($arg),*).into_result()))
            }
        }

        impl<F, T, R, $($arg),*> Callable<Exclusive<T, ($($arg,)*), R>> for F
        where
            F: for<'a> Fn(&'a mut T, $($arg),*) -> R + Copy + Send + Sync + 'static,
            T: Send + Sync + 'static,
            R: Outcome,
            $($arg: Wire,)*
        {
            type Args = ($($arg,)*);
            type Value = R::Value;
            const ACCESS: Access = Access::Exclusive;

            #[allow(non_snake_case, reason = "type parameters name the arguments")]
            fn run(self, ($($arg,)*): Self::Args, receiver: Option<Receiver<'_>>) -> Started<Self::Value> {
                let this = match receiver {
                    Some(Receiver::Exclusive(this)) => this.downcast_mut(),
                    _ => None,
                };
                this.map_or(Started::NoObject, |this| Started::Returned(self(this, $($arg),*).into_result()))
            }
        }

    };
}

callable!();
callable!(A1);
callable!(A1 A2);
callable!(A1 A2 A3);
callable!(A1 A2 A3 A4);
callable!(A1 A2 A3 A4 A5);
callable!(A1 A2 A3 A4 A5 A6);
callable!(A1 A2 A3 A4 A5 A6 A7);
callable!(A1 A2 A3 A4 A5 A6 A7 A8);
callable!(A1 A2 A3 A4 A5 A6 A7 A8 A9);
callable!(A1 A2 A3 A4 A5 A6 A7 A8 A9 A10);
callable!(A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11);
callable!(A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12);
