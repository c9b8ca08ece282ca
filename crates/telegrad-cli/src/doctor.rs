//! `telegrad doctor`: why nothing happens.

use std::process::ExitCode;
use std::time::Duration;

use telegrad::status::Status;
use telegrad::status::is_shutdown;

use crate::watch::{Asking, Chains, Which, silent};
use crate::{Error, fail, print};

/// Ask all workers of a world what they wait for.
///
/// Prints the chains of calls that have been under way for a while, from the one that nobody waits for to the one that everything
/// waits for, and names a cycle when there is one: its calls wait until one of them reaches its time limit. A chain that comes back to
/// a worker may be one, if its functions wait for each other in a way that cannot be seen, as for a lock: that is said, too. So is who
/// waits at a barrier, and for whom.
///
/// It finds workers on this machine that `telegrad run` has started, or that have TELEGRAD_STATUS in their environment, and only those
/// of the same user.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,

    /// Leave out calls that have been under way for less
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::run::seconds)]
    older: Duration,
}

const AFTER_HELP: &str = "\
Exit codes:
  0  nothing has been under way for that long
  1  there is no world, or it cannot be asked
  3  something has been under way for that long
  4  there is a cycle";

pub(crate) fn run(args: &Args) -> ExitCode {
    match examine(args) {
        Ok((text, code)) => {
            print(text.as_bytes());
            ExitCode::from(code)
        }
        Err(error) => fail(&*error, 1),
    }
}

/// What there is to say, and the exit code.
fn examine(args: &Args) -> Result<(String, u8), Error> {
    let workers = Asking::default().find(args.which)?;
    let mut text = overview(&workers);
    let chains = Chains::new(&workers);
    let leaving = chains.leaving();
    if !leaving.is_empty() {
        text += &format!(
            "{} of {} workers wait in the shutdown for all others: {}\n",
            leaving.len(),
            workers.len(),
            leaving.join(", ")
        );
    }
    let waits = chains.older(args.older);
    if waits.is_empty() {
        text += "nothing has been under way for long\n";
    }
    for meeting in &waits.meetings {
        text += &format!("\n{meeting}\n");
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
        "{} of {size} workers answer; {calls} calls are under way\n",
        workers.len()
    );
    let silent: Vec<_> = silent(workers).iter().map(ToString::to_string).collect();
    if !silent.is_empty() {
        text += &format!(
            "no answer from rank {}: it is gone, stopped, on another host, or cannot be seen\n",
            silent.join(", ")
        );
    }
    text
}
