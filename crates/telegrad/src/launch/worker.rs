//! One worker process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process_group, pidfd_open,
    set_parent_process_death_signal, waitid,
};

use super::THREADS;
use super::lines::Lines;
use super::stream::Stream;
use super::{Ending, Launch, LaunchError};

/// A started process, leader of a process group of its own.
///
/// The group is what makes it possible to end also what the worker has started, and it keeps the
/// terminal from sending Ctrl-C to the workers too, who would then get it twice.
///
/// A process that has ended is not reaped at once: as long as it is there, its id and so its group
/// cannot become somebody else's, and killing the group is safe.
#[derive(Debug)]
pub(super) struct Worker {
    name: String,
    rank: usize,
    child: Child,
    /// Becomes readable when the process ends.
    pidfd: OwnedFd,
    /// Standard output and standard error.
    streams: [Stream; 2],
    ending: Option<(Ending, Instant)>,
    /// Reaped, or given up: nothing more to wait for.
    gone: bool,
}

impl Worker {
    pub(super) fn start(
        launch: &Launch,
        rank: usize,
        port: u16,
        lines: [Lines; 2],
    ) -> Result<Self, LaunchError> {
        let name = &launch.names[rank];
        let mut command = Command::new(&launch.program);
        if std::env::var_os(THREADS).is_none() {
            command.env(THREADS, super::threads_each(launch.names.len()).to_string());
        }
        command
            .args(&launch.args)
            .envs(launch.env.iter().map(|(key, value)| (key, value)))
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", launch.names.len().to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string())
            .env("TELEGRAD_NAME", name)
            .env(telegrad_rpc::status::VARIABLE, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        die_with_this_thread(&mut command);
        Self::spawn(command, name, rank, lines).map_err(|source| LaunchError::Start {
            program: launch.program.to_string_lossy().into_owned(),
            name: name.clone(),
            rank,
            source,
        })
    }

    fn spawn(mut command: Command, name: &str, rank: usize, lines: [Lines; 2]) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let pidfd = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(error.into());
            }
        };
        let pipes = [
            child.stdout.take().map(OwnedFd::from),
            child.stderr.take().map(OwnedFd::from),
        ];
        let [out, err] = lines;
        let [out_pipe, err_pipe] = pipes;
        let streams = [Stream::new(out_pipe, out), Stream::new(err_pipe, err)];
        Ok(Worker {
            name: name.into(),
            rank,
            child,
            pidfd,
            streams,
            ending: None,
            gone: false,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    /// How and when the process ended, if it has.
    pub(super) fn ending(&self) -> Option<(Ending, Instant)> {
        self.ending
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// What to wait on for the end of the process, until it has ended.
    pub(super) fn exit_fd(&self) -> Option<BorrowedFd<'_>> {
        (self.ending.is_none() && !self.gone).then(|| self.pidfd.as_fd())
    }

    /// What to wait on for output, until all of it is there.
    pub(super) fn output_fd(&self, stream: usize) -> Option<BorrowedFd<'_>> {
        self.streams[stream].fd()
    }

    /// Notes the end of the process, once `exit_fd` is ready.
    pub(super) fn check_exit(&mut self) -> io::Result<()> {
        // NOWAIT leaves the process to be reaped later; see the type.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Some(status) = waitid(WaitId::PidFd(self.pidfd.as_fd()), options)? {
            let ending = match status.terminating_signal() {
                Some(signal) => Ending::Signal(signal),
                None => Ending::Status(status.exit_status().unwrap_or(0)),
            };
            self.ending = Some((ending, Instant::now()));
        }
        Ok(())
    }

    /// Reads what `output_fd` is ready with; gives whole lines.
    pub(super) fn read(&mut self, stream: usize) -> Vec<u8> {
        let mut text = Vec::new();
        self.streams[stream].read(&mut text);
        text
    }

    /// Signals the worker and what it has started. A process group that is gone is not an error.
    pub(super) fn signal(&self, signal: Signal) {
        if !self.gone {
            let _ = kill_process_group(Pid::from_child(&self.child), signal);
        }
    }

    /// Leaves the worker: kills what is left of its process group, reaps the process if it has ended
    /// (one that `SIGKILL` did not end is not waited for), and gives the lines that are still on its
    /// streams.
    pub(super) fn finish(&mut self) -> io::Result<[Vec<u8>; 2]> {
        self.signal(Signal::KILL);
        self.gone = true;
        self.child.try_wait()?;
        Ok(self.streams.each_mut().map(Stream::finish))
    }
}

/// When the launcher leaves early, its workers do not stay behind.
impl Drop for Worker {
    fn drop(&mut self) {
        if !self.gone {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Has the system kill the process with `SIGKILL` when the thread that starts it ends.
fn die_with_this_thread(command: &mut Command) {
    let launcher = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A launcher that died before the line above has sent no signal.
        if getppid() == Some(launcher) {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    };
    // SAFETY: the closure runs in the child between fork and exec, where only the forking thread
    // exists and another may have held any lock. It makes two system calls and compares two
    // integers; it takes no lock, does not allocate (an `io::Error` of an `ErrorKind` or of an error
    // number is stored in place) and does not panic.
    unsafe { command.pre_exec(prepare) };
}
