//! References to remote values, on one worker (S26 to S33).
//!
//! A value stays on its owner, the worker that created it. Reading order: `protocol` is the state machine that decides which
//! messages workers exchange; `references` runs it for one worker, with `table` for its state and `delivery` for its messages;
//! `handle` is one reference, `value` one value, `slot_pin` keeps a value for a request, `drop_queue` drops freed values.

mod protocol;
mod references;
mod table;
mod delivery;
mod drop_queue;
mod handle;
mod sent_reference;
mod value;
mod slot_pin;
mod fetch;

pub(crate) use fetch::{check_expected, fetch};
pub(crate) use handle::{AnyReference, Handle};
pub(crate) use protocol::{Answer, Batch};
pub(crate) use references::{OwnedValue, ReferenceHost, References};
pub(crate) use sent_reference::SentReference;
pub(crate) use slot_pin::SlotPin;
pub(crate) use value::{Value, ValueGuard};
