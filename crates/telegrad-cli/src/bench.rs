//! `telegrad bench`: runs the benchmarks, which are a program of their own.
//!
//! `telegrad-bench` is not published, so the command cannot link it. In a source tree, cargo builds and runs it, which
//! also keeps it as new as the sources; elsewhere the command runs the `telegrad-bench` beside its own executable.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::{Error, fail};

const PROGRAM: &str = "telegrad-bench";

/// The crate of the benchmarks, from the top of a source tree.
const MANIFEST: &str = "crates/telegrad-bench/Cargo.toml";

/// Measure calls, tensors and references between worker processes (needs the source tree).
///
/// In a source tree of Telegrad, this is `cargo run --release -p telegrad-bench`. Elsewhere it runs the program
/// `telegrad-bench` beside this one. All options go to that program; `telegrad bench --help` lists them.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct Args {
    /// Options of `telegrad-bench`
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    fail(&*start(args), 1)
}

/// Replaces this process by the benchmarks; returns only if that fails.
fn start(args: &Args) -> Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error.into(),
    };
    let beside = program.with_file_name(PROGRAM);
    let mut command = if let Some(tree) = source_tree(&program) {
        build_and_run(&tree)
    } else if beside.is_file() {
        Command::new(beside)
    } else {
        return format!(
            "cannot run the benchmarks: `{}` is not in a source tree of Telegrad, and there is no `{}`; get the \
             sources from {} and run `cargo run --release -p {PROGRAM}` there",
            program.display(),
            beside.display(),
            env!("CARGO_PKG_REPOSITORY"),
        )
        .into();
    };
    let error = command.args(&args.options).exec();
    let name = command.get_program().display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("cannot start `{name}`: {error}; building the benchmarks needs cargo (https://rustup.rs)")
        }
        _ => format!("cannot start `{name}`: {error}"),
    }
    .into()
}

/// The source tree that this program was built in, if it is still there.
fn source_tree(program: &Path) -> Option<PathBuf> {
    // `cargo run` sets the variable. It finds the tree if the target directory is elsewhere.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let starts = [Some(program), manifest.as_deref()];
    let mut folders = starts.into_iter().flatten().flat_map(Path::ancestors);
    let tree = folders.find(|folder| folder.join(MANIFEST).is_file())?;
    Some(tree.to_path_buf())
}

fn build_and_run(tree: &Path) -> Command {
    // cargo names itself in this variable when it runs a program.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // `--bin` instead of `-p`: the dependencies keep the features that `cargo build` has built them with.
    command.args(["run", "--quiet", "--release", "--bin", PROGRAM, "--manifest-path"]);
    command.arg(tree.join("Cargo.toml")).arg("--");
    command
}
