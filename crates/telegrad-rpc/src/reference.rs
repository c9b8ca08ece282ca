//! References to values that live on other workers, as one worker keeps them (S26 to S33).
//!
//! A value stays with its owner, the worker that made it. Read it in this order: `protocol` decides which workers have to exchange
//! which messages, and nothing else; `references` carries that out for one worker, with `table` and what follows from its
//! changes; `handle` is one reference, `value` the value of one, `slot_pin` keeps a value in place for a request.

mod bin;
mod fetch;
mod handed;
mod handle;
mod protocol;
mod references;
mod slot_pin;
mod table;
mod telling;
mod value;

pub(crate) use fetch::{check_expected, fetch};
pub(crate) use handed::Handed;
pub(crate) use handle::{AnyReference, Handle};
pub(crate) use protocol::{Answer, Batch};
pub(crate) use references::{Listed, ReferenceHost, References};
pub(crate) use slot_pin::SlotPin;
pub(crate) use value::{Value, ValueGuard};
