//! Where the time of a call went.

use telegrad_trace::{Event, Kind};

/// Where the time of a call went, in nanoseconds.
///
/// What happens after its answer was there, or after nobody waited for one any more, is no part of it: the phases never add up to more
/// than the call. The answer of `remote` does not wait for the function, so that executing it takes none of its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// From the start of the call until its request was handed over to the link.
    pub encode: u64,
    /// Until the request was at the callee.
    pub wire: u64,
    /// Until its function began, with its arguments decoded.
    pub queue: u64,
    /// Until that returned.
    pub execute: u64,
    /// Until what it gave was encoded and there.
    pub reply: u64,
}

/// The phases of a call, given its execution.
pub(crate) fn phases(call: &Event, execution: &Event) -> Option<Phases> {
    let (Kind::Call(of_call), Kind::Execution(of_execution)) = (&call.kind, &execution.kind) else {
        return None;
    };
    let known = |time: u64| if time == 0 { u64::MAX } else { time };
    let end = known(of_call.received).min(call.end);
    let answered = known(of_execution.replied);
    let or = |time: u64, otherwise: u64| if time == 0 { otherwise } else { time };
    let began = or(of_execution.decoded, execution.start);
    let returned = or(of_execution.returned, execution.end);
    let mut before = call.start.min(end);
    // Each from where the one before it ended, whatever the clocks say.
    let mut until = |time: u64| {
        let now = time.clamp(before, end);
        now - std::mem::replace(&mut before, now)
    };
    Some(Phases {
        encode: until(of_call.sent),
        wire: until(of_execution.arrived),
        queue: until(began.min(answered)),
        execute: until(returned.min(answered)),
        reply: until(end),
    })
}
