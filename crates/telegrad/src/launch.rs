//! Starts the processes of one world on this machine.
//!
//! [`Launch`] is what `telegrad run` does, as a library: one process per worker, each with `RANK`,
//! `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` and `TELEGRAD_NAME` in its environment. [`world_of`]
//! is the same in one line for a program that starts itself once per worker.
//!
//! The rules, which hold for both:
//! - Every line a worker prints appears whole, on the same stream, after the worker's name; in a
//!   colour of its own when that stream is a terminal, unless `NO_COLOR` is set.
//! - Workers read nothing: their standard input is `/dev/null`, because several processes that read
//!   one terminal take each other's input.
//! - Workers share the cores: unless `RAYON_NUM_THREADS` is set, each computes with as many threads as there are cores
//!   for it, and at least with one. Threads that wait for each other while others run in between cost more than they bring.
//! - The world fails with its first worker that fails. The others get `SIGTERM`, and `SIGKILL` when
//!   the grace period is over; with [`Launch::keep_going`] they go on, and the world fails at its end.
//! - `SIGINT` and `SIGTERM` are passed on to every worker, with the grace period too; a second one
//!   kills.
//! - A worker is its process and everything that this process started in its process group: what is
//!   still there when the worker has ended and its output is closed (or the grace period is over)
//!   is killed.
//! - Workers do not outlive the launcher, not even when it is killed with `SIGKILL`. (What a *worker*
//!   started is out of reach then.)
//!
//! Read the files in this order: `name`, `port`, `worker` (one process), `stream`, `lines` and
//! `printer` (its output), `signals`, and `supervisor`, which waits for all of it at once.
//!
//! ```
//! use telegrad::launch::{Launch, default_names};
//!
//! let mut launch = Launch::new("sh", default_names(2));
//! launch.args = vec!["-c".into(), "echo rank $RANK of $WORLD_SIZE".into()];
//! launch.run()?;
//! # Ok::<(), telegrad::launch::LaunchError>(())
//! ```

mod error;
mod lines;
mod name;
mod port;
mod printer;
mod signals;
mod stream;
mod supervisor;
mod worker;
mod world_of;

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use telegrad_macros::Setters;

pub use error::{Ending, Failure, LaunchError};
pub use name::default_names;
pub use world_of::world_of;

use lines::Lines;
use port::ReservedPort;
use printer::Printer;
use signals::Signals;
use supervisor::Supervisor;
use worker::Worker;

/// How many threads a process computes tensors with.
pub const THREADS: &str = "RAYON_NUM_THREADS";

/// How many threads each of so many workers on this machine should compute with.
pub fn threads_each(workers: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / workers.max(1)).max(1)
}

/// How long workers have to end by themselves, unless [`Launch::grace`] says otherwise: enough to
/// write a small checkpoint, short enough to wait for at a terminal.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// The processes of one world, about to be started.
#[derive(Debug, Clone, Setters)]
#[non_exhaustive]
pub struct Launch {
    /// What to start: a path, or a name to look for in `PATH`.
    pub program: OsString,
    /// Its arguments, the same for every worker.
    pub args: Vec<OsString>,
    /// One worker per name; the position is the rank.
    pub names: Vec<String>,
    /// Variables to set besides those of the world, which win.
    pub env: Vec<(OsString, OsString)>,
    /// How long workers that were asked to end may take before they are killed.
    pub grace: Duration,
    /// Whether the other workers go on when one fails. Each failure is printed on standard error when it
    /// happens; [`Launch::run`] fails with all of them once every worker has ended.
    pub keep_going: bool,
}

impl Launch {
    /// A world of `program` without arguments, one worker per name.
    pub fn new(program: impl Into<OsString>, names: Vec<String>) -> Self {
        Launch {
            program: program.into(),
            args: Vec::new(),
            names,
            env: Vec::new(),
            grace: DEFAULT_GRACE,
            keep_going: false,
        }
    }

    /// A world of the running program with its own arguments, one worker per name.
    ///
    /// # Errors
    /// When the system does not say where this program is.
    pub fn this_program(names: Vec<String>) -> Result<Self, LaunchError> {
        let program = std::env::current_exe().map_err(LaunchError::System)?;
        Ok(Launch::new(program, names).args(std::env::args_os().skip(1).collect()))
    }

    /// Starts the workers and returns when all of them have ended and their output is written.
    ///
    /// While it runs it handles `SIGINT` and `SIGTERM` for this process; afterwards they end the
    /// process again, as they do by default. When the reader of this process's standard output goes
    /// away, the workers' output is dropped and they go on.
    ///
    /// The calling thread is the one the workers die with, so it stays here until the end.
    ///
    /// # Errors
    /// See [`LaunchError`]; [`LaunchError::exit_code`] is what a command should exit with. A world
    /// that was interrupted and whose workers all ended with status 0 has ended well.
    pub fn run(self) -> Result<(), LaunchError> {
        name::check(&self.names)?;
        // First of all, so that a signal from here on finds a launcher that ends its workers.
        let signals = Signals::install().map_err(LaunchError::System)?;
        let port = ReservedPort::new().map_err(LaunchError::System)?;
        let printers = self.printers().map_err(LaunchError::System)?;
        let width = self.names.iter().map(String::len).max().unwrap_or(0);
        let workers = (0..self.names.len())
            .map(|rank| {
                let lines = printers
                    .each_ref()
                    .map(|p| Lines::new(&self.names[rank], width, p.colour(rank)));
                Worker::start(&self, rank, port.number(), lines)
            })
            .collect::<Result<Vec<_>, _>>()?;
        Supervisor::new(workers, printers, signals, &self).run()
        // `port` is released here: nobody else is given it while the workers run.
    }

    /// Where the workers' standard output and standard error go, in this order.
    fn printers(&self) -> io::Result<[Printer; 2]> {
        Ok([Printer::new(io::stdout())?, Printer::new(io::stderr())?])
    }
}
