//! The output of a run: a progress bar on a terminal, lines elsewhere, or JSON.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::Args;

/// Values of an epoch so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Epoch {
    pub(super) loss: f64,
    pub(super) accuracy: f64,
    pub(super) steps_per_s: f64,
    pub(super) bytes_per_step: f64,
}

pub(super) struct Report {
    started: Instant,
    json: bool,
    bar: Option<ProgressBar>,
    total: usize,
    steps: usize,
    current: Epoch,
    epochs: Vec<Epoch>,
    plot: PathBuf,
}

impl Report {
    pub(super) fn new(args: &Args, steps_per_epoch: usize) -> Self {
        let total = args.epochs;
        let shows_bar = !args.json && std::io::stderr().is_terminal();
        let bar = shows_bar.then(|| {
            let bar = ProgressBar::new((total * steps_per_epoch) as u64);
            // The template is valid.
            if let Ok(style) = ProgressStyle::with_template("{bar:30.cyan/dim} {percent:>3}%  {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self {
            started: Instant::now(),
            json: args.json,
            bar,
            total,
            steps: 0,
            current: Epoch::default(),
            epochs: Vec::new(),
            plot: args.plot.clone(),
        }
    }

    /// Reports a step.
    pub(super) fn step(&mut self, current: Epoch) {
        self.steps += 1;
        self.current = current;
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(self.text(self.epochs.len() + 1, &current));
        }
    }

    /// Reports the end of an epoch.
    pub(super) fn epoch(&mut self) {
        let epoch = self.current;
        self.epochs.push(epoch);
        let number = self.epochs.len();
        if self.json {
            self.print(&json!({
                "epoch": number,
                "loss": epoch.loss,
                "accuracy": epoch.accuracy,
                "steps_per_s": epoch.steps_per_s.round(),
                "bytes_per_step": epoch.bytes_per_step.round(),
            }));
        } else if self.bar.is_none() {
            say(&self.text(number, &epoch));
        }
    }

    /// All finished epochs.
    pub(super) fn epochs(&self) -> &[Epoch] {
        &self.epochs
    }

    /// Reports the end of the run.
    pub(super) fn end(&self, test_accuracy: f64) {
        let seconds = self.started.elapsed().as_secs_f64();
        if self.json {
            return self.print(&json!({
                "test_accuracy": test_accuracy,
                "epochs": self.epochs.len(),
                "steps": self.steps,
                "seconds": (seconds * 1e3).round() / 1e3,
                "plot": self.plot.display().to_string(),
            }));
        }
        if let Some(bar) = &self.bar {
            bar.finish();
        }
        let percent = test_accuracy * 100.0;
        say(&format!(
            "test accuracy {percent:.2}% after {} steps in {seconds:.1} s",
            self.steps
        ));
        say(&format!("losses and accuracies are in {}", self.plot.display()));
    }

    fn text(&self, number: usize, epoch: &Epoch) -> String {
        format!(
            "epoch {number:>3}/{}  loss {:.4}  accuracy {:>5.1}%  {:>5.0} steps/s  {} per step",
            self.total,
            epoch.loss,
            epoch.accuracy * 100.0,
            epoch.steps_per_s,
            HumanBytes(epoch.bytes_per_step as u64),
        )
    }

    fn print(&self, line: &Value) {
        say(&line.to_string());
    }
}

/// Prints a line. A closed pipe ends the output, not the run.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
