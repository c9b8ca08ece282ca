//! `telegrad trace summary`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use telegrad::trace::{self, Profile, SortBy, printable};

use crate::{Error, print};

/// Print what a recording shows: the events by name, how the workers spent the time, and the critical path.
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
    let profile = trace::read(&args.files)?;
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
    for worker in profile.workers.iter().filter(|worker| worker.dropped > 0) {
        text += &format!(
            "\n{} events of `{}` are missing: there was no room for them\n",
            worker.dropped,
            printable(&worker.name)
        );
    }
    for doubt in profile.doubts() {
        text += &format!("\n{doubt}\n");
    }
    for (worker, why) in &profile.missing {
        let (worker, why) = (printable(worker), printable(why));
        text += &format!("\nnot all events of `{worker}` are there: {why}\n");
    }
    Ok(print(text.as_bytes()))
}

fn table(profile: &Profile, sort: SortBy, limit: usize) -> String {
    let mut averages = profile.key_averages().sorted(sort);
    let left_out = if limit == 0 {
        0
    } else {
        averages.0.len().saturating_sub(limit)
    };
    averages.0.truncate(averages.0.len() - left_out);
    let mut text = format!("{averages}\n");
    if left_out > 0 {
        text += &format!("and {left_out} more; --limit 0 shows all\n");
    }
    text
}
