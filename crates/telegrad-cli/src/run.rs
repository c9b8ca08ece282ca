//! `telegrad run`: the processes of one world on this machine.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgGroup, CommandFactory};
use telegrad::launch::{Launch, LaunchError, default_names};

use crate::addresses::Addresses;
use crate::{Cli, dashboard, fail};

/// More than one machine can serve; a number above it is a slip of the hand.
const MAX_WORKERS: i64 = 4096;

/// Start the processes of one world on this machine.
///
/// Starts PROGRAM once per worker and waits for all of them. Each line that a worker prints appears
/// after the worker's name, in colour on a terminal unless NO_COLOR is set.
///
/// When a worker fails, the others are ended and the command exits with the status of the worker that
/// failed; with --keep-going the others go on first. Ctrl-C and SIGTERM are passed on to every worker; a second one kills them.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("world").args(["workers", "names"]).required(true).multiple(true))]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Args {
    /// How many workers to start
    #[arg(short = 'n', long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=MAX_WORKERS))]
    workers: Option<u16>,

    /// The workers' names, in the order of their ranks [default: worker0,worker1,…]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    names: Option<Vec<String>>,

    /// How long workers may take to end by themselves before they are killed
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    grace: Duration,

    /// Let the other workers go on when one fails; the command still fails once all have ended
    #[arg(long)]
    keep_going: bool,

    /// Serve a page that shows what the workers do, and metrics for Prometheus under /metrics; on this machine only,
    /// unless another address is given
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, value_parser = address)]
    #[arg(default_missing_value = "127.0.0.1:0")]
    dashboard: Option<Addresses>,

    /// What every worker runs, a path or a program in PATH, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Environment of a worker:
  RANK           its number, from 0
  WORLD_SIZE     how many workers there are
  MASTER_ADDR    where rank 0 listens: 127.0.0.1
  MASTER_PORT    the port there, free and kept free for this world
  TELEGRAD_NAME  its name
Standard input of a worker is /dev/null.

Exit codes:
  0      every worker exited with status 0
  2      the arguments are wrong
  128+n  ended by signal n
  else   the status of the first worker that failed; 1 if a signal killed it, or nothing could start

Examples:
  telegrad run -n 4 -- ./trainer --epochs 3
  telegrad run -n 4 --dashboard -- ./trainer
  telegrad run -n 4 --keep-going -- ./trainer
  telegrad run --names ps,trainer0,trainer1 -- python train.py
  telegrad run -n 3 --names a,b,c -- sh -c 'echo rank $RANK of $WORLD_SIZE as $TELEGRAD_NAME'";

pub(crate) fn run(args: Args) -> ExitCode {
    let names = match (args.workers, args.names) {
        (Some(n), Some(names)) if names.len() != usize::from(n) => usage_error(&format!(
            "-n asks for {n} workers and --names gives {} names: {}",
            names.len(),
            names.join(",")
        )),
        (_, Some(names)) => names,
        (n, None) => default_names(n.unwrap_or(1).into()),
    };
    if let Some(addresses) = args.dashboard {
        match dashboard::serve(&addresses) {
            // With standard error closed there is nobody to tell.
            Ok(address) => drop(writeln!(
                io::stderr(),
                "telegrad: http://{address}/ shows what the workers do"
            )),
            Err(error) => return fail(&*error, 1),
        }
    }
    let mut command = args.command.into_iter();
    // clap has seen to it that there is one.
    let program = command.next().unwrap_or_default();
    let mut launch = Launch::new(program, names);
    launch.args = command.collect();
    launch.grace = args.grace;
    launch.keep_going = args.keep_going;
    match launch.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ (LaunchError::BadName { .. } | LaunchError::DuplicateName { .. })) => {
            usage_error(&error.to_string())
        }
        Err(error) => fail(&error, error.exit_code()),
    }
}

/// What clap does with arguments that it finds wrong itself.
fn usage_error(message: &str) -> ! {
    let mut cli = Cli::command();
    cli.build();
    // The subcommand is there: it is the one that runs.
    let run = cli.find_subcommand_mut("run").expect("a subcommand called run");
    run.error(ErrorKind::ValueValidation, message).exit()
}

/// An address. What follows may also be the program.
fn address(text: &str) -> Result<Addresses, String> {
    let found = text.parse();
    found.map_err(|why: String| format!("{why}; put `--` before the program"))
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "a number of seconds is needed".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
