//! `telegrad doctor`: diagnoses a world that hangs.

use std::process::ExitCode;
use std::time::Duration;

use telegrad::status::Status;
use telegrad::status::is_shutdown;

use crate::watch::{Chains, Discovery, WorldSelector, silent};
use crate::{Error, fail, print};

/// Find out what the workers of a world wait for.
///
/// Prints each chain of calls that has been in flight for a while, from its first caller to the call that all others wait for.
/// Reports cycles: calls that wait for each other until one reaches its time limit. A chain that returns to a worker is reported as a
/// possible cycle: its functions may wait for each other in a way that calls do not show, for a lock for instance. At a barrier,
/// prints the workers that wait and the ones that have not arrived.
///
/// Finds the user's own workers on this machine that `telegrad run` has started or that have TELEGRAD_STATUS in their environment.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    world: WorldSelector,

    /// Ignore calls that have been in flight for less
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::run::seconds)]
    older: Duration,
}

const AFTER_HELP: &str = "\
Exit codes:
  0  no call has been in flight for that long
  1  no world was found, or its workers could not be asked
  3  a call has been in flight for that long
  4  calls wait for each other in a cycle";

pub(crate) fn run(args: &Args) -> ExitCode {
    match examine(args) {
        Ok((text, code)) => {
            print(text.as_bytes());
            ExitCode::from(code)
        }
        Err(error) => fail(&*error, 1),
    }
}

/// Returns the findings and the exit code.
fn examine(args: &Args) -> Result<(String, u8), Error> {
    let workers = Discovery::default().world(args.world)?;
    let mut text = overview(&workers);
    let chains = Chains::new(&workers);
    let leaving = chains.leaving();
    if !leaving.is_empty() {
        text += &format!(
            "{} of {} workers are in shutdown and wait for the others: {}\n",
            leaving.len(),
            workers.len(),
            leaving.join(", ")
        );
    }
    let waits = chains.older(args.older);
    if waits.is_empty() {
        text += "no call has been in flight for long\n";
    }
    for barrier in &waits.barriers {
        text += &format!("\n{barrier}\n");
    }
    for chain in &waits.chains {
        text += &format!("\n{chain}\n");
    }
    if waits.more > 0 {
        text += &format!("\nand {} more\n", waits.more);
    }
    for cycle in &waits.cycles {
        text += &format!("\ncycle: {cycle}\n");
    }
    for suspect in &waits.suspects {
        text += &format!("\npossible cycle: {suspect}\n");
    }
    let code = match (waits.cycles.is_empty(), waits.is_empty()) {
        (false, _) => 4,
        (true, false) => 3,
        (true, true) => 0,
    };
    Ok((text, code))
}

fn overview(workers: &[Status]) -> String {
    let size = workers.first().map_or(0, |worker| worker.size);
    let calls = workers.iter().flat_map(|worker| &worker.made);
    let calls = calls.filter(|made| !is_shutdown(&made.function)).count();
    let mut text = format!(
        "{} of {size} workers answer; {calls} calls are in flight\n",
        workers.len()
    );
    let silent: Vec<_> = silent(workers).iter().map(ToString::to_string).collect();
    if !silent.is_empty() {
        text += &format!(
            "no answer from rank {}: the worker has ended, is stopped, runs on another host, or belongs to another user\n",
            silent.join(", ")
        );
    }
    text
}
