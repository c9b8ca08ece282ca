//! The benchmarks of Telegrad: calls and tensors, next to the limits of the machine.
//!
//! A crate of its own because it is not published: it needs a source tree, and a peer to compare with. It may use the
//! `telegrad` crate, and what it shares with the command from `telegrad-cli`.
//!
//! Metrics, parameters and section names are those of the benchmark of torch.distributed.rpc in `benches/peer`, so that
//! lines of both can be joined by (`metric`, `params`). Floors are taken in the same run: the same bytes over raw
//! sockets with the same waiting strategy, or a `memcpy`. Absolute times say little on a shared machine; ratios within
//! a run are comparable.
//!
//! Reading order: `turns` runs the sections (`calls` to `growth`), `measurement` collects their values, `torch` runs
//! the peer, `summary` joins both, `report` prints it with `table` and `chart`.

mod args;
mod section;
mod turns;
mod calls;
mod payload;
mod fresh_memory;
mod rref;
mod autograd;
mod split;
mod parameter_server;
mod fanout;
mod profiling;
mod lifecycle;
mod growth;
mod floor;
mod measurement;
mod torch;
mod summary;
mod table;
mod chart;
mod report;

use std::process::ExitCode;

use clap::Parser;
use telegrad_cli::{Error, WorkerArgs, fail, serve_worker, share_cores, start_logging};

use args::Args;
use lifecycle::MemberArgs;

/// Keeps the large blocks of received tensors for the next ones, as the command does.
#[global_allocator]
static ALLOC: telegrad::TensorAlloc = telegrad::TensorAlloc::new();

/// Measure calls, tensors and references between worker processes.
///
/// Starts its own worker processes. Each value is measured together with its floor: the same bytes over a raw socket, or
/// a plain copy in memory. With --against, another framework runs the same sections in turns with this one.
#[derive(Debug, Parser)]
#[command(name = "telegrad-bench", version, after_long_help = args::AFTER_HELP)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    args: Args,

    #[command(subcommand)]
    child: Option<Child>,
}

/// What the child processes of a benchmark run.
#[derive(Debug, clap::Subcommand)]
enum Child {
    /// A worker that answers calls
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// A member of a world that takes part in each stage on demand
    #[command(hide = true)]
    Member(MemberArgs),
    /// The far end of a raw socket
    #[command(hide = true)]
    Floor { address: String },
}

/// The most workers that compute at the same time.
const COMPUTING: usize = 3;

fn main() -> ExitCode {
    start_logging();
    let cli = Cli::parse();
    let result = match &cli.child {
        Some(Child::Worker(args)) => return serve_worker(args),
        Some(Child::Member(args)) => lifecycle::serve(args),
        Some(Child::Floor { address }) => floor::serve(address),
        None => {
            share_cores(COMPUTING);
            turns::run(&cli.args)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, 1),
    }
}
