//! The `telegrad` command.
//!
//! One file per subcommand. Its arguments are also its help, its completions and its man page; its function runs it and
//! returns the exit code.

mod addresses;
mod bench;
mod completions;
mod dashboard;
mod demo;
mod doctor;
mod man;
mod page;
mod run;
mod top;
mod trace;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use telegrad_cli::{Error, WorkerArgs, fail, print, serve_worker, share_cores, start_logging};

/// Keeps the large blocks of received tensors for the next ones.
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
    /// A worker process that `demo` starts
    #[command(hide = true)]
    Worker(WorkerArgs),
    Completions(completions::Args),
    Man(man::Args),
}

fn main() -> ExitCode {
    start_logging();
    match Cli::parse().command {
        Command::Run(args) => run::run(args),
        Command::Demo(args) => demo::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Trace(args) => trace::run(args),
        Command::Top(args) => top::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Worker(args) => serve_worker(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
