//! `telegrad trace summary`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use telegrad::profile::{self, Profile, SortBy, printable, wrap};

use crate::{Error, print};

/// Print what a recording shows: the events by name, how the workers spent the time, and the critical path.
///
/// It is 120 columns wide at most, and leaves out the shutdown of the world.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Recordings of one world: files, or folders of what workers have written
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// What the table is sorted by
    #[arg(long, value_enum, default_value_t, value_name = "COLUMN")]
    sort: Sort,

    /// Most rows of the table; 0 for all
    #[arg(long, default_value = "40", value_name = "N")]
    limit: usize,

    /// Show each event of this name as a step, instead of the whole
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
    // The end of a world is telegrad's own: it says nothing about the program.
    let profile = profile::read(&args.files)?.without_shutdown();
    let mut text = table(&profile, args.sort.into(), args.limit);
    let steps = match &args.step {
        Some(name) => profile.steps(name),
        None => profile.step().into_iter().collect(),
    };
    if let (Some(name), []) = (&args.step, &steps[..]) {
        return Err(format!("nothing in the recording is called `{name}`").into());
    }
    for step in steps {
        text += &format!("\n{step}\n");
    }
    for note in notes(&profile) {
        text += &format!("\n{}\n", wrap(&note));
    }
    Ok(print(text.as_bytes()))
}

/// What the recording lacks, in sentences.
fn notes(profile: &Profile) -> Vec<String> {
    let dropped = profile.workers.iter().filter(|worker| worker.dropped > 0);
    let dropped = dropped.map(|worker| {
        let name = printable(&worker.name);
        format!(
            "{} events of `{name}` are missing: there was no room for them",
            worker.dropped
        )
    });
    let missing = profile.missing.iter().map(|(worker, why)| {
        let (worker, why) = (printable(worker), printable(why));
        format!("not all events of `{worker}` are there: {why}")
    });
    dropped.chain(profile.doubts()).chain(missing).collect()
}

fn table(profile: &Profile, sort: SortBy, limit: usize) -> String {
    let mut averages = profile.key_averages().sorted(sort);
    let left_out = if limit == 0 {
        0
    } else {
        averages.0.len().saturating_sub(limit)
    };
    averages.0.truncate(averages.0.len() - left_out);
    let mut text = averages.to_string();
    if left_out > 0 {
        text += &format!("and {left_out} more; --limit 0 shows all\n");
    }
    text
}
