//! A run: our sections and those of the other framework take turns.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use telegrad_cli::{Link, Workers};

use crate::args::{Against, Args};
use crate::measurement::Measurements;
use crate::section::Section;
use crate::torch::{PeerError, Torch};
use crate::{Error, report};

/// Runs the benchmark and reports its values, also those taken before a failure.
pub(crate) fn run(args: &Args) -> Result<(), Error> {
    report::check(args)?;
    let torch = match args.against {
        Some(Against::Torch) => Some(Torch::find(
            args.python.as_deref(),
            Duration::from_secs(args.limit),
        )?),
        None => None,
    };
    let reps = args.reps.unwrap_or(if torch.is_some() { 3 } else { 1 }).into();
    let mut measurements = Measurements::new(args.transport.name(), args.json);
    let mut turns = Turns {
        args,
        torch: torch.as_ref(),
        failed: Vec::new(),
        progress: progress(args, reps),
    };
    let ours = (0..reps).try_for_each(|rep| turns.repetition(rep, &mut measurements));
    turns.progress.finish_and_clear();
    report::write(args, &measurements, torch.as_ref(), reps)?;
    ours?;
    let failures: Vec<_> = turns.failed.iter().map(|(_, error)| error.to_string()).collect();
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n").into())
    }
}

/// Runs each section: ours, then theirs.
struct Turns<'a> {
    args: &'a Args,
    torch: Option<&'a Torch>,
    /// Sections of the peer that failed; later repetitions skip them.
    failed: Vec<(Section, PeerError)>,
    progress: ProgressBar,
}

impl Turns<'_> {
    fn repetition(&mut self, rep: usize, measurements: &mut Measurements) -> Result<(), Error> {
        measurements.set_repetition(rep);
        // Consecutive sections in worlds of the same size share one world.
        let mut workers = None;
        for section in &self.args.only {
            self.progress.set_message(section.name());
            section.run_alone(measurements, self.args)?;
            for size in section.worlds() {
                let world = world_of(*size, workers, self.args.transport)?;
                section.run(&world, measurements, self.args)?;
                workers = Some(world);
            }
            if let Some(torch) = self.torch {
                self.progress.set_message(format!("{}, torch", section.name()));
                // Our workers must not disturb the peer's.
                workers.take().map_or(Ok(()), Workers::end)?;
                self.run_peer(torch, *section, measurements);
            }
            self.progress.inc(1);
        }
        workers.map_or(Ok(()), Workers::end)
    }

    fn run_peer(&mut self, torch: &Torch, section: Section, measurements: &mut Measurements) {
        if !section.has_peer() || self.failed.iter().any(|(failed, _)| *failed == section) {
            return;
        }
        let mut options = vec!["--max-mb".to_owned(), self.args.max_mb.to_string()];
        if self.args.quick {
            options.push("--quick".into());
        }
        if self.args.transport == Link::Tcp {
            options.push("--tcp".into());
        }
        if let Err(error) = torch.section(&section.name(), &options, measurements) {
            self.failed.push((section, error));
        }
    }
}

/// A progress bar on a terminal. Updates come between sections, never during a measurement.
fn progress(args: &Args, reps: usize) -> ProgressBar {
    if args.json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new((reps * args.only.len()) as u64);
    match ProgressStyle::with_template("{bar:30.cyan/dim} {pos}/{len}  {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A world of this size: the existing one if it fits, or a new one.
fn world_of(size: usize, existing: Option<Workers>, link: Link) -> Result<Workers, Error> {
    match existing {
        Some(existing) if existing.size() == size => Ok(existing),
        other => {
            other.map_or(Ok(()), Workers::end)?;
            let names: Vec<_> = (0..size).map(|rank| format!("w{rank}")).collect();
            Workers::start(link, &names)
        }
    }
}
