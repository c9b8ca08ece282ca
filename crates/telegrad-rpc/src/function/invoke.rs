//! Describing and invoking registered functions.

use std::any::Any;

use telegrad_wire::{Layouts, Signature, Wire, WireError};

use super::LocalOnly;
use super::callable::{Access, Callable, Ran};
use super::local_only::cannot_travel;
use super::registration::{Invocation, Output, Step, Trouble, Want};
use super::sending::Sending;
use crate::context;
use crate::error::RemoteErrorKind;

/// Describes a function: the body of [`Registration::describe`].
pub fn describe<M, F: Callable<M>>(
    _: F,
    sending: Option<Sending<F::Value>>,
    layouts: &mut Layouts,
) -> Signature {
    Signature {
        is_method: F::ACCESS != Access::None,
        arguments: F::Args::layout(layouts),
        value: sending.map(|sending| (sending.describe)(layouts)),
    }
}

/// Runs a function: the body of [`Registration::invoke`].
pub fn invoke<M, F: Callable<M>>(
    function: F,
    sending: Option<Sending<F::Value>>,
    invocation: Invocation<'_>,
) -> Step {
    let Invocation {
        mut args,
        receiver,
        want,
    } = invocation;
    let finish = move |value| output(value, want, sending);
    let bad = |e: WireError| {
        Step::Done(Err(Trouble::Around(
            RemoteErrorKind::of_arguments(&e),
            e.to_string(),
        )))
    };
    let values = match F::Args::decode(&mut args) {
        Ok(values) => values,
        Err(error) => return bad(error),
    };
    if let Err(error) = args.finish() {
        return bad(error);
    }
    let is_recorded = context::decoded();
    match function.run(values, receiver) {
        Ran::Now(result) => {
            if is_recorded {
                context::has_result();
            }
            Step::Done(result.map_err(Trouble::User).and_then(finish))
        }
        Ran::Later(future) => Step::Pending(Box::pin(async move {
            let result = future.await;
            if is_recorded {
                context::has_result();
            }
            result.map_err(Trouble::User).and_then(finish)
        })),
        Ran::NoObject => {
            let message = "a method must be called on an object of its type".to_owned();
            Step::Done(Err(Trouble::Around(RemoteErrorKind::BadArguments, message)))
        }
    }
}

/// Converts a function's value to the wanted output.
fn output<T: Any + Send + Sync>(
    value: T,
    want: Want,
    sending: Option<Sending<T>>,
) -> Result<Output, Trouble> {
    match (want, sending) {
        (Want::Message, Some(sending)) => (sending.encode)(&value).map(Output::Message),
        (Want::Message, None) => Err(cannot_travel(std::any::type_name::<T>())),
        (Want::Value, Some(sending)) => Ok(Output::Value((sending.keep)(value))),
        (Want::Value, None) => Ok(Output::Value(LocalOnly::new(value))),
    }
}
