//! Describing and invoking registered functions.

use std::any::Any;

use telegrad_wire::{Layouts, Signature, Wire, WireError};

use super::LocalOnly;
use super::callable::{Access, Callable, Started};
use super::local_only::not_wire;
use super::registration::{Failure, Invocation, Output, OutputForm, Step};
use super::sending::Sending;
use crate::context;
use crate::error::RemoteErrorKind;

/// Describes a function: the body of `Registration::describe`.
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

/// Runs a function: the body of `Registration::invoke`.
pub fn invoke<M, F: Callable<M>>(
    function: F,
    sending: Option<Sending<F::Value>>,
    invocation: Invocation<'_>,
) -> Step {
    let Invocation {
        mut args,
        receiver,
        form,
    } = invocation;
    let finish = move |value| output(value, form, sending);
    let bad = |e: WireError| {
        Step::Done(Err(Failure::System(
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
        Started::Returned(result) => {
            if is_recorded {
                context::returned();
            }
            Step::Done(result.map_err(Failure::User).and_then(finish))
        }
        Started::Pending(future) => Step::Pending(Box::pin(async move {
            let result = future.await;
            if is_recorded {
                context::returned();
            }
            result.map_err(Failure::User).and_then(finish)
        })),
        Started::NoObject => {
            let message = "a method must be called on an object of its type".to_owned();
            Step::Done(Err(Failure::System(RemoteErrorKind::BadArguments, message)))
        }
    }
}

/// Converts a function's value to the wanted output.
fn output<T: Any + Send + Sync>(
    value: T,
    form: OutputForm,
    sending: Option<Sending<T>>,
) -> Result<Output, Failure> {
    match (form, sending) {
        (OutputForm::Message, Some(sending)) => (sending.encode)(&value).map(Output::Message),
        (OutputForm::Message, None) => Err(not_wire(std::any::type_name::<T>())),
        (OutputForm::Value, Some(sending)) => Ok(Output::Value((sending.keep)(value))),
        (OutputForm::Value, None) => Ok(Output::Value(LocalOnly::new(value))),
    }
}
