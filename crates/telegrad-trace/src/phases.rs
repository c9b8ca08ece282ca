//! Where the time of a call went.

use crate::event::{Event, Kind};

/// Where the time of a call went, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// From the start of the call until its request was handed over to the link.
    pub encode: u64,
    /// Until the request was at the callee.
    pub wire: u64,
    /// Until its function began.
    pub queue: u64,
    /// Until that returned.
    pub execute: u64,
    /// Until the answer was there.
    pub reply: u64,
}

/// The phases of a call, given its execution.
pub(crate) fn phases(call: &Event, execution: &Event) -> Option<Phases> {
    let (Kind::Call(of_call), Kind::Execution(of_execution)) = (&call.kind, &execution.kind) else {
        return None;
    };
    let end = if of_call.received == 0 {
        call.end
    } else {
        of_call.received
    };
    Some(Phases {
        encode: of_call.sent.saturating_sub(call.start),
        wire: of_execution.arrived.saturating_sub(of_call.sent),
        queue: execution.start.saturating_sub(of_execution.arrived),
        execute: execution.duration(),
        reply: end.saturating_sub(execution.end),
    })
}
