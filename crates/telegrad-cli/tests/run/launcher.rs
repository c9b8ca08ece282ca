//! A `telegrad run` under test.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Far longer than any wait here takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A started command. Killed when dropped; its workers die with it.
pub(crate) struct Launcher {
    child: Child,
    pidfd: OwnedFd,
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
}

/// The outcome of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    /// The lines that were not read before.
    pub(crate) stdout: Vec<String>,
    pub(crate) stderr: Vec<String>,
}

/// `telegrad` with these arguments and pipes for its output.
pub(crate) fn telegrad<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_telegrad"));
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Starts `telegrad run OPTIONS -- sh -c SCRIPT`.
pub(crate) fn run_sh(options: &str, script: &str) -> Launcher {
    let args = ["run"]
        .into_iter()
        .chain(options.split_whitespace())
        .chain(["--", "sh", "-c", script]);
    Launcher::start(telegrad(args))
}

impl Launcher {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let pidfd = open_pidfd(child.id());
        let stdout = lines_of(child.stdout.take());
        let stderr = lines_of(child.stderr.take());
        Launcher {
            child,
            pidfd,
            stdout,
            stderr,
        }
    }

    /// The next line of standard output.
    pub(crate) fn line(&self) -> String {
        text(
            self.stdout
                .recv_timeout(LIMIT)
                .expect("a line of output within the time limit"),
        )
    }

    /// The next line of standard error.
    pub(crate) fn error_line(&self) -> String {
        text(
            self.stderr
                .recv_timeout(LIMIT)
                .expect("a line of errors within the time limit"),
        )
    }

    /// The next `n` lines of standard output, sorted: workers print in any order.
    pub(crate) fn lines(&self, n: usize) -> Vec<String> {
        let mut lines: Vec<_> = (0..n).map(|_| self.line()).collect();
        lines.sort();
        lines
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the command to end and for its output.
    pub(crate) fn wait(mut self) -> Outcome {
        wait_for(&self.pidfd, "the command");
        let status: ExitStatus = self.child.wait().unwrap();
        let rest = |lines: &Receiver<Vec<u8>>| {
            let mut all = Vec::new();
            loop {
                match lines.recv_timeout(LIMIT) {
                    Ok(line) => all.push(text(line)),
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return all,
                    Err(timeout) => panic!("output stays open after the end of the command: {timeout}"),
                }
            }
        };
        Outcome {
            code: status.code(),
            stdout: rest(&self.stdout),
            stderr: rest(&self.stderr),
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A fifo through which workers wait for each other, or for the test; removed when dropped.
pub(crate) struct Fifo(String);

impl Fifo {
    pub(crate) fn new(name: &str) -> Self {
        let path = format!(
            "{}/{name}.{}.fifo",
            env!("CARGO_TARGET_TMPDIR"),
            std::process::id()
        );
        let _ = std::fs::remove_file(&path);
        mkfifoat(CWD, &path, Mode::RWXU).unwrap();
        Fifo(path)
    }

    /// The script with the fifo in place of `$0`.
    pub(crate) fn in_script(&self, script: &str) -> String {
        script.replace("$0", &self.0)
    }

    /// Writes a text once there is a reader.
    pub(crate) fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Opens a handle to wait for a process that is not a child.
pub(crate) fn open_pidfd(pid: u32) -> OwnedFd {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    pidfd_open(pid, PidfdFlags::empty()).unwrap()
}

/// Waits for the end of a process.
pub(crate) fn wait_for(pidfd: impl AsFd, name: &str) {
    let limit = Timespec::try_from(LIMIT).unwrap();
    let ready = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(ready, 1, "{name} did not end within {LIMIT:?}");
}

/// The lines of a stream, without line ends.
fn lines_of(stream: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, lines) = channel();
    if let Some(stream) = stream {
        thread::spawn(move || {
            let mut lines = BufReader::new(stream).split(b'\n').map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
    }
    lines
}

fn text(line: Vec<u8>) -> String {
    String::from_utf8_lossy(&line).into_owned()
}
