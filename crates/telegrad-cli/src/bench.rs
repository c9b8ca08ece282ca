//! `telegrad bench`: how fast calls and tensors are, next to what the machine can do.
//!
//! Metrics, parameters and section names are those of the benchmark of torch.distributed.rpc that
//! they are compared with, so that lines of both can be joined by (`metric`, `params`). Floors, what
//! raw sockets and `memcpy` do with the same waiting strategy, are taken in the same run: absolute
//! times say little on a shared machine, ratios within a run do.
//!
//! Read it in this order: the sections (`calls` to `growth`), `record` takes what they measure, `torch` has the other
//! benchmark run, `summary` joins both, and `report` has it shown by `table` and `chart`.

mod calls;
mod payload;
mod fresh;
mod rref;
mod autograd;
mod split;
mod many;
mod profile;
pub(crate) mod life;
mod growth;
pub(crate) mod floor;
mod record;
mod torch;
mod summary;
mod table;
mod chart;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use telegrad::Transport;

use crate::peer::Workers;
use crate::{Error, fail, share_cores};
use record::Recorder;
use torch::Torch;

/// Measure calls, tensors and references between worker processes.
///
/// Starts its own worker processes. Every value is taken together with its floor: the same bytes over
/// a raw socket, or a plain copy in memory. With --against, another framework does the same in turns
/// with this one, section by section.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Which sections to run
    #[arg(
        long,
        value_name = "SECTION,…",
        value_delimiter = ',',
        default_value = "latency,throughput,echo,mixed,rref,autograd,chain,split,ps,fanout,init,profile"
    )]
    only: Vec<Section>,

    /// Run the same sections on another framework too, in turns with this one
    #[arg(long, value_name = "FRAMEWORK")]
    against: Option<Against>,

    /// How often to run everything; the best counts [default: 3 with --against, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    reps: Option<u16>,

    /// Print one JSON object per value instead of a table
    #[arg(long)]
    json: bool,

    /// Fewer calls
    #[arg(long)]
    quick: bool,

    /// Which links to use between the workers
    #[arg(long, default_value = "auto")]
    transport: Link,

    /// The largest tensor of the sections echo, mixed and growth, in MB
    #[arg(long, value_name = "MB", default_value_t = 256)]
    max_mb: usize,

    /// The tensor of the section fresh, in MB; up to 1024, memory is used again
    #[arg(long, value_name = "MB", default_value_t = 3072)]
    fresh_mb: usize,

    /// The Python that has torch [default: python3, or else /usr/bin/python3]
    #[arg(long, value_name = "PATH", requires = "against")]
    python: Option<PathBuf>,

    /// How long a section of the other framework may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, requires = "against")]
    limit: u64,

    /// Where to draw how many times better this one is
    #[arg(long, value_name = "FILE", requires = "against")]
    svg: Option<PathBuf>,

    /// Where to write the table in Markdown: a new file, or one with the lines `<!-- bench: begin -->` and
    /// `<!-- bench: end -->`, between which it goes
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Sections:
  latency     rpc_sync_latency: one call at a time
  throughput  rpc_async_throughput: 64 calls outstanding
  echo        tensor_echo and tensor_sink: tensors from 4 KB to 256 MB, both ways and one way
  mixed       mixed_latency: a small call, idle and while tensors of 64 or 256 MB flow to the same worker
  rref        rref_remote_to_here_latency, rref_method_latency: one reference at a time;
              rref_create_issue_rate, rref_create_confirmed_rate, rref_delete_rate: many
  autograd    dist_autograd_step: a product on another worker and its gradient
  chain       dist_autograd_chain: the same over four workers, called one by one or each by the one before
  split       split_learning: steps/s of a network whose layers are on two workers, and
              split_learning_local_reference: of the same network on one
  ps          parameter_server: 4 and 8 clients push and pull 1 MB
  fanout      fanout: one call to each of 8 workers, and all their answers
  init        init_rpc, first_call_full_mesh, graceful_shutdown: worlds of 2 to 16 workers, from the first
              that begins to the last that is done; memory_per_process, memory_beyond_program: after that
  profile     profiled_latency: a call of nothing, and one of 100 µs of work, while nothing is recorded, within a profile
              and in a recording of the calling process; profiling_cost: the second and the third to the first
  fresh       tensor_fresh: a tensor of 3 GB in new memory, as argument and as result, in turns with
              floor_fresh_copy: a copy of it into new memory; needs memory for two of them, and is only
              run when asked for
  growth      cost against the number of workers, bytes, live references and live autograd contexts, and
              growth_exponent, growth_exponent_at_end: 1 is linear; takes minutes, and is only run when
              asked for

Keys of a JSON line: framework, metric, params, value, unit, rep; p50, p99, min, mean (latencies); n.
With --against, lines with these keys come last: against, metric, params, unit, value (the best of
ours), theirs, ratio (how many times better ours is), floor, floor_metric, times_floor.
`call=python_udf` is a user's function: the name is the one it has in the benchmark that this one
is compared with. `call=inline` is the same on the thread that reads the request.

Examples:
  telegrad bench
  telegrad bench --only latency --transport tcp
  telegrad bench --json --quick > results.jsonl
  telegrad bench --against torch --svg against-torch.svg --markdown against-torch.md
  telegrad bench --against torch --python venv/bin/python --only latency,echo --reps 5";

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
    Init,
    Profile,
    Fresh,
    Growth,
}

