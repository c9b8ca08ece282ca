//! Log lines as something that a test can wait for.

use std::fmt::{Debug, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// The lines that are logged while its dispatch is the default.
pub(super) struct Log {
    lines: Receiver<String>,
}

impl Log {
    pub(super) fn new() -> (Self, Dispatch) {
        let (sender, lines) = channel();
        (Self { lines }, Dispatch::new(Recorder { sender }))
    }

    /// Waits for a line that has all of these parts.
    pub(super) fn wait_for(&self, parts: &[&str]) -> String {
        loop {
            match self.lines.recv_timeout(Duration::from_secs(30)) {
                Ok(line) if parts.iter().all(|part| line.contains(part)) => return line,
                Ok(_) => {}
                Err(_) => panic!("no line with {parts:?} was logged"),
            }
        }
    }
}

struct Recorder {
    sender: Sender<String>,
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        let _ = self.sender.send(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}
