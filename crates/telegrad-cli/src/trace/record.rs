//! `telegrad trace record`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use telegrad::trace::{self, Profile};

use super::write;
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
pub(super) struct Args {
    /// Where to write the recording
    #[arg(short, long, value_name = "FILE", default_value = "trace.json")]
    output: PathBuf,

    /// Start so many workers
    #[arg(short = 'n', long, value_name = "N")]
    workers: Option<u16>,

    /// Start workers of these names
    #[arg(long, value_name = "NAME,…")]
    names: Option<String>,

    /// What to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    command: Vec<OsString>,
}

pub(super) fn run(args: Args) -> Result<ExitCode, Error> {
    let folder = tempfile::Builder::new().prefix("telegrad-trace-").tempdir()?;
    let mut words = args.command.into_iter();
    let mut command = if args.workers.is_some() || args.names.is_some() {
        let mut run = Command::new(std::env::current_exe()?);
        run.arg("run");
        run.args(args.workers.iter().flat_map(|n| ["-n".to_owned(), n.to_string()]));
        run.args(args.names.iter().flat_map(|names| ["--names", names]));
        run.arg("--").args(words);
        run
    } else {
        // clap has seen to it that there is one.
        let mut program = Command::new(words.next().unwrap_or_default());
        program.args(words);
        program
    };
    command.env(trace::FOLDER, folder.path());
    // They are for the program; what it has recorded until then is still wanted.
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let program = command.get_program().to_owned();
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    let process = Pid::from_child(&child);
    let handle = signals.handle();
    let passing_on = std::thread::spawn(move || {
        for signal in &mut signals {
            // A terminal sends Ctrl-C to the program itself.
            if signal == SIGTERM {
                let _ = kill_process(process, Signal::TERM);
            }
        }
    });
    let status = child.wait()?;
    handle.close();
    // It has nothing left to do.
    let _ = passing_on.join();
    match trace::read_worlds(&[folder.path().to_owned()]) {
        Ok(worlds) => {
            for (number, profile) in (1..).zip(&worlds) {
                save(profile, &numbered(&args.output, number))?;
            }
        }
        // The program's own failure is what counts.
        Err(error) if status.success() => return Err(error.into()),
        Err(_) => {}
    }
    Ok(code_of(status))
}

/// Where the recording of a world goes: the file that was asked for, or for further ones `trace-2.json` and so on.
fn numbered(output: &Path, number: usize) -> PathBuf {
    if number == 1 {
        return output.to_owned();
    }
    let mut name = output.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    let path = output.with_file_name(name);
    match output.extension() {
        Some(extension) => path.with_added_extension(extension),
        None => path,
    }
}

fn save(profile: &Profile, file: &Path) -> Result<(), Error> {
    write(profile, file)?;
    // With standard error closed there is nobody to tell.
    let _ = writeln!(
        std::io::stderr(),
        "telegrad: {} events of {} workers are in {file}; `telegrad trace view {file}` shows them",
        profile.events.len(),
        profile.workers.len(),
        file = file.display(),
    );
    Ok(())
}

fn code_of(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
