//! Something that goes on.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::current::{self, Entered};
use crate::event::{Event, Kind, Position, Status};
use crate::recorder::Recorder;
use crate::subscribers::{self, Origin};

/// An event that is not over yet. It may end on another thread; one that is dropped was cancelled.
#[derive(Debug)]
pub struct Span {
    recorder: Arc<Recorder>,
    at: Position,
    /// Until it is recorded.
    going: Mutex<Option<Going>>,
}

#[derive(Debug)]
struct Going {
    event: Event,
    /// What subscribers see of it.
    shown: tracing::Span,
    /// What caused it, in the numbers of subscribers.
    origin: Option<Origin>,
}

impl Going {
    fn show(&mut self, recorder: &Arc<Recorder>) {
        self.shown = subscribers::show(recorder, &self.event, self.origin);
    }
}

impl Span {
    /// Begins now, on this thread, under whatever goes on at `at`.
    pub fn new(
        recorder: &Arc<Recorder>,
        at: Position,
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
    ) -> Self {
        let span = Self::ahead(recorder, at, name, kind, None);
        if let Some(going) = &mut *span.going.lock() {
            going.show(recorder);
        }
        span
    }

    /// As [`new`](Self::new), of something that has yet to [start](Self::start): until then it is not shown to subscribers.
    /// It was caused by what is known to them as `origin`.
    pub fn ahead(
        recorder: &Arc<Recorder>,
        at: Position,
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
        origin: Option<Origin>,
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
            tensor_bytes: 0,
            link: 0,
        };
        Self {
            recorder: recorder.clone(),
            at: Position { trace, span },
            going: Mutex::new(Some(Going {
                event,
                shown: tracing::Span::none(),
                origin,
            })),
        }
    }

    /// Where it is itself: what it causes is under this.
    pub fn position(&self) -> Position {
        self.at
    }

    /// Puts this thread under it.
    pub fn enter(&self) -> Entered {
        let shown = self.going.lock().as_ref().map(|going| going.shown.clone());
        let shown = shown.unwrap_or_else(tracing::Span::none);
        current::enter(&self.recorder, self.at, shown)
    }

    /// What it is known as to the subscribers of other processes.
    pub fn origin(&self) -> Option<Origin> {
        self.going
            .lock()
            .as_ref()
            .and_then(|going| subscribers::origin(&going.shown))
    }

    /// What time it is for it.
    pub fn now(&self) -> u64 {
        self.recorder.clock().now()
    }

    /// It begins only now, on this thread.
    pub fn start(&self) {
        if let Some(going) = &mut *self.going.lock() {
            going.event.start = self.now();
            going.event.thread = current::thread();
            going.show(&self.recorder);
        }
    }

    /// It has waited since `from`, without a thread.
    pub fn waited(&self, from: u64) {
        let name = |event: &Event| format!("wait in {}", event.name);
        let going = self.going.lock();
        let known = going
            .as_ref()
            .map(|going| (name(&going.event), going.event.thread));
        drop(going);
        if let Some((name, thread)) = known {
            // Subscribers see what goes on, not what is past.
            let wait = Self::ahead(&self.recorder, self.at, name, Kind::Wait, None);
            wait.finish(|event| {
                event.start = from;
                event.thread = thread;
            });
        }
    }

    /// Adds to what is known of it, unless it is over.
    pub fn note(&self, change: impl FnOnce(&mut Event)) {
        if let Some(going) = &mut *self.going.lock() {
            change(&mut going.event);
        }
    }

    /// It is over now, unless it was before or `change` says since when. The first word counts.
    pub fn finish(&self, change: impl FnOnce(&mut Event)) {
        let Some(Going { mut event, shown, .. }) = self.going.lock().take() else {
            return;
        };
        change(&mut event);
        if event.end == 0 {
            event.end = self.now();
        }
        subscribers::end(&shown, &event);
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
