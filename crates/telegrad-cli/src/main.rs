//! The `telegrad` command.
//!
//! A crate of its own so that programs that use the library do not build a command line. It may use
//! the `telegrad` crate and everything below it.
//!
//! One file per subcommand, each with its arguments, which are also its help, its completions and
//! its man page, and a function that does it and gives the exit code.

mod addresses;
mod bench;
mod completions;
mod dashboard;
mod demo;
mod doctor;
mod man;
mod page;
mod peer;
mod run;
mod top;
mod trace;
mod watch;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use telegrad::launch::{THREADS, threads_each};
use tracing_subscriber::EnvFilter;

/// Received tensors need large blocks all the time; this keeps them for the next one.
#[global_allocator]
static ALLOC: telegrad::TensorAlloc = telegrad::TensorAlloc::new();

/// Remote calls that carry tensors between worker processes.
#[derive(Debug, Parser)]
#[command(name = "telegrad", version, propagate_version = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  telegrad demo split-learning
  telegrad run -n 4 -- ./trainer --epochs 3
  telegrad run --names master,worker -- ./trainer
  telegrad trace record -n 2 -- ./trainer
  telegrad help run";

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Demo(demo::Args),
    Bench(bench::Args),
    Trace(trace::Args),
    Top(top::Args),
    Doctor(doctor::Args),
    #[command(hide = true)]
    Peer(peer::Args),
    Completions(completions::Args),
    Man(man::Args),
}

fn main() -> ExitCode {
    // What the library has to say, a connection that was lost for instance: warnings, or what RUST_LOG asks for.
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn")))
        .with_writer(io::stderr)
        .init();
    match Cli::parse().command {
        Command::Run(args) => run::run(args),
        Command::Demo(args) => demo::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Trace(args) => trace::run(args),
        Command::Top(args) => top::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Peer(args) => peer::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}

/// Anything that can end a command.
type Error = Box<dyn std::error::Error>;

/// Has this process, and those that it starts, compute with no more threads than so many of them have cores for.
fn share_cores(processes: usize) {
    if std::env::var_os(THREADS).is_none() {
        // SAFETY: commands call this first of all, when there is no other thread yet.
        unsafe { std::env::set_var(THREADS, threads_each(processes).to_string()) };
    }
}

/// Prints a whole text. A reader that has seen enough is no failure.
fn print(text: &[u8]) -> ExitCode {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => fail(&error, 1),
        _ => ExitCode::SUCCESS,
    }
}

/// Says what went wrong.
fn fail(error: &dyn std::error::Error, code: u8) -> ExitCode {
    // With standard error closed there is nobody to tell; the exit code remains.
    let _ = writeln!(io::stderr(), "telegrad: {error}");
    ExitCode::from(code)
}
