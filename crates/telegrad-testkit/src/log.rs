//! What the workers of this process have logged.

use std::io::Write;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// What is logged at all has been logged by then, on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(20);

/// The warnings and errors that were logged in this process since [`start`](Self::start). One for all
/// tests: workers have threads of their own.
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
    /// Takes down what is logged from now on.
    pub fn start() {
        let log = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::WARN);
        // Only the first test of the process starts it.
        let _ = log.with_writer(|| Writer).try_init();
    }

    /// Waits until a line has all of these.
    ///
    /// # Panics
    /// When there is none after a while; with everything that is there.
    #[track_caller]
    pub fn wait_for(words: &[&str]) {
        let deadline = Instant::now() + LIMIT;
        let is_it = |line: &str| words.iter().all(|word| line.contains(word));
        let mut text = LOG.text.lock();
        while !text.lines().any(is_it) {
            let late = LOG.grown.wait_until(&mut text, deadline).timed_out();
            assert!(!late, "{words:?} is not in the log:\n{text}");
        }
    }
}
