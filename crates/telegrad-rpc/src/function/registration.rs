//! Registrations: the entries that `#[remote]` generates.

use std::any::TypeId;
use std::future::Future;
use std::pin::Pin;

use telegrad_wire::{Decoder, Layouts, Payload, Signature};

use super::LocalOnly;
use super::callable::{Access, Callable, Receiver};
use crate::error::{RemoteError, RemoteErrorKind};
use crate::types::Class;

/// One remote function.
pub struct Registration {
    /// Its name on the wire.
    pub name: &'static str,
    /// Its parameter and return types as written, for messages.
    pub signature: &'static str,
    /// The names of its parameters, for messages.
    pub parameters: &'static [&'static str],
    /// Whether the thread that reads a request may run it: it takes microseconds and never waits.
    pub inline: bool,
    /// Its class.
    pub class: Class,
    /// The type of the function item, by which callers find the registration.
    pub type_id: fn() -> TypeId,
    /// How it uses the value that it is called on.
    pub access: fn() -> Access,
    /// Describes its arguments and value, for comparing programs.
    pub describe: fn(&mut Layouts) -> Signature,
    /// Decodes arguments, runs the function, encodes the result.
    pub invoke: fn(Invocation<'_>) -> Step,
}

inventory::collect!(Registration);

/// The input of a registered function.
#[derive(Debug)]
pub struct Invocation<'a> {
    /// A decoder at the start of the arguments.
    pub args: Decoder<'a>,
    /// The object that a method runs on.
    pub receiver: Option<Receiver<'a>>,
    /// The wanted form of the function's value.
    pub form: OutputForm,
}

/// The wanted form of a function's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// A payload for the reply.
    Message,
    /// A value kept on this worker, for references.
    Value,
}

/// A function's value in the wanted form.
pub enum Output {
    /// A payload for the reply.
    Message(Payload),
    /// A value kept on this worker.
    Value(LocalOnly),
}

/// The future of an async function.
pub(crate) type FunctionFuture = Pin<Box<dyn Future<Output = Result<Output, Failure>> + Send>>;

/// The state of a function after its start.
pub enum Step {
    /// The function has ended.
    Done(Result<Output, Failure>),
    /// The future of an async function.
    Pending(FunctionFuture),
}

/// The reason why a served call has no result.
#[derive(Debug)]
pub enum Failure {
    /// The function returned an error.
    User(telegrad_wire::BoxError),
    /// Decoding, encoding or running the function failed.
    System(RemoteErrorKind, String),
    /// The creation of the value that it was called on had failed.
    Earlier(RemoteError),
}

/// Returns the type of a function item.
pub fn type_id_of<F: 'static>(_: &F) -> TypeId {
    TypeId::of::<F>()
}

/// Returns how a function uses the value that it is called on.
pub fn access_of<M, F: Callable<M>>(_: F) -> Access {
    F::ACCESS
}

/// Registers a function of another crate under the given name.
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
                // The macro sees neither types nor parameter names.
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
