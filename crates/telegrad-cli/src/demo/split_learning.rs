//! `telegrad demo split-learning`: two parties train a network; only one has the data.
//!
//! Reading order: `model` places the layers, `training` runs the epochs, `report` and `plot` show the results.

mod model;
mod plot;
mod report;
mod training;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use telegrad_cli::{Link, Workers, check_writable};

use crate::{Error, fail, share_cores};
use model::Model;
use report::Report;
use training::Training;

/// Train a network whose data and first layers are on a client and whose other layers are on servers
///
/// The client owns handwritten digits and the first layers. Servers receive the activations of those layers, never an
/// image. Activations go to the servers, gradients come back.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Number of processes: the client, and servers that share the other layers; with 1, client and server are in one
    /// process
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4))]
    processes: u32,

    /// The owner of the labels. If it is the client, the last layer is there too, and labels do not leave it either
    #[arg(long, default_value = "server")]
    label_side: LabelSide,

    /// Number of passes over the training data
    #[arg(long, default_value_t = 30, value_parser = at_least_one)]
    epochs: usize,

    /// Images per step
    #[arg(long, default_value_t = 32, value_parser = at_least_one)]
    batch: usize,

    /// The optimiser
    #[arg(long, default_value = "adam")]
    optimizer: Method,

    /// Learning rate [default: depends on the optimiser]
    #[arg(long, value_parser = learning_rate, allow_hyphen_values = true)]
    lr: Option<f64>,

    /// Seed of the random numbers: the same seed gives the same losses
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Print one JSON object per epoch and one at the end
    #[arg(long)]
    json: bool,

    /// Draw losses and accuracies into this file
    #[arg(long, value_name = "FILE", default_value = "split-learning.svg")]
    plot: PathBuf,
}

const AFTER_HELP: &str = "\
Keys of a JSON line: epoch, loss, accuracy, steps_per_s, bytes_per_step. Keys of the last one:
test_accuracy, epochs, steps, seconds, plot.

Examples:
  telegrad demo split-learning
  telegrad demo split-learning --label-side client --processes 3
  telegrad demo split-learning --optimizer sgd --lr 0.1 --epochs 50 --json";

/// The owner of the labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LabelSide {
    Client,
    Server,
}

/// The optimisers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Method {
    Sgd,
    Adam,
    Adamw,
    Adagrad,
    Adadelta,
    Rmsprop,
    Rprop,
    Adamax,
}

/// Far more than any run takes.
const MOST: usize = 1_000_000;

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=MOST) => Ok(number),
        Ok(0) => Err("it must be 1 or more".into()),
        Ok(_) => Err(format!("it must be {MOST} or less")),
        Err(_) => Err("it must be a whole number, 1 or more".into()),
    }
}

fn learning_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(lr) if lr.is_finite() && lr > 0.0 => Ok(lr),
        _ => Err("a learning rate is a positive number".into()),
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match train(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, 1),
    }
}

fn train(args: &Args) -> Result<(), Error> {
    share_cores(args.processes as usize);
    let (data, test) = telegrad::data::digits()?;
    if args.batch > data.len() {
        return Err(format!(
            "a batch cannot be larger than the {} images to train on",
            data.len()
        )
        .into());
    }
    check_writable(&args.plot)?;
    let servers = args.processes.saturating_sub(1).max(1);
    let mut names = vec!["client".to_owned()];
    if servers == 1 {
        names.push("server".into());
    } else {
        names.extend((1..=servers).map(|number| format!("server{number}")));
    }
    let link = if args.processes == 1 {
        Link::Mem
    } else {
        Link::Auto
    };
    let workers = Workers::start(link, &names)?;
    let model = Model::new(&workers.world, args.label_side, args.seed)?;
    let mut training = Training::new(&workers.world, model, data, args)?;
    let mut report = Report::new(args, training.steps_per_epoch());
    for _ in 0..args.epochs {
        training.epoch(&mut report)?;
    }
    let accuracy = training.accuracy(&test)?;
    plot::write(&args.plot, report.epochs(), accuracy)?;
    report.end(accuracy);
    drop(training);
    workers.end()
}
