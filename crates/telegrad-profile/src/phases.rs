//! The phases of a call.

use telegrad_trace::{Event, Kind};

/// The phases of a call, in nanoseconds.
///
/// They never add up to more than the call: what follows the reply, or the end of the caller's wait, does not count. The reply of
/// `remote` does not wait for the function, so that its execution phase is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// From the start of the call until its request was handed to the link.
    pub encode: u64,
    /// Until the request arrived at the callee.
    pub wire: u64,
    /// Until the function began, with its arguments decoded.
    pub queue: u64,
    /// Until the function returned.
    pub execute: u64,
    /// Until the reply was encoded and arrived.
    pub reply: u64,
}

/// Returns the phases of a call, given its execution.
pub(crate) fn phases(call: &Event, execution: &Event) -> Option<Phases> {
    let (Kind::Call(of_call), Kind::Execution(of_execution)) = (&call.kind, &execution.kind) else {
        return None;
    };
    let known = |time: u64| if time == 0 { u64::MAX } else { time };
    let end = known(of_call.received).min(call.end);
    let answered = known(of_execution.replied);
    let known_or = |time: u64, otherwise: u64| if time == 0 { otherwise } else { time };
    let began = known_or(of_execution.decoded, execution.start);
    let returned = known_or(of_execution.returned, execution.end);
    let mut before = call.start.min(end);
    // Each starts where the previous one ended, even if clocks disagree.
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
