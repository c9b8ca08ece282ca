//! Riders of a message: references, tracked tensors and the origin of a trace.
//!
//! Requests and replies share this code. The sender calls [`Riders::leaving`], and [`Riders::stayed`] if the message was not
//! sent; the receiver calls [`Riders::arrived`] on the thread that has read the message, and [`tensors_arrived`] before the
//! body is decoded.

use std::sync::Arc;

use telegrad_net::Outgoing;
use telegrad_trace::Origin;
use telegrad_wire::{
    ContextId, FrameHeader, HAS_SECTION, Incarnation, RawTensor, Reference, TensorSource, Tensors, WireError,
};

use super::{Crossing, Departure, MessageHook, Section, Tracked};
use crate::error::Result;
use crate::reference::{Handle, References};
use crate::types::RefId;

/// The receiver of a message, and the connection to it.
pub(crate) struct Route<'a> {
    pub(crate) references: &'a References,
    pub(crate) hook: Option<&'a dyn MessageHook>,
    /// The receiver.
    pub(crate) to: Incarnation,
    /// The connection's number.
    pub(crate) connection: u64,
    /// The context of the message, if it belongs to one.
    pub(crate) crossing: Option<Crossing<'a>>,
}

/// The riders of a message that leaves.
pub(crate) struct Riders {
    context: Option<ContextId>,
    section: Section,
}

/// The riders of a message that has arrived.
#[derive(Default)]
pub(crate) struct Arrival {
    /// The value that the function is called on.
    pub(crate) object: Option<RefId>,
    /// The value that the function's result becomes.
    pub(crate) creates: Option<RefId>,
    pub(crate) references: Vec<Arc<Handle>>,
    /// Why the references were refused, if they were.
    pub(crate) refused: Option<WireError>,
    pub(crate) tracked: Option<Tracked>,
    pub(crate) origin: Option<Origin>,
    /// The offset of the body after the section.
    pub(crate) start: usize,
}

impl Riders {
    /// Transfers the references of a message, tracks its tensors, and puts both with the rest of its section before the body.
    ///
    /// # Errors
    /// Those of the hook, and the result of `unsendable` for a reference that cannot be transferred. Then no rider leaves.
    // Inlined, because the result is large and almost always empty.
    #[inline(always)]
    pub(crate) fn leaving(
        route: &Route<'_>,
        mut section: Section,
        message: &mut Outgoing,
        unsendable: impl Fn(WireError) -> crate::error::Error,
    ) -> Result<Self> {
        let (context, tracked) = track(route, &message.payload.tensors)?;
        section.tracked = tracked;
        let mut riders = Self {
            context: route.crossing.map(|crossing| crossing.context),
            section,
        };
        match route
            .references
            .transfer(&mut message.payload, route.to, route.connection)
        {
            Ok(references) => riders.section.references = references,
            Err(error) => {
                riders.stayed(route.references, route.hook);
                return Err(unsendable(error));
            }
        }
        message.header.context = context.map_or(0, |context| context.0);
        if !riders.section.is_empty() {
            message.header.flags |= HAS_SECTION;
            match riders.section.prepend(std::mem::take(&mut message.payload)) {
                Ok(payload) => message.payload = payload,
                Err(error) => {
                    riders.stayed(route.references, route.hook);
                    return Err(unsendable(error));
                }
            }
        }
        Ok(riders)
    }

    /// Takes back the riders of a message that was not sent.
    pub(crate) fn stayed(&self, references: &References, hook: Option<&dyn MessageHook>) {
        references.cancel_transfers(&self.section.references);
        tensors_stayed(hook, self.context, self.tracked());
    }

    /// Returns the tracked tensors.
    pub(crate) fn tracked(&self) -> Option<&Tracked> {
        self.section.tracked.as_ref()
    }

    /// Takes the riders of a message. References are taken at once, because the sender waits for them to be accepted.
    ///
    /// # Errors
    /// When the section cannot be read.
    // Inlined for messages without a section, which are most.
    #[inline]
    pub(crate) fn arrived(
        references: &References,
        header: &FrameHeader,
        body: &[u8],
        from: Incarnation,
    ) -> Result<Arrival, WireError> {
        if header.flags & HAS_SECTION == 0 {
            return Ok(Arrival::default());
        }
        Self::arrived_in_section(references, body, from)
    }

    #[inline(never)]
    fn arrived_in_section(
        references: &References,
        body: &[u8],
        from: Incarnation,
    ) -> Result<Arrival, WireError> {
        let (section, start) = Section::split(body)?;
        let (references, refused) = match references.receive(section.references, from) {
            Ok(references) => (references, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        Ok(Arrival {
            object: section.object,
            creates: section.creates,
            references,
            refused,
            tracked: section.tracked,
            origin: section.origin,
            start,
        })
    }
}

/// Tracks the tensors of a message that belongs to a context; returns the context for its header.
fn track(
    route: &Route<'_>,
    tensors: &[Box<dyn TensorSource>],
) -> Result<(Option<ContextId>, Option<Tracked>)> {
    let (Some(crossing), Some(hook)) = (route.crossing, route.hook) else {
        return Ok((None, None));
    };
    Ok(match hook.leaving(&crossing, tensors)? {
        Departure::ContextClosed => (None, None),
        Departure::Untracked => (Some(crossing.context), None),
        Departure::Tracked(tracked) => (Some(crossing.context), Some(tracked)),
    })
}

/// Withdraws the tracked tensors of a message that was not sent, or of a call without a result.
pub(crate) fn tensors_stayed(
    hook: Option<&dyn MessageHook>,
    context: Option<ContextId>,
    tracked: Option<&Tracked>,
) {
    if let (Some(context), Some(hook), Some(tracked)) = (context, hook, tracked) {
        hook.stayed(context, tracked);
    }
}

/// Returns the tensors that the receiver decodes: those of the hook, if the message belongs to a context.
///
/// # Errors
/// Those of the hook.
#[inline]
pub(crate) fn tensors_arrived(
    hook: Option<&dyn MessageHook>,
    crossing: Option<&Crossing<'_>>,
    tracked: Option<Tracked>,
    tensors: Vec<RawTensor>,
) -> Result<Tensors> {
    match (hook, crossing) {
        (Some(hook), Some(crossing)) => Ok(hook.arrived(crossing, tracked, tensors)?.into()),
        _ => Ok(tensors.into()),
    }
}

/// Converts handles to the references that a decoder takes.
pub(crate) fn as_references(handles: Vec<Arc<Handle>>) -> Vec<Reference> {
    if handles.is_empty() {
        return Vec::new();
    }
    handles.into_iter().map(|handle| handle as Reference).collect()
}
