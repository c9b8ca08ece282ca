//! `telegrad trace`: recordings of worlds.

mod merge;
mod record;
mod summary;
mod view;

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use telegrad::trace::Profile;

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
        Command::Merge(args) => merge::run(&args),
        Command::View(args) => view::run(&args),
    };
    done.unwrap_or_else(|error| fail(&*error, 1))
}

/// Writes a profile: as lines of JSON where the file's name ends in `.jsonl`, else in Chrome's format.
fn write(profile: &Profile, path: &Path) -> Result<(), Error> {
    let cannot = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    let file = BufWriter::new(File::create(path).map_err(cannot)?);
    let written = match path.extension() {
        Some(extension) if extension == "jsonl" => profile.write_lines(file),
        _ => profile.write_chrome(file),
    };
    Ok(written.map_err(cannot)?)
}
