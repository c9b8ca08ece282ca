//! Log lines that a test can wait for.

use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tracing::Dispatch;

/// The lines logged while the dispatch of this log is the default.
pub(crate) struct TestLog {
    lines: Receiver<String>,
}

impl TestLog {
    pub(crate) fn new() -> (Self, Dispatch) {
        let (sender, lines) = channel();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || LineWriter(sender.clone()));
        (Self { lines }, Dispatch::new(subscriber.finish()))
    }

    /// Waits for a line that contains all of these parts.
    pub(crate) fn wait_for(&self, parts: &[&str]) -> String {
        loop {
            match self.lines.recv_timeout(Duration::from_secs(30)) {
                Ok(line) if parts.iter().all(|part| line.contains(part)) => return line,
                Ok(_) => {}
                Err(_) => panic!("no line with {parts:?} was logged"),
            }
        }
    }
}

/// Sends each write, which is one line of the log.
struct LineWriter(Sender<String>);

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.send(String::from_utf8_lossy(line).into_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
