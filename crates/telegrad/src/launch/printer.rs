//! Writes the workers' lines to one stream of this process, on a thread of its own.
//!
//! A thread, because a write to a terminal or a pager can take as long as a person likes, and the
//! supervisor must forward signals meanwhile.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use anstyle::{AnsiColor, Style};
use rustix::event::{EventfdFlags, eventfd};

/// How many bytes may wait to be written before the workers are no longer read, so that they wait
/// for the reader of this stream as they would without a launcher. Plenty for a burst of output.
const FULL: usize = 1024 * 1024;

/// No red, which reads as an error, and no black or white, which some terminals have as background.
const COLOURS: [AnsiColor; 10] = [
    AnsiColor::Cyan,
    AnsiColor::Yellow,
    AnsiColor::Green,
    AnsiColor::Magenta,
    AnsiColor::Blue,
    AnsiColor::BrightCyan,
    AnsiColor::BrightYellow,
    AnsiColor::BrightGreen,
    AnsiColor::BrightMagenta,
    AnsiColor::BrightBlue,
];

/// One stream of this process.
pub(super) struct Printer {
    shared: Arc<Shared>,
    coloured: bool,
}

impl Printer {
    pub(super) fn new(stream: impl Write + IsTerminal + Send + 'static) -> io::Result<Self> {
        let coloured = stream.is_terminal() && terminal_wants_colour();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            progress: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let writer = Arc::clone(&shared);
        thread::Builder::new()
            .name("telegrad-print".into())
            .spawn(move || writer.write_all_to(stream))?;
        Ok(Printer { shared, coloured })
    }

    /// The style of a worker's name on this stream.
    pub(super) fn colour(&self, rank: usize) -> Style {
        if self.coloured {
            Style::new().fg_color(Some(COLOURS[rank % COLOURS.len()].into()))
        } else {
            Style::new()
        }
    }

    /// Adds whole lines to what is to be written. Does not wait.
    pub(super) fn print(&self, lines: &[u8]) {
        if !lines.is_empty() {
            self.shared.lock().pending.extend_from_slice(lines);
            self.shared.changed.notify_one();
        }
    }

    /// Says that nothing more will come.
    pub(super) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
    }

    /// Whether more should wait for the reader of this stream.
    pub(super) fn is_full(&self) -> bool {
        self.shared.lock().pending.len() >= FULL
    }

    /// Whether everything is written, after `close`.
    pub(super) fn is_done(&self) -> bool {
        self.shared.lock().done
    }

    /// What to wait on for `is_full` and `is_done` to change.
    pub(super) fn progress_fd(&self) -> BorrowedFd<'_> {
        self.shared.progress.as_fd()
    }

    /// Makes `progress_fd` wait for the next change.
    pub(super) fn clear_progress(&self) {
        // Fails only when there was nothing to clear.
        let _ = rustix::io::read(&self.shared.progress, &mut [0; 8]);
    }
}

/// Ends the thread when the launcher leaves early.
impl Drop for Printer {
    fn drop(&mut self) {
        self.close();
    }
}

struct Shared {
    state: Mutex<State>,
    /// There is something to write, or nothing more will come.
    changed: Condvar,
    /// The way back: something was written.
    progress: OwnedFd,
}

#[derive(Default)]
struct State {
    pending: Vec<u8>,
    closed: bool,
    done: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock, and bytes are never half added.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of the printer's thread.
    fn write_all_to(&self, mut stream: impl Write) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.lock();
            while state.pending.is_empty() && !state.closed {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut batch, &mut state.pending);
            state.done = batch.is_empty();
            let done = state.done;
            drop(state);
            // When the reader has gone away, lines are dropped and the workers go on.
            let _ = stream.write_all(&batch).and_then(|()| stream.flush());
            batch.clear();
            let _ = rustix::io::write(&self.progress, &1_u64.to_ne_bytes());
            if done {
                break;
            }
        }
    }
}

fn terminal_wants_colour() -> bool {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    !no_colour && !dumb
}
