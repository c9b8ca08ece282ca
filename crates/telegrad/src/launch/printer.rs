//! Writes the workers' lines to one stream of this process, on a thread of its own.
//!
//! A write to a terminal or a pager can block for any time, and the supervisor must forward signals meanwhile.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use anstyle::{AnsiColor, Style};
use rustix::event::{EventfdFlags, eventfd};

/// Bytes that may be pending before the supervisor stops to read from workers, which then block on their output as without
/// a launcher. Enough for a burst of output.
const MAX_PENDING: usize = 1024 * 1024;

/// Colours of names. Without red, which suggests an error, and black and white, which can be the background.
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

    /// Queues whole lines. Does not block.
    pub(super) fn print(&self, lines: &[u8]) {
        if !lines.is_empty() {
            self.shared.lock().pending.extend_from_slice(lines);
            self.shared.changed.notify_one();
        }
    }

    /// Announces that no more lines follow.
    pub(super) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
    }

    /// Whether the queue has reached its limit.
    pub(super) fn is_full(&self) -> bool {
        self.shared.lock().pending.len() >= MAX_PENDING
    }

    /// Whether everything is written, after `close`.
    pub(super) fn is_done(&self) -> bool {
        self.shared.lock().done
    }

    /// Descriptor that becomes readable when `is_full` or `is_done` may have changed.
    pub(super) fn progress_fd(&self) -> BorrowedFd<'_> {
        self.shared.progress.as_fd()
    }

    /// Resets `progress_fd`.
    pub(super) fn clear_progress(&self) {
        // Fails only if there is nothing to clear.
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
    /// Signals that lines are pending or no more follow.
    changed: Condvar,
    /// Signals that lines were written.
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
        // No code panics while it holds the lock, so the state is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop of the printer's thread.
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
            // After the reader has closed the stream, lines are dropped and the workers continue.
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
