//! A child process that runs a hidden subcommand of this program.

use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Error;

/// A child process; killed when dropped before it has ended.
#[derive(Debug)]
pub struct Process {
    /// For error messages.
    name: String,
    child: Child,
}

impl Process {
    /// Starts this program with other arguments.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(name: &str, args: &[&str]) -> Result<Self, Error> {
        Self::spawn(name, command(args)?.stdin(Stdio::null()))
    }

    /// Starts this program with other arguments and pipes for its standard input and output.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start_piped(name: &str, args: &[&str]) -> Result<(Self, ChildStdin, ChildStdout), Error> {
        let mut process = Self::spawn(name, command(args)?.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        match (process.child.stdin.take(), process.child.stdout.take()) {
            (Some(stdin), Some(stdout)) => Ok((process, stdin, stdout)),
            _ => Err(format!("the process `{name}` was started without pipes").into()),
        }
    }

    fn spawn(name: &str, command: &mut Command) -> Result<Self, Error> {
        let child = command
            .spawn()
            .map_err(|error| format!("cannot start the process `{name}`: {error}"))?;
        let name = name.to_owned();
        Ok(Self { name, child })
    }

    /// Waits until the process has ended.
    ///
    /// # Errors
    /// When its exit status is not 0.
    pub fn wait(&mut self) -> Result<(), Error> {
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the process `{}` failed with {status}", self.name).into())
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(args: &[&str]) -> Result<Command, Error> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args);
    Ok(command)
}
