//! Registrations: what `#[remote]` leaves in the program for each function.

use std::any::TypeId;
use std::future::Future;
use std::pin::Pin;

use telegrad_wire::{Decoder, Layouts, Payload, Signature};

use super::LocalOnly;
use super::callable::{Access, Callable, Receiver};
use crate::error::{RemoteError, RemoteErrorKind};
use crate::types::Class;

/// One remote function, as `#[remote]` leaves it.
pub struct Registration {
    /// Its name on the wire.
    pub name: &'static str,
    /// Its parameter and return types as written, for people.
    pub signature: &'static str,
    /// The names of its parameters, for people.
    pub parameters: &'static [&'static str],
    /// It takes microseconds and never waits, so the thread that reads a request may run it.
    pub inline: bool,
    /// Its class.
    pub class: Class,
    /// The type of the function item, by which the caller finds this.
    pub type_id: fn() -> TypeId,
    /// How it uses the value that it is called on.
    pub access: fn() -> Access,
    /// Describes what it takes and gives, for comparing programs.
    pub describe: fn(&mut Layouts) -> Signature,
    /// Decodes arguments, runs the function, encodes the result.
    pub invoke: fn(Invocation<'_>) -> Step,
}

inventory::collect!(Registration);

/// What a registered function is run with.
#[derive(Debug)]
pub struct Invocation<'a> {
    /// At the start of the arguments.
    pub args: Decoder<'a>,
    /// What a method runs on.
    pub receiver: Option<Receiver<'a>>,
    /// What becomes of the function's value.
    pub want: Want,
}

/// What becomes of a function's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// It is sent.
    Message,
    /// It stays here, for references to it.
    Value,
}

/// A function's value, as wanted.
pub enum Output {
    /// To be sent.
    Message(Payload),
    /// To be kept.
    Value(LocalOnly),
}

/// The rest of an async function.
pub(crate) type Run = Pin<Box<dyn Future<Output = Result<Output, Trouble>> + Send>>;

/// How far a run got.
pub enum Step {
    /// It is over.
    Done(Result<Output, Trouble>),
    /// An async function; this is the rest of it.
    Pending(Run),
}

/// Why there is no result.
#[derive(Debug)]
pub enum Trouble {
    /// The function returned an error.
    User(telegrad_wire::BoxError),
    /// Something around it did not work.
    Around(RemoteErrorKind, String),
    /// What it was called on had failed before.
    Earlier(RemoteError),
}

/// The type of a function item.
pub fn type_id_of<F: 'static>(_: &F) -> TypeId {
    TypeId::of::<F>()
}

/// How a function uses the value that it is called on.
pub fn access_of<M, F: Callable<M>>(_: F) -> Access {
    F::ACCESS
}

/// Makes a function of another crate callable, under a name of your choice.
///
/// ```
/// telegrad_rpc::register!(std::cmp::min::<i64>, name = "min");
/// ```
#[macro_export]
macro_rules! register {
    ($function:expr, name = $name:literal $(,)?) => {
        $crate::__private::inventory::submit! {
            $crate::__private::Registration {
                name: $name,
                // Neither types nor names are at hand as text.
                signature: "",
                parameters: &[],
                inline: false,
                class: $crate::__private::Class::User,
                type_id: || $crate::__private::type_id_of(&$function),
                access: || $crate::__private::access_of($function),
                describe: |layouts| {
                    $crate::__private::describe($function, $crate::__private::sending!($function), layouts)
                },
                invoke: |invocation| {
                    $crate::__private::invoke($function, $crate::__private::sending!($function), invocation)
                },
            }
        }
    };
}
