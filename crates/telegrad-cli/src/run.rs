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

/// More workers than one machine can run; a larger number is a typing error.
const MAX_WORKERS: i64 = 4096;

/// Start the processes of one world on this machine.
///
/// Starts PROGRAM once per worker and waits for all of them. Each line that a worker prints appears
/// after the worker's name, in colour on a terminal unless NO_COLOR is set.
///
/// When a worker fails, the command ends the others and exits with the status of the worker that
/// failed; with --keep-going the others continue first. Ctrl-C and SIGTERM are passed on to every worker; a second one kills them.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("world").args(["workers", "names"]).required(true).multiple(true))]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Number of workers
    #[arg(short = 'n', long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=MAX_WORKERS))]
    workers: Option<u16>,

    /// The workers' names, in the order of their ranks [default: worker0,worker1,…]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    names: Option<Vec<String>>,

    /// Time that workers have to end before they are killed
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    grace: Duration,

    /// Let the other workers continue when one fails; the command still fails once all have ended
    #[arg(long)]
    keep_going: bool,

    /// Serve a page that shows the workers, and metrics for Prometheus under /metrics; reachable from this machine only,
    /// unless ADDRESS says otherwise
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, value_parser = address)]
    #[arg(default_missing_value = "127.0.0.1:0")]
    dashboard: Option<Addresses>,

    /// The program of every worker, a path or a name in PATH, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Environment of a worker:
  RANK           its rank, from 0
  WORLD_SIZE     the number of workers
  MASTER_ADDR    the address that rank 0 listens at: 127.0.0.1
  MASTER_PORT    the port there, reserved for this world
  TELEGRAD_NAME  its name
Standard input of a worker is /dev/null.

Exit codes:
  0      every worker exited with status 0
  2      the arguments are invalid
  128+n  ended by signal n
  else   the status of the first worker that failed; 1 if a signal killed it or a worker could not start

Examples:
  telegrad run -n 4 -- ./trainer --epochs 3
  telegrad run -n 4 --dashboard -- ./trainer
  telegrad run -n 4 --keep-going -- ./trainer
  telegrad run --names ps,trainer0,trainer1 -- python train.py
  telegrad run -n 3 --names a,b,c -- sh -c 'echo rank $RANK of $WORLD_SIZE as $TELEGRAD_NAME'";

pub(crate) fn run(args: Args) -> ExitCode {
    let names = match (args.workers, args.names) {
        (Some(n), Some(names)) if names.len() != usize::from(n) => usage_error(&format!(
            "-n {n} does not match the {} names of --names: {}",
            names.len(),
            names.join(",")
        )),
        (_, Some(names)) => names,
        (n, None) => default_names(n.unwrap_or(1).into()),
    };
    if let Some(addresses) = args.dashboard {
        match dashboard::serve(&addresses) {
            // If standard error is closed, the page is served all the same.
            Ok(address) => drop(writeln!(
                io::stderr(),
                "telegrad: the dashboard is at http://{address}/"
            )),
            Err(error) => return fail(&*error, 1),
        }
    }
    let mut command = args.command.into_iter();
    // clap requires it.
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

/// Reports invalid arguments as clap does.
fn usage_error(message: &str) -> ! {
    let mut cli = Cli::command();
    cli.build();
    // This subcommand is running, so it exists.
    let run = cli.find_subcommand_mut("run").expect("a subcommand called run");
    run.error(ErrorKind::ValueValidation, message).exit()
}

/// Parses the optional address of --dashboard. A wrong one may be the program.
fn address(text: &str) -> Result<Addresses, String> {
    let found = text.parse();
    found.map_err(|why: String| format!("{why}; if this is the program, put `--` before it"))
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "it must be a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
