//! `telegrad trace merge`: combines recordings of one world.

use std::path::PathBuf;
use std::process::ExitCode;

use telegrad::profile;

use super::output::{Output, abandon_on_signals};
use super::report;
use crate::Error;

/// Merge recordings of one world into one file.
///
/// Takes profiles that several workers have written, and folders that workers have written under TELEGRAD_TRACE, from any number of
/// hosts. Removes duplicate events and aligns all events to one clock. Recordings of different worlds are an error.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Recordings of one world: files, or folders that workers have written
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Output file: in Chrome's format, or as lines of JSON if the name ends in .jsonl [default: trace.json]
    ///
    /// An existing file of this name is replaced after the merge, even if it is one of the inputs. Without this option, an existing
    /// trace.json is an error.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: Args) -> Result<ExitCode, Error> {
    let output = Output::new(args.output);
    output.check()?;
    abandon_on_signals()?;
    let profile = profile::read(&args.files)?;
    output.write_profile(&profile)?;
    report(&profile, &output.path);
    Ok(ExitCode::SUCCESS)
}
