//! Something that one thread does, from one line to another.

use std::borrow::Cow;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use telegrad_wire::Rank;

use crate::event::{Event, Kind, Status};
use crate::position::Position;
use crate::recorder::Recorder;
use crate::recorders as watching;
use crate::span::Span;
use crate::thread_state::{self as current, Entered, Whereabouts, is_recorded};

/// Records something from now until it is dropped. `name` is asked for only if it is recorded.
#[inline]
pub fn scope(kind: Kind, name: impl FnOnce() -> Cow<'static, str>) -> Scope {
    scope_with(kind, name, Vec::new)
}

/// As [`scope`], with the shapes of the tensors that it works on, which are asked for only if they are wanted.
#[inline]
pub fn scope_with(
    kind: Kind,
    name: impl FnOnce() -> Cow<'static, str>,
    shapes: impl FnOnce() -> Vec<String>,
) -> Scope {
    if !is_recorded() {
        return Scope::none();
    }
    let current = match current::whereabouts() {
        Whereabouts::At(recorder, at) => Some((recorder, at)),
        Whereabouts::Hidden => None,
        Whereabouts::Nowhere => watching::only(&kind).and_then(|recorder| {
            let at = recorder.here()?;
            Some((recorder, at))
        }),
    };
    let current = current.filter(|(recorder, at)| recorder.wants(&kind, *at));
    let scope = current.map(|(recorder, at)| begin(&recorder, at, kind, name()));
    let wants_shapes = scope.as_ref().is_some_and(|inner| inner.1.wants_shapes());
    let scope = Scope(ManuallyDrop::new(scope));
    if wants_shapes {
        let shapes = shapes();
        scope.note(|event| event.shapes = shapes);
    }
    scope
}

/// As [`scope`], for whoever knows the worker that it is on.
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

/// Something that is recorded until this is dropped.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Scope(ManuallyDrop<Option<Box<(Entered, Span)>>>);

impl Scope {
    /// Nothing.
    #[inline]
    pub fn none() -> Self {
        Self(ManuallyDrop::new(None))
    }

    fn note(&self, change: impl FnOnce(&mut Event)) {
        if let Some(inner) = &*self.0 {
            inner.1.note(change);
        }
    }

    /// It has failed. Why is asked for only if it is recorded.
    pub fn fail(&self, why: impl FnOnce() -> String) {
        if self.0.is_some() {
            // Before the span is changed: the text may be the user's.
            let why = why();
            self.note(|event| event.status = Status::Failed(why));
        }
    }

    /// So many bytes of tensors came of it. They are counted only if it is recorded.
    pub fn made(&self, bytes: impl FnOnce() -> u64) {
        if self.0.is_some() {
            let bytes = bytes();
            self.note(|event| event.tensor_bytes += bytes);
        }
    }

    /// Events with the same number belong together. `number` is given the worker that this is on.
    pub fn link(&self, number: impl FnOnce(Rank) -> u64) {
        self.note(|event| event.link = number(event.worker));
    }
}

impl Drop for Scope {
    #[inline]
    fn drop(&mut self) {
        // By hand, as in `Entered`.
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

/// For tests that start, or do not expect, recordings of the process.
#[cfg(test)]
pub(crate) static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;
    use crate::here;
    use crate::subscribers::Shown;
    use crate::thread_state::{enter, of, thread};

    #[test]
    fn a_thread_that_is_told_records_for_another() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        let trace = recorder.open(false);
        let at = Position { trace, span: 9 };
        let entered = enter(&recorder, at, Shown::default());
        let here = here();
        let helper = std::thread::spawn(move || {
            here.run(|| {
                crate::record_function!("helping");
            });
            matches!(current::whereabouts(), Whereabouts::Nowhere)
        });
        assert!(helper.join().unwrap(), "it is over there, too");
        drop(entered);
        let events = recorder.collect(trace, 0, true).events;
        assert_eq!((&*events[0].name, events[0].parent), ("helping", 9));
        assert_ne!(events[0].thread, thread());
    }

    #[test]
    fn scopes_nest_and_are_found_with_their_parents() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        let trace = recorder.open(true);
        {
            let _entered = enter(&recorder, Position { trace, span: 7 }, Shown::default());
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
        assert!(of(&recorder).is_none());
    }

    #[test]
    fn nobody_is_asked_for_a_name_that_is_not_recorded() {
        let _alone = ALONE.lock();
        drop(scope(Kind::Scope, || panic!("nothing is recorded")));
    }

    #[test]
    fn a_panic_is_recorded_and_leaves_the_thread_where_it_was() {
        let recorder = Recorder::new(0, Clock::default(), 0);
        let trace = recorder.open(false);
        let at = Position { trace, span: 1 };
        let entered = enter(&recorder, at, Shown::default());
        let panicked = std::panic::catch_unwind(|| {
            crate::record_function!("doomed");
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert_eq!(of(&recorder), Some(at));
        drop(entered);
        let events = recorder.collect(trace, 0, true).events;
        assert_eq!(events[0].status, Status::Failed("it panicked".into()));
    }
}
