//! `telegrad trace record`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use clap::ArgGroup;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::SIGINT;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use telegrad::{profile, trace};
use tempfile::TempDir;

use super::output::{Output, abandon};
use super::signals::{ending, is_of_terminal};
use super::{report, say};
use crate::Error;

/// Record everything that the workers of a world do.
///
/// Runs PROGRAM, once, or with -n or --names as `telegrad run` does, and has every worker of it, and of what it starts, write down
/// what it does: calls and their executions, what the program records itself, operators, layers, passes and steps. When it
/// is over, all of it goes into one file on one clock.
///
/// The file is in Chrome's trace format, which https://ui.perfetto.dev and `telegrad trace view` show; or lines of JSON
/// when its name ends in .jsonl.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("world").args(["workers", "names"]).multiple(true))]
pub(super) struct Args {
    /// Where to write the recording [default: trace.json]
    ///
    /// A file that is named here is replaced when all is over; one that is there without being named is not. Of a program that has
    /// several worlds, one after the other, further ones go to trace-2.json and so on, to the first that is not there.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Start so many workers
    #[arg(short = 'n', long, value_name = "N")]
    workers: Option<u16>,

    /// Start workers of these names
    #[arg(long, value_name = "NAME,…")]
    names: Option<String>,

    /// Let the other workers go on when one fails, as `telegrad run --keep-going` does
    #[arg(long, requires = "world")]
    keep_going: bool,

    /// Record the shapes of tensors too
    #[arg(long)]
    shapes: bool,

    /// What to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    command: Vec<OsString>,
}

pub(super) fn run(args: Args) -> Result<ExitCode, Error> {
    // Now, and not after hours of training.
    let output = Output::new(args.output.clone());
    output.check()?;
    let folder = tempfile::Builder::new().prefix("telegrad-trace-").tempdir()?;
    let mut command = command(args)?;
    command.env(trace::FOLDER, folder.path());
    let signals = ending()?;
    let program = command.get_program().to_owned();
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    let is_over = pass_on(signals, &child, folder.path().to_owned());
    let status = child.wait()?;
    is_over.store(true, SeqCst);
    match save(&output, folder.path()) {
        Ok(()) => Ok(code_of(status)),
        Err(error) => {
            let error = keep(folder, error);
            if status.success() {
                return Err(error);
            }
            // The program's own failure is what counts, but is not all there is to say.
            say(&format!("{} failed: {status}", program.display()));
            say(&error.to_string());
            Ok(code_of(status))
        }
    }
}

/// What is to run.
fn command(args: Args) -> Result<Command, Error> {
    let mut words = args.command.into_iter();
    let mut command = if args.workers.is_some() || args.names.is_some() {
        let mut run = Command::new(std::env::current_exe()?);
        run.arg("run");
        run.args(args.workers.iter().flat_map(|n| ["-n".to_owned(), n.to_string()]));
        run.args(args.names.iter().flat_map(|names| ["--names", names]));
        run.args(args.keep_going.then_some("--keep-going"));
        run.arg("--").args(words);
        run
    } else {
        // clap has seen to it that there is one.
        let mut program = Command::new(words.next().unwrap_or_default());
        program.args(words);
        program
    };
    if args.shapes {
        command.env(trace::SHAPES, "1");
    }
    Ok(command)
}

/// Passes signals on to the program as long as that runs, which is until somebody sets what this returns: what it has recorded
/// until then is still wanted. After that they end this command, and say where to find what it was about to put together.
///
/// By hand, because a signal that was caught once never again does what it would by itself.
fn pass_on(mut signals: SignalsInfo<WithOrigin>, child: &Child, folder: PathBuf) -> Arc<AtomicBool> {
    let process = Pid::from_child(child);
    let is_over = Arc::new(AtomicBool::new(false));
    let is_over_there = is_over.clone();
    std::thread::spawn(move || {
        for origin in &mut signals {
            if is_over_there.load(SeqCst) {
                abandon();
                say(&format!(
                    "interrupted; what the workers have written is in {}",
                    folder.display()
                ));
                std::process::exit(128 + origin.signal);
            }
            match origin.signal {
                // The program has had it already, and may take a second one to mean that it shall end at once.
                SIGINT if is_of_terminal(&origin) => (),
                SIGINT => drop(kill_process(process, Signal::INT)),
                // Also when the terminal is gone: what has been recorded is still wanted, and the program may not know.
                _ => drop(kill_process(process, Signal::TERM)),
            }
        }
    });
    is_over
}

/// Puts together what the workers have written.
fn save(first: &Output, folder: &Path) -> Result<(), Error> {
    let worlds = profile::read_worlds(&[folder.to_owned()])?;
    for (number, profile) in (1..).zip(&worlds) {
        let further = (number > 1).then(|| first.further(number));
        let output = further.as_ref().unwrap_or(first);
        output.write_profile(profile)?;
        report(profile, &output.path);
    }
    Ok(())
}

/// Keeps what the workers have written, if they have: it cannot be had again.
fn keep(folder: TempDir, error: Error) -> Error {
    let is_empty = fs::read_dir(folder.path()).is_ok_and(|mut files| files.next().is_none());
    if is_empty {
        return "nothing was recorded: no worker has written anything, so the program has started none"
            .into();
    }
    let kept = folder.keep();
    format!("{error}; what the workers have written is in {}", kept.display()).into()
}

fn code_of(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
