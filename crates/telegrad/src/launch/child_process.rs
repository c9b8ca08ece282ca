//! The process of one worker.

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
/// The group allows to kill the processes that the worker started too. It also keeps the terminal from sending Ctrl-C to the
/// workers, which would then receive it twice.
///
/// An ended process is not reaped at once: until then, the system does not reuse its id and that of its group, and killing
/// the group is safe.
#[derive(Debug)]
pub(super) struct ChildProcess {
    name: String,
    rank: usize,
    child: Child,
    /// Becomes readable when the process ends.
    pidfd: OwnedFd,
    /// Standard output and standard error.
    streams: [Stream; 2],
    ending: Option<(Ending, Instant)>,
    /// Reaped or abandoned.
    finished: bool,
}

impl ChildProcess {
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
        Ok(ChildProcess {
            name: name.into(),
            rank,
            child,
            pidfd,
            streams,
            ending: None,
            finished: false,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    /// How and when the process ended, if it has ended.
    pub(super) fn ending(&self) -> Option<(Ending, Instant)> {
        self.ending
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// The descriptor to poll for the end of the process, until it has ended.
    pub(super) fn exit_fd(&self) -> Option<BorrowedFd<'_>> {
        (self.ending.is_none() && !self.finished).then(|| self.pidfd.as_fd())
    }

    /// The descriptor to poll for output, until the end of the stream.
    pub(super) fn output_fd(&self, stream: usize) -> Option<BorrowedFd<'_>> {
        self.streams[stream].fd()
    }

    /// Records how the process ended, once `exit_fd` is ready.
    pub(super) fn check_exit(&mut self) -> io::Result<()> {
        // NOWAIT defers reaping; see the type.
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

    /// Reads once from a ready `output_fd`; returns whole lines.
    pub(super) fn read(&mut self, stream: usize) -> Vec<u8> {
        let mut text = Vec::new();
        self.streams[stream].read(&mut text);
        text
    }

    /// Signals the process group. An empty group is not an error.
    pub(super) fn signal(&self, signal: Signal) {
        if !self.finished {
            let _ = kill_process_group(Pid::from_child(&self.child), signal);
        }
    }

    /// Kills the rest of the process group, reaps the process if it has ended, and returns the lines left on its streams.
    ///
    /// Does not wait for a process that `SIGKILL` did not end.
    pub(super) fn finish(&mut self) -> io::Result<[Vec<u8>; 2]> {
        self.signal(Signal::KILL);
        self.finished = true;
        self.child.try_wait()?;
        Ok(self.streams.each_mut().map(Stream::finish))
    }
}

/// Kills the process if the launcher returns early.
impl Drop for ChildProcess {
    fn drop(&mut self) {
        if !self.finished {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Makes the system send `SIGKILL` to the process when the thread that starts it ends.
fn die_with_this_thread(command: &mut Command) {
    let launcher = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A launcher that died before the call above caused no signal.
        if getppid() == Some(launcher) {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    };
    // SAFETY: the closure runs in the child between fork and exec, where only the forking thread exists and another thread
    // may have held any lock. It makes two system calls and compares two integers; it takes no lock, does not allocate (an
    // `io::Error` of an `ErrorKind` or an error number is stored inline) and does not panic.
    unsafe { command.pre_exec(prepare) };
}
