//! Output of a process.

use std::io::{BufRead, BufReader, PipeReader};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use parking_lot::Mutex;

/// Number of last lines that are kept of one process.
const KEPT: usize = 200;

/// Time limit for the rest of an ended process's output, which a process started by it may keep open.
const REST: Duration = Duration::from_secs(2);

/// Collects the last lines of a process's output while it runs.
pub(crate) struct Output {
    lines: Arc<Mutex<Vec<String>>>,
    ended: Receiver<()>,
}

impl Output {
    /// Starts to collect lines, each prefixed with the name of the process.
    pub(crate) fn collect(from: PipeReader, name: &str) -> Self {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let (sender, ended) = channel();
        let (kept, name) = (lines.clone(), name.to_owned());
        std::thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n') {
                let Ok(line) = line else { break };
                let mut kept = kept.lock();
                if kept.len() == KEPT {
                    kept.remove(0);
                }
                kept.push(format!("{name} | {}\n", String::from_utf8_lossy(&line)));
            }
            drop(sender);
        });
        Self { lines, ended }
    }

    /// The collected lines, once the process has ended.
    pub(crate) fn finish(self) -> String {
        let _ = self.ended.recv_timeout(REST);
        self.lines.lock().concat()
    }
}
