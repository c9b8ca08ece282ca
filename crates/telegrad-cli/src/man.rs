//! `telegrad man`: man pages.

use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ErrorKind;
use clap_mangen::Man;

use crate::{Cli, fail, print};

/// Print the man page of this command, or of a subcommand.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The subcommand
    command: Option<String>,
}

const AFTER_HELP: &str = "\
Examples:
  telegrad man | man -l -
  telegrad man run > telegrad-run.1";

pub(crate) fn run(args: &Args) -> ExitCode {
    let mut cli = Cli::command();
    // Gives subcommands their full names.
    cli.build();
    let page = match &args.command {
        Some(name) => match cli.find_subcommand(name) {
            Some(page) => page.clone(),
            None => cli
                .error(
                    ErrorKind::InvalidSubcommand,
                    format!("there is no subcommand `{name}`; `telegrad help` lists them"),
                )
                .exit(),
        },
        None => cli,
    };
    let mut text = Vec::new();
    match Man::new(page).render(&mut text) {
        Ok(()) => print(&text),
        Err(error) => fail(&error, 1),
    }
}
