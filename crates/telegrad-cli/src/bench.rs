//! `telegrad bench`: how fast calls and tensors are, next to what the machine can do.
//!
//! Metrics, parameters and section names are those of the benchmark of torch.distributed.rpc that
//! they are compared with, so that lines of both can be joined by (`metric`, `params`). Floors, what
//! raw sockets and `memcpy` do with the same waiting strategy, are taken in the same run: absolute
//! times say little on a shared machine, ratios within a run do.

mod calls;
mod payload;
mod rref;
mod autograd;
mod split;
mod many;
pub(crate) mod floor;
mod record;
mod table;

use std::process::ExitCode;

use clap::ValueEnum;
use telegrad::Transport;

use crate::peer::Workers;
use crate::{Error, fail, share_cores};
use record::Recorder;

/// Measure calls, tensors and references between worker processes.
///
/// Starts its own worker processes. Every value is taken together with its floor: the same bytes over
/// a raw socket, or a plain copy in memory.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Which sections to run
    #[arg(
        long,
        value_name = "SECTION,…",
        value_delimiter = ',',
        default_value = "latency,throughput,echo,mixed,rref,autograd,chain,split,ps,fanout"
    )]
    only: Vec<Section>,

    /// Print one JSON object per value instead of a table
    #[arg(long)]
    json: bool,

    /// Fewer calls
    #[arg(long)]
    quick: bool,

    /// Which links to use between the workers
    #[arg(long, default_value = "auto")]
    transport: Link,

    /// The largest payload of the echo section, in MB
    #[arg(long, value_name = "MB", default_value_t = 256)]
    max_mb: usize,
}

const AFTER_HELP: &str = "\
Sections:
  latency     rpc_sync_latency: one call at a time
  throughput  rpc_async_throughput: 64 calls outstanding
  echo        tensor_echo and tensor_sink: tensors from 4 KB to 256 MB, both ways and one way
  mixed       mixed_latency: a small call, idle and while 64 MB tensors flow to the same worker
  rref        rref_remote_to_here_latency, rref_method_latency: one reference at a time;
              rref_create_issue_rate, rref_create_confirmed_rate, rref_delete_rate: many
  autograd    dist_autograd_step: a product on another worker and its gradient
  chain       dist_autograd_chain: the same over four workers, called one by one or each by the one before
  split       split_learning: steps/s of a network whose layers are on two workers, and
              split_learning_local_reference: of the same network on one
  ps          parameter_server: 4 and 8 clients push and pull 1 MB
  fanout      fanout: one call to each of 8 workers, and all their answers

Keys of a JSON line: metric, params, value, unit; p50, p99, min, mean (latencies); n.
`call=python_udf` is a user's function: the name is the one it has in the benchmark that this one
is compared with.

Examples:
  telegrad bench
  telegrad bench --only latency --transport tcp
  telegrad bench --json --quick > results.jsonl";

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    Latency,
    Throughput,
    Echo,
    Mixed,
    Rref,
    Autograd,
    Chain,
    Split,
    Ps,
    Fanout,
}

impl Section {
    /// The sizes of the worlds it is run in.
    fn worlds(self) -> &'static [u32] {
        match self {
            Self::Latency | Self::Throughput | Self::Echo | Self::Mixed | Self::Rref | Self::Autograd => &[2],
            Self::Chain => &[4],
            Self::Split => &[2, 3],
            Self::Ps => &[5, 9],
            Self::Fanout => &[9],
        }
    }

    fn run(self, workers: &Workers, recorder: &mut Recorder, args: &Args) -> Result<(), Error> {
        match self {
            Self::Latency => calls::latency(workers, recorder, args.quick),
            Self::Throughput => calls::throughput(workers, recorder, args.quick),
            Self::Echo => payload::echo(workers, recorder, args.quick, args.max_mb),
            Self::Mixed => payload::mixed(workers, recorder, args.quick),
            Self::Rref => rref::rref(workers, recorder, args.quick),
            Self::Autograd => autograd::step(workers, recorder, args.quick),
            Self::Chain => autograd::chain(workers, recorder, args.quick),
            Self::Split => split::split(workers, recorder, args.quick),
            Self::Ps => many::ps(workers, recorder, args.quick),
            Self::Fanout => many::fanout(workers, recorder, args.quick),
        }
    }
}

/// Which links to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Link {
    /// What two workers on one host choose by themselves
    Auto,
    /// Both workers in one process
    Mem,
    Unix,
    Tcp,
}

impl Link {
    pub(crate) fn transport(self) -> Transport {
        match self {
            Self::Auto => Transport::Auto,
            Self::Mem => Transport::Mem,
            Self::Unix => Transport::Unix,
            Self::Tcp => Transport::Tcp,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mem => "mem",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
        }
    }
}

/// Of the worlds that compute anything, the largest.
const COMPUTING: usize = 3;

pub(crate) fn run(args: &Args) -> ExitCode {
    share_cores(COMPUTING);
    let mut recorder = Recorder::new(args.transport.name(), args.json);
    let result = measure(args, &mut recorder);
    if !args.json {
        let code = crate::print(table::of(recorder.records()).as_bytes());
        if result.is_ok() {
            return code;
        }
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, 1),
    }
}

fn measure(args: &Args, recorder: &mut Recorder) -> Result<(), Error> {
    // Sections in worlds of the same size that follow each other share one.
    let mut workers: Option<Workers> = None;
    for section in &args.only {
        for size in section.worlds() {
            let fitting = match workers.take() {
                Some(kept) if kept.size() == *size as usize => kept,
                other => {
                    other.map_or(Ok(()), Workers::end)?;
                    {
                        let names: Vec<_> = (0..*size).map(|rank| format!("w{rank}")).collect();
                        Workers::start(args.transport.transport(), &names)?
                    }
                }
            };
            section.run(&fitting, recorder, args)?;
            workers = Some(fitting);
        }
    }
    workers.map_or(Ok(()), Workers::end)
}
