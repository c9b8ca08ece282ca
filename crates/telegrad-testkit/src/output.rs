//! What a process prints.

use std::io::{BufRead, BufReader, PipeReader};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use parking_lot::Mutex;

/// Lines that are kept of one process: what a failing test needs is at the end.
const KEPT: usize = 200;

/// How long to wait for the rest of what an ended process has printed. Only a process that it has
/// left behind can keep its output open.
const REST: Duration = Duration::from_secs(2);

/// The last lines that a process has printed, collected while it runs.
pub(crate) struct Output {
    lines: Arc<Mutex<Vec<String>>>,
    ended: Receiver<()>,
}

impl Output {
    /// Starts to collect, with the name of the process in front of each line.
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

    /// What was printed, when the process has ended.
    pub(crate) fn finish(self) -> String {
        let _ = self.ended.recv_timeout(REST);
        self.lines.lock().concat()
    }
}
