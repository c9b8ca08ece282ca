//! `telegrad trace merge`.

use std::path::PathBuf;
use std::process::ExitCode;

use telegrad::profile;

use super::output::{Output, abandon_when_ended};
use super::report;
use crate::Error;

/// Put recordings of one world into one file.
///
/// Takes profiles that several workers have written, and folders of what workers have written under TELEGRAD_TRACE, also of
/// several hosts. What is in several of them is there once, and all of it is brought to one clock. Recordings of different
/// worlds are refused.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to merge
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Where to write it: in Chrome's format, or as lines when the name ends in .jsonl [default: trace.json]
    ///
    /// A file that is named here is replaced, once all of it is written, and may be one of those that are merged. One that is
    /// there without being named is not.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: Args) -> Result<ExitCode, Error> {
    let output = Output::new(args.output);
    output.check()?;
    abandon_when_ended()?;
    let profile = profile::read(&args.files)?;
    output.write_profile(&profile)?;
    report(&profile, &output.path);
    Ok(ExitCode::SUCCESS)
}
