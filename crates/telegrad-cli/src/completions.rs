//! `telegrad completions`: completion scripts for shells.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::{Cli, print};

/// Print completions for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

const AFTER_HELP: &str = "\
Examples:
  telegrad completions bash > ~/.local/share/bash-completion/completions/telegrad
  telegrad completions fish > ~/.config/fish/completions/telegrad.fish";

pub(crate) fn run(args: &Args) -> ExitCode {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "telegrad", &mut script);
    print(&script)
}
