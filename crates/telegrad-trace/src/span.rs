//! Spans: events that have not ended.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::event::{Event, Kind, Status};
use crate::position::Position;
use crate::recorder::Recorder;
use crate::subscribers::{self, Cause, Origin, SubscriberSpan};
use crate::thread_state::{self, Entered};

/// An event that has not ended. A span may end on another thread; one that is dropped counts as cancelled.
#[derive(Debug)]
pub struct Span {
    recorder: Arc<Recorder>,
    at: Position,
    /// Whether its trace has reserved memory for the event.
    is_reserved: bool,
    /// The event until it is recorded. No subscriber code runs under the lock.
    open: Mutex<Option<OpenEvent>>,
}

#[derive(Debug)]
struct OpenEvent {
    event: Event,
    visibility: Visibility,
}

/// How subscribers see a span.
#[derive(Debug)]
enum Visibility {
    /// Not yet shown, because the span has not begun.
    Pending(Cause),
    /// Shown as this span of `tracing`.
    Shown(SubscriberSpan),
}

impl Span {
    /// Begins a span now, on this thread, at the position `at`.
    pub fn new(
        recorder: &Arc<Recorder>,
        at: Position,
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
    ) -> Self {
        let span = Self::pending(recorder, at, name, kind, Cause::Current);
        span.show();
        span
    }

    /// Creates a span that has not begun. Subscribers do not see it before it [starts](Self::start).
    ///
    /// Where nothing is recorded ([`Position::is_unseen`]) the span has no event, but passes that position on to what it
    /// causes.
    pub fn pending(
        recorder: &Arc<Recorder>,
        at: Position,
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
        cause: Cause,
    ) -> Self {
        if at.is_unseen() {
            return Self {
                recorder: recorder.clone(),
                at: Position::UNSEEN,
                is_reserved: false,
                open: Mutex::new(None),
            };
        }
        let span = recorder.span_number();
        let callee = match &kind {
            Kind::Call(call) => Some(call.callee),
            _ => None,
        };
        // A closed trace is not passed on, so that callees do not open it again.
        let (trace, is_reserved) = match recorder.begin(at.trace, callee) {
            Some(is_reserved) => (at.trace, is_reserved),
            None => (0, false),
        };
        let event = Event {
            span,
            parent: at.span,
            name: name.into(),
            kind,
            worker: recorder.worker(),
            thread: thread_state::thread_number(),
            start: recorder.clock().now(),
            end: 0,
            status: Status::Ok,
            shapes: Vec::new(),
            tensor_bytes: 0,
            link: 0,
        };
        Self {
            recorder: recorder.clone(),
            at: Position { trace, span },
            is_reserved,
            open: Mutex::new(Some(OpenEvent {
                event,
                visibility: Visibility::Pending(cause),
            })),
        }
    }

    /// Returns whether the recording asks for shapes of tensors.
    pub fn wants_shapes(&self) -> bool {
        self.recorder.wants_shapes(self.at)
    }

    /// Returns the position inside this span, for what it causes.
    pub fn position(&self) -> Position {
        self.at
    }

    /// Enters the span on this thread.
    pub fn enter(&self) -> Entered {
        thread_state::enter(&self.recorder, self.at, self.subscriber_span())
    }

    /// Returns the identity of the span for subscribers of other processes.
    pub fn origin(&self) -> Option<Origin> {
        subscribers::origin(|| self.subscriber_span())
    }

    fn subscriber_span(&self) -> SubscriberSpan {
        match self.open.lock().as_ref().map(|open| &open.visibility) {
            Some(Visibility::Shown(span)) => span.clone(),
            _ => SubscriberSpan::default(),
        }
    }

    /// Shows the span to subscribers, once.
    fn show(&self) {
        if !subscribers::has_any() {
            return;
        }
        let (event, cause) = match &*self.open.lock() {
            Some(OpenEvent {
                event,
                visibility: Visibility::Pending(cause),
            }) => (event.clone(), cause.clone()),
            _ => return,
        };
        let shown = subscribers::show(&self.recorder, &event, &cause);
        let mut open = self.open.lock();
        let ended = match &mut *open {
            Some(open) => {
                open.visibility = Visibility::Shown(shown);
                None
            }
            // The span ended on another thread before subscribers had seen it.
            None => Some(shown),
        };
        drop(open);
        if let Some(shown) = ended {
            subscribers::end(&shown, &event);
        }
    }

    /// Returns the current time on the worker's clock.
    pub fn now(&self) -> u64 {
        self.recorder.clock().now()
    }

    /// Starts a [pending](Self::pending) span now, on this thread.
    pub fn start(&self) {
        self.update(|event| {
            event.start = self.now();
            event.thread = thread_state::thread_number();
        });
        self.show();
    }

    /// Returns the span that this thread is in within the same recording, or 0.
    pub fn current_span(&self) -> u64 {
        thread_state::position_in(&self.recorder).map_or(0, |at| at.span)
    }

    /// Records a wait of this span since `from` that held no thread. `until` is the event that ended it, or 0.
    pub fn record_wait(&self, from: u64, until: u64) {
        let name = |event: &Event| format!("wait in {}", event.name);
        let open = self.open.lock();
        let known = open.as_ref().map(|open| (name(&open.event), open.event.thread));
        drop(open);
        if let Some((name, thread)) = known {
            // Never started, so that subscribers do not see it: it is already over.
            let wait = Self::pending(
                &self.recorder,
                self.at,
                name,
                Kind::Wait { call: until },
                Cause::Current,
            );
            wait.finish(|event| {
                event.start = from;
                event.thread = thread;
            });
        }
    }

    /// Changes the event, unless the span has ended.
    pub fn update(&self, change: impl FnOnce(&mut Event)) {
        if let Some(open) = &mut *self.open.lock() {
            change(&mut open.event);
        }
    }

    /// Ends the span, now or at the time that `change` sets. The first call counts.
    pub fn finish(&self, change: impl FnOnce(&mut Event)) {
        let Some(OpenEvent {
            mut event,
            visibility,
        }) = self.open.lock().take()
        else {
            return;
        };
        change(&mut event);
        if event.end == 0 {
            event.end = self.now();
        }
        if let Visibility::Shown(shown) = &visibility {
            subscribers::end(shown, &event);
        }
        drop(visibility);
        self.recorder.end(self.at.trace, event, self.is_reserved);
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
