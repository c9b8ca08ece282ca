//! Parts of the `telegrad` command that the benchmarks use too.
//!
//! The command is a crate of its own so that programs that use the library do not build a command line. It may use
//! the `telegrad` crate and everything below it. This library exists for `telegrad-bench`, which is not published; it
//! promises no stable interface.

mod files;
mod link;
mod process;
mod workers;

use std::io::{self, Write};
use std::process::ExitCode;

use telegrad::launch::{THREADS, threads_each};
use tracing_subscriber::EnvFilter;

pub use files::{cannot_write, check_writable};
pub use link::Link;
pub use process::Process;
pub use workers::{Meeting, WorkerArgs, Workers, serve_worker};

/// An error that ends a command.
pub type Error = Box<dyn std::error::Error>;

/// Logs the library's events to standard error: warnings and errors, or the events that `RUST_LOG` selects.
pub fn start_logging() {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn")))
        .with_writer(io::stderr)
        .init();
}

/// Limits the compute threads of this process and its children so that `processes` of them share the cores.
pub fn share_cores(processes: usize) {
    if std::env::var_os(THREADS).is_none() {
        // SAFETY: commands call this before they start any thread.
        unsafe { std::env::set_var(THREADS, threads_each(processes).to_string()) };
    }
}

/// Prints a whole text to standard output. A closed pipe is not an error.
pub fn print(text: &[u8]) -> ExitCode {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => fail(&error, 1),
        _ => ExitCode::SUCCESS,
    }
}

/// Prints an error to standard error and returns the exit code.
pub fn fail(error: &dyn std::error::Error, code: u8) -> ExitCode {
    // If standard error is closed, the exit code still reports the failure.
    let _ = writeln!(io::stderr(), "telegrad: {error}");
    ExitCode::from(code)
}
