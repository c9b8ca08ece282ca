//! Something that goes on.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::current::{self, Entered};
use crate::event::{Event, Kind, Position, Status};
use crate::recorder::Recorder;

/// An event that is not over yet. It may end on another thread; one that is dropped was cancelled.
#[derive(Debug)]
pub struct Span {
    recorder: Arc<Recorder>,
    at: Position,
    /// Until it is recorded.
    event: Mutex<Option<Event>>,
}

impl Span {
    /// Begins now, on this thread, under whatever goes on at `at`.
    pub fn new(
        recorder: &Arc<Recorder>,
        at: Position,
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
    ) -> Self {
        let span = recorder.span_number();
        // What is over must not be opened again by those who hear of it from here.
        let callee = match &kind {
            Kind::Call(call) => Some(call.callee),
            _ => None,
        };
        let trace = if recorder.begin(at.trace, callee) {
            at.trace
        } else {
            0
        };
        let event = Event {
            span,
            parent: at.span,
            name: name.into(),
            kind,
            worker: recorder.worker(),
            thread: current::thread(),
            start: recorder.clock().now(),
            end: 0,
            status: Status::Ok,
            shapes: Vec::new(),
            link: 0,
        };
        Self {
            recorder: recorder.clone(),
            at: Position { trace, span },
            event: Mutex::new(Some(event)),
        }
    }

    /// Where it is itself: what it causes is under this.
    pub fn position(&self) -> Position {
        self.at
    }

    /// Puts this thread under it.
    pub fn enter(&self) -> Entered {
        current::enter(&self.recorder, self.at)
    }

    /// What time it is for it.
    pub fn now(&self) -> u64 {
        self.recorder.clock().now()
    }

    /// It begins only now, on this thread.
    pub fn start(&self) {
        self.note(|event| {
            event.start = self.now();
            event.thread = current::thread();
        });
    }

    /// It has waited since `from`, without a thread.
    pub fn waited(&self, from: u64) {
        let name = |event: &Event| format!("wait in {}", event.name);
        let known = self
            .event
            .lock()
            .as_ref()
            .map(|event| (name(event), event.thread));
        if let Some((name, thread)) = known {
            let wait = Self::new(&self.recorder, self.at, name, Kind::Wait);
            wait.finish(|event| {
                event.start = from;
                event.thread = thread;
            });
        }
    }

    /// Adds to what is known of it, unless it is over.
    pub fn note(&self, change: impl FnOnce(&mut Event)) {
        if let Some(event) = &mut *self.event.lock() {
            change(event);
        }
    }

    /// It is over now, unless it was before or `change` says since when. The first word counts.
    pub fn finish(&self, change: impl FnOnce(&mut Event)) {
        let Some(mut event) = self.event.lock().take() else {
            return;
        };
        change(&mut event);
        if event.end == 0 {
            event.end = self.now();
        }
        self.recorder.end(self.at.trace, event);
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.finish(|event| {
            if event.end == 0 {
                event.status = Status::Cancelled;
            }
        });
    }
}
