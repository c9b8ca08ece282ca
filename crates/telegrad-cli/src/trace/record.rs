//! `telegrad trace record`: runs a program and records its workers.

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
use super::signals::{ending, is_from_terminal};
use super::{report, say};
use crate::Error;

/// Run a program and record its workers.
///
/// Runs PROGRAM once, or with -n or --names as `telegrad run` does. Every worker in it and in its child processes records calls and
/// their executions, spans of the program, operators, layers, passes and steps. After the program has ended, all events are written
/// to one file, aligned to one clock.
///
/// The file has Chrome's trace format, which https://ui.perfetto.dev and `telegrad trace view` show, or lines of JSON if its name
/// ends in .jsonl.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("world").args(["workers", "names"]).multiple(true))]
pub(super) struct Args {
    /// Output file [default: trace.json]
    ///
    /// An existing file of this name is replaced after the run. Without this option, an existing trace.json is an error. If a program
    /// has several worlds, the recordings of further ones go to trace-2.json and so on, skipping existing files.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Number of workers to start
    #[arg(short = 'n', long, value_name = "N")]
    workers: Option<u16>,

    /// Names of workers to start
    #[arg(long, value_name = "NAME,…")]
    names: Option<String>,

    /// Let the other workers continue when one fails, as `telegrad run --keep-going` does
    #[arg(long, requires = "world")]
    keep_going: bool,

    /// Record the shapes of tensors
    #[arg(long)]
    shapes: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    command: Vec<OsString>,
}

pub(super) fn run(args: Args) -> Result<ExitCode, Error> {
    // Before the run, so that an error does not come after hours of training.
    let output = Output::new(args.output.clone());
    output.check()?;
    let folder = tempfile::Builder::new().prefix("telegrad-trace-").tempdir()?;
    let mut command = command(args)?;
    command.env(trace::FOLDER_ENV, folder.path());
    let signals = ending()?;
    let program = command.get_program().to_owned();
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot run `{}`: {error}", program.display()))?;
    let ended = forward_signals(signals, &child, folder.path().to_owned());
    let status = child.wait()?;
    ended.store(true, SeqCst);
    match save(&output, folder.path()) {
        Ok(()) => Ok(code_of(status)),
        Err(error) => {
            let error = keep(folder, error);
            if status.success() {
                return Err(error);
            }
            // The exit status of the program takes precedence; both errors are reported.
            say(&format!("{} failed: {status}", program.display()));
            say(&error.to_string());
            Ok(code_of(status))
        }
    }
}

/// The command to run.
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
        // clap requires it.
        let mut program = Command::new(words.next().unwrap_or_default());
        program.args(words);
        program
    };
    if args.shapes {
        command.env(trace::SHAPES_ENV, "1");
    }
    Ok(command)
}

/// Forwards signals to the program, so that its recording is still written, until the returned flag is set. After that, a signal ends
/// this command and reports the folder of the unmerged recording.
///
/// Ends the process by itself, because a caught signal no longer has its default action.
fn forward_signals(mut signals: SignalsInfo<WithOrigin>, child: &Child, folder: PathBuf) -> Arc<AtomicBool> {
    let process = Pid::from_child(child);
    let ended = Arc::new(AtomicBool::new(false));
    let is_ended = ended.clone();
    std::thread::spawn(move || {
        for origin in &mut signals {
            if is_ended.load(SeqCst) {
                abandon();
                say(&format!(
                    "interrupted; the unmerged recording is in {}",
                    folder.display()
                ));
                std::process::exit(128 + origin.signal);
            }
            match origin.signal {
                // The terminal has signalled the program already; a second signal might make it end at once.
                SIGINT if is_from_terminal(&origin) => (),
                SIGINT => drop(kill_process(process, Signal::INT)),
                // SIGHUP becomes SIGTERM, so that the program ends and writes its recording.
                _ => drop(kill_process(process, Signal::TERM)),
            }
        }
    });
    ended
}

/// Merges the recordings of the workers into one file per world.
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

/// Keeps the unmerged recording, if there is one.
fn keep(folder: TempDir, error: Error) -> Error {
    let is_empty = fs::read_dir(folder.path()).is_ok_and(|mut files| files.next().is_none());
    if is_empty {
        return "nothing was recorded: the program has started no worker of Telegrad".into();
    }
    let kept = folder.keep();
    format!("{error}; the unmerged recording is in {}", kept.display()).into()
}

fn code_of(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
