//! Scopes: spans of one thread, from one line of code to another.

use std::borrow::Cow;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use telegrad_wire::Rank;

use crate::event::{Event, Kind, Status};
use crate::position::Position;
use crate::recorder::Recorder;
use crate::recorders;
use crate::span::Span;
use crate::thread_state::{self, Entered, ScopeTarget, is_recorded};

/// Records a span from now until the scope is dropped. Calls `name` only if the span is recorded.
#[inline]
pub fn scope(kind: Kind, name: impl FnOnce() -> Cow<'static, str>) -> Scope {
    scope_with(kind, name, Vec::new)
}

/// As [`scope`], with the shapes of its input tensors. Calls `shapes` only if the recording asks for them.
#[inline]
pub fn scope_with(
    kind: Kind,
    name: impl FnOnce() -> Cow<'static, str>,
    shapes: impl FnOnce() -> Vec<String>,
) -> Scope {
    if !is_recorded() {
        return Scope::none();
    }
    let current = match thread_state::scope_target() {
        ScopeTarget::Recorder(recorder, at) => Some((recorder, at)),
        ScopeTarget::Hidden => None,
        ScopeTarget::Unassigned => recorders::only_recorder(&kind).and_then(|recorder| {
            let at = recorder.here()?;
            Some((recorder, at))
        }),
    };
    let current = current.filter(|(recorder, at)| recorder.wants(&kind, *at));
    let span = current.map(|(recorder, at)| begin(&recorder, at, kind, name()));
    let wants_shapes = span.as_ref().is_some_and(|inner| inner.1.wants_shapes());
    let scope = Scope(ManuallyDrop::new(span));
    if wants_shapes {
        let shapes = shapes();
        scope.update(|event| event.shapes = shapes);
    }
    scope
}

/// As [`scope`], on a known worker.
#[inline]
pub fn scope_of(recorder: &Arc<Recorder>, kind: Kind, name: impl FnOnce() -> Cow<'static, str>) -> Scope {
    let at = recorder.here().filter(|at| recorder.wants(&kind, *at));
    let scope = at.map(|at| begin(recorder, at, kind, name()));
    Scope(ManuallyDrop::new(scope))
}

fn begin(
    recorder: &Arc<Recorder>,
    at: Position,
    kind: Kind,
    name: Cow<'static, str>,
) -> Box<(Entered, Span)> {
    let span = Span::new(recorder, at, name, kind);
    Box::new((span.enter(), span))
}

/// A span of this thread, recorded when the scope is dropped.
#[derive(Debug)]
#[must_use = "the span ends when this is dropped"]
pub struct Scope(ManuallyDrop<Option<Box<(Entered, Span)>>>);

impl Scope {
    /// Returns a scope that records nothing.
    #[inline]
    pub fn none() -> Self {
        Self(ManuallyDrop::new(None))
    }

    fn update(&self, change: impl FnOnce(&mut Event)) {
        if let Some(inner) = &*self.0 {
            inner.1.update(change);
        }
    }

    /// Marks the span as failed. Calls `error` only if the span is recorded.
    pub fn fail(&self, error: impl FnOnce() -> String) {
        if self.0.is_some() {
            // Before the lock of the span is taken: the text may come from user code.
            let error = error();
            self.update(|event| event.status = Status::Failed(error));
        }
    }

    /// Adds to the bytes of tensors that the scope produced. Calls `bytes` only if the span is recorded.
    pub fn add_tensor_bytes(&self, bytes: impl FnOnce() -> u64) {
        if self.0.is_some() {
            let bytes = bytes();
            self.update(|event| event.tensor_bytes += bytes);
        }
    }

    /// Links the event to others with the same number. `number` gets the rank of the worker.
    pub fn link(&self, number: impl FnOnce(Rank) -> u64) {
        self.update(|event| event.link = number(event.worker));
    }
}

impl Drop for Scope {
    #[inline]
    fn drop(&mut self) {
        // `ManuallyDrop` as in `Entered`.
        if let Some(inner) = self.0.take() {
            end(*inner);
        }
    }
}

#[cold]
fn end((entered, span): (Entered, Span)) {
    drop(entered);
    span.finish(|event| {
        if std::thread::panicking() && event.status.is_ok() {
            event.status = Status::Failed("it panicked".into());
        }
    });
}

/// Serialises tests that start process recordings, or rely on their absence.
#[cfg(test)]
pub(crate) static PROCESS_RECORDINGS: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;
    use crate::here;
    use crate::subscribers::SubscriberSpan;
    use crate::thread_state::{enter, position_in, thread_number};

    #[test]
    fn a_thread_under_here_records_for_another() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        let trace = recorder.open(false);
        let at = Position { trace, span: 9 };
        let entered = enter(&recorder, at, SubscriberSpan::default());
        let here = here();
        let helper = std::thread::spawn(move || {
            here.run(|| {
                crate::record_function!("helping");
            });
            matches!(thread_state::scope_target(), ScopeTarget::Unassigned)
        });
        assert!(
            helper.join().unwrap(),
            "the thread leaves the position when `run` ends"
        );
        drop(entered);
        let events = recorder.collect(trace, 0, true).events;
        assert_eq!((&*events[0].name, events[0].parent), ("helping", 9));
        assert_ne!(events[0].thread, thread_number());
    }

    #[test]
    fn scopes_nest_and_name_their_parents() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        let trace = recorder.open(true);
        {
            let _entered = enter(&recorder, Position { trace, span: 7 }, SubscriberSpan::default());
            let _outer = scope_with(Kind::Scope, || "outer".into(), || vec!["f32[2]".into()]);
            {
                crate::record_function!("inner");
            }
            let failing = scope(Kind::Operator, || Cow::Owned("failing".to_owned()));
            failing.fail(|| "why".into());
        }
        let events = recorder.collect(trace, 0, true).events;
        let [inner, failing, outer] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!((&*outer.name, outer.parent), ("outer", 7));
        assert_eq!((&*inner.name, inner.parent), ("inner", outer.span));
        assert_eq!((&*failing.name, failing.parent), ("failing", outer.span));
        assert_eq!(failing.status, Status::Failed("why".into()));
        assert_eq!(outer.shapes, ["f32[2]"]);
        assert!(outer.start <= inner.start && inner.end <= failing.start && failing.end <= outer.end);
        assert!(position_in(&recorder).is_none());
    }

    #[test]
    fn the_name_is_computed_only_if_recorded() {
        let _lock = PROCESS_RECORDINGS.lock();
        drop(scope(Kind::Scope, || panic!("nothing is recorded")));
    }

    #[test]
    fn a_panic_is_recorded_and_restores_the_thread_state() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        let trace = recorder.open(false);
        let at = Position { trace, span: 1 };
        let entered = enter(&recorder, at, SubscriberSpan::default());
        let panicked = std::panic::catch_unwind(|| {
            crate::record_function!("doomed");
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert_eq!(position_in(&recorder), Some(at));
        drop(entered);
        let events = recorder.collect(trace, 0, true).events;
        assert_eq!(events[0].status, Status::Failed("it panicked".into()));
    }
}
