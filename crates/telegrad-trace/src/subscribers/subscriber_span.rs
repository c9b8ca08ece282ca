//! A span of `tracing` as a cloneable handle.

use std::sync::Arc;

use tracing::{Dispatch, Span};
use tracing_core::span::Id;

use super::call_subscriber;

/// A span that subscribers see, or none.
///
/// Clones share one handle, so that cloning runs no subscriber code: clones are made under locks.
#[derive(Clone, Debug, Default)]
pub struct SubscriberSpan(Option<Arc<Handle>>);

#[derive(Debug)]
struct Handle(Option<Span>);

impl SubscriberSpan {
    pub(crate) fn new(span: Span) -> Self {
        Self((!span.is_disabled()).then(|| Arc::new(Handle(Some(span)))))
    }

    /// Returns the current span of this thread.
    pub(crate) fn current() -> Self {
        call_subscriber(Span::current).map(Self::new).unwrap_or_default()
    }

    pub(crate) fn span(&self) -> Option<&Span> {
        self.0.as_ref()?.0.as_ref()
    }

    /// Returns the id of the span, and the subscriber that gave it: ids are only valid there.
    pub(crate) fn id(&self) -> Option<(Id, Dispatch)> {
        self.span()?
            .with_subscriber(|(id, subscriber)| (id.clone(), subscriber.clone()))
    }

    /// Enters the span on this thread.
    pub(crate) fn enter(&self) {
        if let Some(span) = self.span() {
            call_subscriber(|| span.with_subscriber(|(id, subscriber)| subscriber.enter(id)));
        }
    }

    /// Leaves the span on this thread.
    pub(crate) fn exit(&self) {
        if let Some(span) = self.span() {
            call_subscriber(|| span.with_subscriber(|(id, subscriber)| subscriber.exit(id)));
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(span) = self.0.take() {
            call_subscriber(|| drop(span));
        }
    }
}
