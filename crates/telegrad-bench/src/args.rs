//! The options.

use std::path::PathBuf;

use clap::ValueEnum;
use telegrad_cli::Link;

use crate::section::Section;

/// The options of a run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sections to run
    #[arg(
        long,
        value_name = "SECTION,…",
        value_delimiter = ',',
        default_value = "latency,throughput,echo,mixed,rref,autograd,chain,split,ps,fanout,init,profile"
    )]
    pub(crate) only: Vec<Section>,

    /// Run the same sections on another framework too, in turns with this one
    #[arg(long, value_name = "FRAMEWORK")]
    pub(crate) against: Option<Against>,

    /// Number of repetitions; the best value of each metric counts [default: 3 with --against, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) reps: Option<u16>,

    /// Print one JSON object per value instead of a table
    #[arg(long)]
    pub(crate) json: bool,

    /// Make fewer calls
    #[arg(long)]
    pub(crate) quick: bool,

    /// Kind of links between the workers
    #[arg(long, default_value = "auto")]
    pub(crate) transport: Link,

    /// The largest tensor of the sections echo, mixed and growth, in MB
    #[arg(long, value_name = "MB", default_value_t = 256)]
    pub(crate) max_mb: usize,

    /// The tensor of the section fresh, in MB; up to 1024, its memory is not fresh
    #[arg(long, value_name = "MB", default_value_t = 3072)]
    pub(crate) fresh_mb: usize,

    /// A Python with torch [default: python3, or else /usr/bin/python3]
    #[arg(long, value_name = "PATH", requires = "against")]
    pub(crate) python: Option<PathBuf>,

    /// Time limit for a section of the other framework, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, requires = "against")]
    pub(crate) limit: u64,

    /// Draw the ratios to the other framework into this file
    #[arg(long, value_name = "FILE", requires = "against")]
    pub(crate) svg: Option<PathBuf>,

    /// Write the table in Markdown into a new file, or between the lines `<!-- bench: begin -->` and
    /// `<!-- bench: end -->` of an existing one
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
}

/// A framework to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Against {
    /// torch.distributed.rpc, run by a Python with torch
    Torch,
}

pub(crate) const AFTER_HELP: &str = "\
Sections:
  latency     rpc_sync_latency: one call at a time
  throughput  rpc_async_throughput: 64 calls outstanding
  echo        tensor_echo and tensor_sink: tensors from 4 KB to 256 MB, both ways and one way
  mixed       mixed_latency: a small call, idle and while tensors of 64 or 256 MB flow to the same worker
  rref        rref_remote_to_here_latency, rref_method_latency: one reference at a time;
              rref_create_issue_rate, rref_create_confirmed_rate, rref_delete_rate: many
  autograd    dist_autograd_step: a product on another worker and its gradient
  chain       dist_autograd_chain: the same over four workers, each called by the driver or by its predecessor
  split       split_learning: steps/s of a network whose layers are on two workers, and
              split_learning_local_reference: of the same network on one
  ps          parameter_server: 4 and 8 clients push and pull 1 MB
  fanout      fanout: one call to each of 8 workers, until all have answered
  init        init_rpc, first_call_full_mesh, graceful_shutdown: worlds of 2 to 16 workers, from the first
              start of a stage to its last end; memory_per_process, memory_beyond_program: afterwards
  profile     profiled_latency: an empty call, and one of 100 µs of work, without profiling, within a profile,
              and in a recording of the calling process; profiling_cost: the ratio of each to the first
  fresh       tensor_fresh: a tensor of 3 GB in new memory, as argument and as result, in turns with
              floor_fresh_copy: a copy of it into new memory. Needs memory for two such tensors; not in the
              default
  growth      cost against the number of workers, bytes, live references and open autograd contexts, with
              growth_exponent, growth_exponent_at_end: 1 is linear. Takes minutes; not in the default

Keys of a JSON line: framework, metric, params, value, unit, rep; p50, p99, min, mean (latencies); n.
With --against, lines with these keys come last: against, metric, params, unit, value (our best),
theirs, ratio (how many times better ours is), floor, floor_metric, times_floor.
`call=user_function` is a function of the program, which torch's lines call `python_udf`; `call=inline` is the
same function on the thread that reads the request.

Examples:
  cargo run --release -p telegrad-bench
  cargo run --release -p telegrad-bench -- --only latency --transport tcp
  cargo run --release -p telegrad-bench -- --json --quick > results.jsonl
  cargo run --release -p telegrad-bench -- --against torch --svg torch.svg --markdown torch.md
  telegrad bench --against torch --python venv/bin/python --only latency,echo --reps 5";
