//! Remote functions: their kinds, registrations and registry.

mod callable;
mod registration;
mod local_only;
mod sending;
mod invoke;
mod registry;
mod other_program;

pub(crate) use callable::assert_is_function;
pub use callable::{Access, Callable, FreeFn, Method, Receiver};
pub use invoke::{describe, invoke};
pub(crate) use local_only::{Encode, LocalOnly, not_wire};
pub(crate) use other_program::{OtherProgram, functions_unless};
pub(crate) use registration::{Failure, FunctionFuture, Invocation, Output, Step};
pub use registration::{OutputForm, Registration, access_of, type_id_of};
pub(crate) use registry::Registry;
pub use sending::{LocalOnlyValue, WireValue, value_of};
