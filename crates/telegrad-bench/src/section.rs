//! The sections of the benchmark.

use clap::ValueEnum;
use telegrad_cli::Workers;

use crate::args::Args;
use crate::measurement::Measurements;
use crate::{
    Error, autograd, calls, fanout, fresh_memory, growth, lifecycle, parameter_server, payload, profiling,
    rref, split,
};

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
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
    /// The world sizes to run it in; empty if it makes its own worlds.
    pub(crate) fn worlds(self) -> &'static [usize] {
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

    /// Runs it in a world of one of its sizes.
    pub(crate) fn run(
        self,
        workers: &Workers,
        measurements: &mut Measurements,
        args: &Args,
    ) -> Result<(), Error> {
        match self {
            Self::Latency => calls::latency(workers, measurements, args.quick),
            Self::Throughput => calls::throughput(workers, measurements, args.quick),
            Self::Echo => payload::echo(workers, measurements, args.quick, args.max_mb),
            Self::Mixed => payload::mixed(workers, measurements, args.quick, args.max_mb),
            Self::Rref => rref::rref(workers, measurements, args.quick),
            Self::Autograd => autograd::step(workers, measurements, args.quick),
            Self::Chain => autograd::chain(workers, measurements, args.quick),
            Self::Split => split::split(workers, measurements, args.quick),
            Self::Ps => parameter_server::steps(workers, measurements, args.quick),
            Self::Fanout => fanout::rounds(workers, measurements, args.quick),
            Self::Profile => profiling::cost(workers, measurements, args.quick),
            Self::Fresh => fresh_memory::tensors(workers, measurements, args.quick, args.fresh_mb),
            Self::Init | Self::Growth => Ok(()),
        }
    }

    /// Runs it if it makes its own worlds.
    pub(crate) fn run_alone(self, measurements: &mut Measurements, args: &Args) -> Result<(), Error> {
        match self {
            Self::Init => lifecycle::init(measurements, args.transport, args.quick),
            Self::Growth => growth::growth(measurements, args.transport, args.quick, args.max_mb),
            _ => Ok(()),
        }
    }

    /// Whether the other framework has it.
    pub(crate) fn has_peer(self) -> bool {
        !matches!(self, Self::Growth | Self::Profile | Self::Fresh)
    }

    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map_or(String::new(), |value| value.get_name().to_owned())
    }
}