impl Section {
    /// The sizes of the worlds it is run in; none if it makes its own.
    fn worlds(self) -> &'static [u32] {
        match self {
            Self::Latency
            | Self::Throughput
            | Self::Echo
            | Self::Mixed
            | Self::Rref
            | Self::Autograd
            | Self::Profile
            | Self::Fresh => &[2],
            Self::Chain => &[4],
            Self::Split => &[2, 3],
            Self::Ps => &[5, 9],
            Self::Fanout => &[9],
            Self::Init | Self::Growth => &[],
        }
    }

    fn run(self, workers: &Workers, recorder: &mut Recorder, args: &Args) -> Result<(), Error> {
        match self {
            Self::Latency => calls::latency(workers, recorder, args.quick),
            Self::Throughput => calls::throughput(workers, recorder, args.quick),
            Self::Echo => payload::echo(workers, recorder, args.quick, args.max_mb),
            Self::Mixed => payload::mixed(workers, recorder, args.quick, args.max_mb),
            Self::Rref => rref::rref(workers, recorder, args.quick),
            Self::Autograd => autograd::step(workers, recorder, args.quick),
            Self::Chain => autograd::chain(workers, recorder, args.quick),
            Self::Split => split::split(workers, recorder, args.quick),
            Self::Ps => many::ps(workers, recorder, args.quick),
            Self::Fanout => many::fanout(workers, recorder, args.quick),
            Self::Profile => profile::cost(workers, recorder, args.quick),
            Self::Fresh => fresh::fresh(workers, recorder, args.quick, args.fresh_mb),
            Self::Init | Self::Growth => Ok(()),
        }
    }

    /// Runs it if it makes its own worlds.
    fn run_alone(self, recorder: &mut Recorder, args: &Args) -> Result<(), Error> {
        match self {
            Self::Init => life::init(recorder, args.transport, args.quick),
            Self::Growth => growth::growth(recorder, args.transport, args.quick, args.max_mb),
            _ => Ok(()),
        }
    }

    /// Whether the other framework has it.
    fn has_peer(self) -> bool {
        !matches!(self, Self::Growth | Self::Profile | Self::Fresh)
    }

    fn name(self) -> String {
        self.to_possible_value()
            .map_or(String::new(), |value| value.get_name().to_owned())
    }
}

/// What to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Against {
    /// torch.distributed.rpc, run by a Python that has torch
    Torch,
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
    match compare(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, 1),
    }
}

/// Measures, and shows what was measured also when something has failed.
fn compare(args: &Args) -> Result<(), Error> {
    report::check(args)?;
    let torch = match args.against {
        Some(Against::Torch) => Some(Torch::find(
            args.python.as_deref(),
            Duration::from_secs(args.limit),
        )?),
        None => None,
    };
    let reps = args.reps.unwrap_or(if torch.is_some() { 3 } else { 1 }).into();
    let mut recorder = Recorder::new(args.transport.name(), args.json);
    let mut turns = Turns {
        args,
        torch: torch.as_ref(),
        failed: Vec::new(),
        progress: progress(args, reps),
    };
    let ours = (0..reps).try_for_each(|rep| turns.take(rep, &mut recorder));
    turns.progress.finish_and_clear();
    report::write(args, &recorder, torch.as_ref(), reps)?;
    ours?;
    let failures: Vec<_> = turns.failed.iter().map(|(_, error)| error.to_string()).collect();
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n").into())
    }
}

/// Runs sections: ours, then theirs.
struct Turns<'a> {
    args: &'a Args,
    torch: Option<&'a Torch>,
    /// Sections of theirs that are not tried again.
    failed: Vec<(Section, torch::PeerError)>,
    progress: ProgressBar,
}

impl Turns<'_> {
    fn take(&mut self, rep: usize, recorder: &mut Recorder) -> Result<(), Error> {
        recorder.repetition(rep);
        // Sections in worlds of the same size that follow each other share one.
        let mut workers = None;
        for section in &self.args.only {
            self.progress.set_message(section.name());
            section.run_alone(recorder, self.args)?;
            for size in section.worlds() {
                let fitting = fitting(workers, *size, self.args.transport.transport())?;
                section.run(&fitting, recorder, self.args)?;
                workers = Some(fitting);
            }
            if let Some(torch) = self.torch {
                self.progress.set_message(format!("{}, torch", section.name()));
                // Nobody is to disturb the others.
                workers.take().map_or(Ok(()), Workers::end)?;
                self.theirs(torch, *section, recorder);
            }
            self.progress.inc(1);
        }
        workers.map_or(Ok(()), Workers::end)
    }

    fn theirs(&mut self, torch: &Torch, section: Section, recorder: &mut Recorder) {
        if !section.has_peer() || self.failed.iter().any(|(failed, _)| *failed == section) {
            return;
        }
        let mut options = vec!["--max-mb".to_owned(), self.args.max_mb.to_string()];
        if self.args.quick {
            options.push("--quick".into());
        }
        if self.args.transport == Link::Tcp {
            options.push("--tcp".into());
        }
        if let Err(error) = torch.section(&section.name(), &options, recorder) {
            self.failed.push((section, error));
        }
    }
}

/// Says on a terminal how far it is. It draws when something changes, and never while something is measured.
fn progress(args: &Args, reps: usize) -> ProgressBar {
    if args.json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new((reps * args.only.len()) as u64);
    match ProgressStyle::with_template("{bar:30.cyan/dim} {pos}/{len}  {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A world of this size: the one that is there, or a new one.
fn fitting(there: Option<Workers>, size: u32, transport: Transport) -> Result<Workers, Error> {
    match there {
        Some(there) if there.size() == size as usize => Ok(there),
        other => {
            other.map_or(Ok(()), Workers::end)?;
            let names: Vec<_> = (0..size).map(|rank| format!("w{rank}")).collect();
            Workers::start(transport, &names)
        }
    }
}
