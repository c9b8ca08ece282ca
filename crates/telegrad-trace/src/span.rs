//! Something that goes on.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::event::{Event, Kind, Status};
use crate::position::Position;
use crate::recorder::Recorder;
use crate::subscribers::Shown;
use crate::subscribers::{self, Cause, Origin};
use crate::thread_state::{self as current, Entered};

/// An event that is not over yet. It may end on another thread; one that is dropped was cancelled.
#[derive(Debug)]
pub struct Span {
    recorder: Arc<Recorder>,
    at: Position,
    /// Whether its trace has room for it.
    has_room: bool,
    /// Until it is recorded. No code of subscribers runs under the lock.
    going: Mutex<Option<Going>>,
}

#[derive(Debug)]
struct Going {
    event: Event,
    seen: Seen,
}

/// What subscribers see of a span.
#[derive(Debug)]
enum Seen {
    /// Nothing yet: it has not begun.
    NotYet(Cause),
    /// This.
    Now(Shown),
}

impl Span {
    /// Begins now, on this thread, under whatever goes on at `at`.
    pub fn new(
        recorder: &Arc<Recorder>,
        at: Position,
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
    ) -> Self {
        let span = Self::ahead(recorder, at, name, kind, Cause::Around);
        span.show();
        span
    }

    /// As [`new`](Self::new), of something that has yet to [start](Self::start): until then it is not shown to subscribers.
    ///
    /// Where nothing is recorded ([`Position::is_unseen`]), it is no event, but says so to what it causes.
    pub fn ahead(
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
                has_room: false,
                going: Mutex::new(None),
            };
        }
        let span = recorder.span_number();
        // What is over must not be opened again by those who hear of it from here.
        let callee = match &kind {
            Kind::Call(call) => Some(call.callee),
            _ => None,
        };
        let (trace, has_room) = match recorder.begin(at.trace, callee) {
            Some(has_room) => (at.trace, has_room),
            None => (0, false),
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
            has_room,
            going: Mutex::new(Some(Going {
                event,
                seen: Seen::NotYet(cause),
            })),
        }
    }

    /// Whether the shapes of tensors are to be noted.
    pub fn wants_shapes(&self) -> bool {
        self.recorder.wants_shapes(self.at)
    }

    /// Where it is itself: what it causes is under this.
    pub fn position(&self) -> Position {
        self.at
    }

    /// Puts this thread under it.
    pub fn enter(&self) -> Entered {
        current::enter(&self.recorder, self.at, self.shown())
    }

    /// What it is known as to the subscribers of other processes.
    pub fn origin(&self) -> Option<Origin> {
        subscribers::origin(|| self.shown())
    }

    fn shown(&self) -> Shown {
        match self.going.lock().as_ref().map(|going| &going.seen) {
            Some(Seen::Now(shown)) => shown.clone(),
            _ => Shown::default(),
        }
    }

    /// Shows it to subscribers, once.
    fn show(&self) {
        if !subscribers::has_any() {
            return;
        }
        let (event, cause) = match &*self.going.lock() {
            Some(Going {
                event,
                seen: Seen::NotYet(cause),
            }) => (event.clone(), cause.clone()),
            _ => return,
        };
        let shown = subscribers::show(&self.recorder, &event, &cause);
        let mut going = self.going.lock();
        let shown = match &mut *going {
            Some(going) => {
                going.seen = Seen::Now(shown);
                None
            }
            // It was over before they had seen it.
            None => Some(shown),
        };
        drop(going);
        if let Some(shown) = shown {
            subscribers::end(&shown, &event);
        }
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
        self.show();
    }

    /// What this thread does for the recording that it is in: the number of an event, or 0.
    pub fn here(&self) -> u64 {
        current::of(&self.recorder).map_or(0, |at| at.span)
    }

    /// It has waited since `from`, without a thread, until the event of this number had it go on; 0 where none did.
    pub fn waited(&self, from: u64, until: u64) {
        let name = |event: &Event| format!("wait in {}", event.name);
        let going = self.going.lock();
        let known = going
            .as_ref()
            .map(|going| (name(&going.event), going.event.thread));
        drop(going);
        if let Some((name, thread)) = known {
            // Subscribers see what goes on, not what is past.
            let wait = Self::ahead(
                &self.recorder,
                self.at,
                name,
                Kind::Wait { call: until },
                Cause::Around,
            );
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
        let Some(Going { mut event, seen }) = self.going.lock().take() else {
            return;
        };
        change(&mut event);
        if event.end == 0 {
            event.end = self.now();
        }
        if let Seen::Now(shown) = &seen {
            subscribers::end(shown, &event);
        }
        drop(seen);
        self.recorder.end(self.at.trace, event, self.has_room);
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
