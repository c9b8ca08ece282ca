//! `telegrad demo`: complete examples that run on this machine.

mod split_learning;

use std::process::ExitCode;

/// Run a complete example on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    demo: Demo,
}

#[derive(Debug, clap::Subcommand)]
enum Demo {
    SplitLearning(split_learning::Args),
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match &args.demo {
        Demo::SplitLearning(args) => split_learning::run(args),
    }
}
