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
pub(crate) use local_only::{Encode, LocalOnly, cannot_travel};
pub(crate) use other_program::{OtherProgram, functions_if_not};
pub(crate) use registration::{Invocation, Output, Run, Step, Trouble};
pub use registration::{Registration, Want, access_of, type_id_of};
pub(crate) use registry::Registry;
pub use sending::{Stays, Travels, value_of};
