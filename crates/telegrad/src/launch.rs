//! Launcher: starts the processes of one world on this machine.
//!
//! [`Launch`] is the library behind `telegrad run`: one process per worker, each with `RANK`, `WORLD_SIZE`, `MASTER_ADDR`,
//! `MASTER_PORT` and `TELEGRAD_NAME` in its environment. [`world_of`] is the same in one line for a program that starts
//! itself once per worker.
//!
//! Rules of both:
//! - Every line of a worker's output appears whole, on the same stream, after the worker's name. The name is coloured if the
//!   stream is a terminal and `NO_COLOR` is not set.
//! - The standard input of workers is `/dev/null`, because processes that read one terminal take each other's input.
//! - Workers share the cores: unless `RAYON_NUM_THREADS` is set, each gets an equal number of compute threads, at least one.
//!   More threads than cores would wait for each other.
//! - The first worker that fails ends the world: the others get `SIGTERM`, and `SIGKILL` after the grace period. With
//!   [`Launch::keep_going`] they continue, and the world fails at its end.
//! - `SIGINT` and `SIGTERM` are forwarded to every worker, also with the grace period; a second signal kills.
//! - A worker consists of its process and that process's group. Once the worker has ended and its output is closed, or the
//!   grace period is over, the remaining processes of the group are killed.
//! - Workers do not outlive the launcher, even if it is killed with `SIGKILL`. Processes that a *worker* started can.
//!
//! Reading order: `name`, `port`, `child_process`, `stream`, `lines` and `printer` (its output), `signals`, and `supervisor`,
//! which waits for all of these events.
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
mod child_process;
mod world_of;

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use telegrad_macros::Setters;

pub use error::{Ending, Failure, LaunchError};
pub use name::default_names;
pub use world_of::world_of;

use child_process::ChildProcess;
use lines::Lines;
use port::ReservedPort;
use printer::Printer;
use signals::Signals;
use supervisor::Supervisor;

/// Environment variable for the number of compute threads of a process.
pub const THREADS: &str = "RAYON_NUM_THREADS";

/// Number of compute threads for each of `workers` workers on this machine.
pub fn threads_each(workers: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / workers.max(1)).max(1)
}

/// Default of [`Launch::grace`]: long enough to write a small checkpoint, short enough to wait for at a terminal.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// Configuration of the processes of one world.
#[derive(Debug, Clone, Setters)]
#[non_exhaustive]
pub struct Launch {
    /// The program: a path, or a name to be found in `PATH`.
    pub program: OsString,
    /// Arguments of the program, the same for every worker.
    pub args: Vec<OsString>,
    /// Names of the workers, by rank.
    pub names: Vec<String>,
    /// Additional environment variables. The variables of the world take precedence.
    pub env: Vec<(OsString, OsString)>,
    /// Grace period between the request to end and `SIGKILL`.
    pub grace: Duration,
    /// Whether the other workers continue when one fails.
    ///
    /// Each failure is printed on standard error at once; [`Launch::run`] returns all of them once every worker has ended.
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
    /// When the path of the running program is unknown.
    pub fn this_program(names: Vec<String>) -> Result<Self, LaunchError> {
        let program = std::env::current_exe().map_err(LaunchError::System)?;
        Ok(Launch::new(program, names).args(std::env::args_os().skip(1).collect()))
    }

    /// Starts the workers and returns when all of them have ended and their output is written.
    ///
    /// Handles `SIGINT` and `SIGTERM` of this process during the call; afterwards they have their default effect again. If the
    /// reader of this process's standard output closes it, the workers' output is dropped and they continue.
    ///
    /// The calling thread blocks until the end, because the system kills the workers when that thread ends.
    ///
    /// # Errors
    /// See [`LaunchError`]; [`LaunchError::exit_code`] is the exit code for a command. A world that was interrupted succeeds if
    /// all workers exited with status 0.
    pub fn run(self) -> Result<(), LaunchError> {
        name::check(&self.names)?;
        // First, so that any later signal ends the workers too.
        let signals = Signals::install().map_err(LaunchError::System)?;
        let port = ReservedPort::new().map_err(LaunchError::System)?;
        let printers = self.printers().map_err(LaunchError::System)?;
        let width = self.names.iter().map(String::len).max().unwrap_or(0);
        let workers = (0..self.names.len())
            .map(|rank| {
                let lines = printers
                    .each_ref()
                    .map(|p| Lines::new(&self.names[rank], width, p.colour(rank)));
                ChildProcess::start(&self, rank, port.number(), lines)
            })
            .collect::<Result<Vec<_>, _>>()?;
        Supervisor::new(workers, printers, signals, &self).run()
        // `port` is released here, so it stays reserved while the workers run.
    }

    /// Printers for the workers' standard output and standard error, in this order.
    fn printers(&self) -> io::Result<[Printer; 2]> {
        Ok([Printer::new(io::stdout())?, Printer::new(io::stderr())?])
    }
}
