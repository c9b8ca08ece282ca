//! `telegrad trace`: makes recordings of worlds and shows them.

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

/// Record the workers of a world, and examine recordings.
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
    // An error of a file may quote its contents.
    done.unwrap_or_else(|error| fail(&*Error::from(printable(&error.to_string())), 1))
}

/// Reports the contents of a written file, and what it lacks.
fn report(profile: &Profile, file: &Path) {
    say(&format!(
        "wrote {} events of {} workers to {file}; `telegrad trace view {file}` shows them",
        profile.events.len(),
        profile.workers.len(),
        file = file.display(),
    ));
    for (worker, why) in &profile.missing {
        say(&incomplete(worker, why));
    }
    profile.clock_warnings().iter().for_each(|doubt| say(doubt));
}

/// The note about a worker whose events are not complete.
fn incomplete(worker: &str, why: &str) -> String {
    format!("events of `{worker}` are missing: {why}")
}

fn say(text: &str) {
    // Without standard error, the exit code still reports success or failure.
    let _ = writeln!(std::io::stderr(), "telegrad: {}", printable(text));
}
