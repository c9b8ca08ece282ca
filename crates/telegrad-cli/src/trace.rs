//! `telegrad trace`: recordings of worlds.

mod merge;
mod output;
mod record;
mod signals;
mod summary;
mod view;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use telegrad::profile::{Profile, printable};

use crate::{Error, fail};

/// Record what the workers of a world do, and look at recordings.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Record(record::Args),
    Summary(summary::Args),
    Merge(merge::Args),
    View(view::Args),
}

pub(crate) fn run(args: Args) -> ExitCode {
    let done = match args.command {
        Command::Record(args) => record::run(args),
        Command::Summary(args) => summary::run(&args),
        Command::Merge(args) => merge::run(args),
        Command::View(args) => view::run(args),
    };
    // What is wrong with a file may be what it says.
    done.unwrap_or_else(|error| fail(&*Error::from(printable(&error.to_string())), 1))
}

/// Says what is in a file that was written, and what is not.
fn report(profile: &Profile, file: &Path) {
    say(&format!(
        "{} events of {} workers are in {file}; `telegrad trace view {file}` shows them",
        profile.events.len(),
        profile.workers.len(),
        file = file.display(),
    ));
    for (worker, why) in &profile.missing {
        say(&format!("not all events of `{worker}` are there: {why}"));
    }
    profile.doubts().iter().for_each(|doubt| say(doubt));
}

fn say(what: &str) {
    // With standard error closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "telegrad: {}", printable(what));
}
