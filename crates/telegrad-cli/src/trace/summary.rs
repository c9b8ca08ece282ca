//! `telegrad trace summary`: prints tables of a recording.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use telegrad::profile::{self, Profile, SortBy, printable, wrap};

use super::incomplete;
use crate::{Error, print};

/// Print a summary of a recording: events by name, time by worker and activity, and the critical path.
///
/// At most 120 columns wide, without the shutdown of the world.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Recordings of one world: files, or folders that workers have written
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The column to sort the table by
    #[arg(long, value_enum, default_value_t, value_name = "COLUMN")]
    sort: Sort,

    /// Maximum number of rows of the table; 0 for all
    #[arg(long, default_value = "40", value_name = "N")]
    limit: usize,

    /// Analyse each event of this name as a step, instead of the whole recording
    #[arg(long, value_name = "NAME")]
    step: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Sort {
    Name,
    Worker,
    Calls,
    #[default]
    Total,
    #[value(name = "self")]
    SelfTime,
    Mean,
    P50,
    P99,
    Bytes,
    Tensors,
}

impl From<Sort> for SortBy {
    fn from(sort: Sort) -> Self {
        match sort {
            Sort::Name => Self::Name,
            Sort::Worker => Self::Worker,
            Sort::Calls => Self::Calls,
            Sort::Total => Self::Total,
            Sort::SelfTime => Self::SelfTime,
            Sort::Mean => Self::Mean,
            Sort::P50 => Self::P50,
            Sort::P99 => Self::P99,
            Sort::Bytes => Self::Bytes,
            Sort::Tensors => Self::Tensors,
        }
    }
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Error> {
    // The shutdown of a world is not part of the program.
    let profile = profile::read(&args.files)?.without_shutdown();
    let mut text = table(&profile, args.sort.into(), args.limit);
    let steps = match &args.step {
        Some(name) => profile.steps(name),
        None => profile.step().into_iter().collect(),
    };
    if let (Some(name), []) = (&args.step, &steps[..]) {
        return Err(format!("the recording has no event named `{name}`; `telegrad trace summary` without --step lists the names").into());
    }
    for step in steps {
        text += &format!("\n{step}\n");
    }
    for note in notes(&profile) {
        text += &format!("\n{}\n", wrap(&note));
    }
    Ok(print(text.as_bytes()))
}

/// Notes about missing events.
fn notes(profile: &Profile) -> Vec<String> {
    let dropped = profile.workers.iter().filter(|worker| worker.dropped > 0);
    let dropped = dropped.map(|worker| {
        let name = printable(&worker.name);
        format!(
            "{} events of `{name}` were dropped: its buffer was full",
            worker.dropped
        )
    });
    let missing = profile.missing.iter().map(|(worker, why)| {
        let (worker, why) = (printable(worker), printable(why));
        incomplete(&worker, &why)
    });
    dropped.chain(profile.clock_warnings()).chain(missing).collect()
}

fn table(profile: &Profile, sort: SortBy, limit: usize) -> String {
    let mut averages = profile.key_averages().sorted(sort);
    let omitted = if limit == 0 {
        0
    } else {
        averages.0.len().saturating_sub(limit)
    };
    averages.0.truncate(averages.0.len() - omitted);
    let mut text = averages.to_string();
    if omitted > 0 {
        text += &format!("and {omitted} more; --limit 0 shows all\n");
    }
    text
}
