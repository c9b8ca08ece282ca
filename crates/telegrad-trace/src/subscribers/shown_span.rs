//! A span of `tracing`.

use std::sync::Arc;

use tracing::{Dispatch, Span};
use tracing_core::span::Id;

use crate::subscribers::aside;

/// A span that subscribers see, or none. Whatever they do when it is entered, left or over is kept [`aside`].
///
/// Clones are of one handle, so that none of the subscribers' code runs to make one: they are made under locks.
#[derive(Clone, Debug, Default)]
pub struct Shown(Option<Arc<Handle>>);

#[derive(Debug)]
struct Handle(Option<Span>);

impl Shown {
    pub(crate) fn new(span: Span) -> Self {
        Self((!span.is_disabled()).then(|| Arc::new(Handle(Some(span)))))
    }

    /// What this thread is in.
    pub(crate) fn here() -> Self {
        aside(Span::current).map(Self::new).unwrap_or_default()
    }

    pub(crate) fn span(&self) -> Option<&Span> {
        self.0.as_ref()?.0.as_ref()
    }

    /// Its number, and the subscriber that has given it: to any other it would say something else.
    pub(crate) fn number(&self) -> Option<(Id, Dispatch)> {
        self.span()?
            .with_subscriber(|(id, subscriber)| (id.clone(), subscriber.clone()))
    }

    /// This thread is in it from now on.
    pub(crate) fn enter(&self) {
        if let Some(span) = self.span() {
            aside(|| span.with_subscriber(|(id, subscriber)| subscriber.enter(id)));
        }
    }

    /// This thread is no longer in it.
    pub(crate) fn exit(&self) {
        if let Some(span) = self.span() {
            aside(|| span.with_subscriber(|(id, subscriber)| subscriber.exit(id)));
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(span) = self.0.take() {
            aside(|| drop(span));
        }
    }
}
