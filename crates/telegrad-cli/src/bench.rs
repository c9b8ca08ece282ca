//! `telegrad bench`: how fast calls and tensors are, next to what the machine can do.
//!
//! Metrics, parameters and section names are those of the benchmark of torch.distributed.rpc that
//! they are compared with, so that lines of both can be joined by (`metric`, `params`). Floors, what
//! raw sockets and `memcpy` do with the same waiting strategy, are taken in the same run: absolute
//! times say little on a shared machine, ratios within a run do.

mod calls;
mod floor;
mod payload;
mod peer;
mod record;
mod table;

use std::process::ExitCode;

use clap::ValueEnum;
use telegrad::Transport;

use crate::fail;
pub(crate) use peer::{Args as PeerArgs, run as run_peer};
use record::Recorder;

/// Measure calls and tensors between two worker processes.
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
        default_value = "latency,throughput,echo,mixed"
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
}

/// Which links to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Link {
    /// What two workers on one host choose by themselves
    Auto,
    /// Both workers in one process
    Mem,
    Unix,
    Tcp,
}

impl Link {
    fn transport(self) -> Transport {
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

pub(crate) fn run(args: &Args) -> ExitCode {
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

/// Anything that can end a benchmark.
type Error = Box<dyn std::error::Error>;

fn measure(args: &Args, recorder: &mut Recorder) -> Result<(), Error> {
    let pair = peer::Pair::start(args.transport.transport())?;
    for section in &args.only {
        match section {
            Section::Latency => calls::latency(&pair, recorder, args.quick)?,
            Section::Throughput => calls::throughput(&pair, recorder, args.quick)?,
            Section::Echo => payload::echo(&pair, recorder, args.quick, args.max_mb)?,
            Section::Mixed => payload::mixed(&pair, recorder, args.quick)?,
        }
    }
    pair.end()
}
