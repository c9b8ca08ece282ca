//! The log of this process.

use std::io::Write;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Time limit of a wait, long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Warnings and errors that this process has logged since [`start`](Self::start).
///
/// All tests of a process share one log, because workers log on threads of their own.
#[derive(Debug, Default)]
pub struct Log {
    text: Mutex<String>,
    grown: Condvar,
}

static LOG: LazyLock<Log> = LazyLock::new(Log::default);

struct Writer;

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.text.lock().push_str(&String::from_utf8_lossy(bytes));
        LOG.grown.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Starts to collect log lines.
    pub fn start() {
        let log = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::WARN);
        // Only the first call in a process has an effect.
        let _ = log.with_writer(|| Writer).try_init();
    }

    /// Waits for a line that contains all of `words`.
    ///
    /// # Panics
    /// After 20 s without such a line, with the whole log.
    #[track_caller]
    pub fn wait_for(words: &[&str]) {
        let deadline = Instant::now() + LIMIT;
        let matches = |line: &str| words.iter().all(|word| line.contains(word));
        let mut text = LOG.text.lock();
        while !text.lines().any(matches) {
            let late = LOG.grown.wait_until(&mut text, deadline).timed_out();
            assert!(!late, "{words:?} is not in the log:\n{text}");
        }
    }
}
