//! One run of a Python script that prints JSON lines.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::error::PeerError;

/// Lines of standard error to report when a script fails.
const LAST_LINES: usize = 4;
/// Characters to report of a line.
const LINE: usize = 200;

/// A script and its arguments.
pub(super) struct Script<'a> {
    pub(super) python: &'a Path,
    pub(super) file: PathBuf,
    pub(super) args: Vec<&'a str>,
}

impl Script<'_> {
    /// Runs it to its end or to the limit. `take` returns whether a line is valid.
    pub(super) fn run(&self, limit: Duration, mut take: impl FnMut(Value) -> bool) -> Result<(), PeerError> {
        let section = || self.args.first().copied().unwrap_or_default().to_owned();
        let hung = || PeerError::Hung {
            section: section(),
            limit,
        };
        let deadline = Instant::now() + limit;
        let mut running = Running::start(self)?;
        while let Some(line) = running.line(deadline).map_err(|_| hung())? {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim();
            if !text.is_empty() && !serde_json::from_str(text).is_ok_and(&mut take) {
                let line = shorten(text);
                return Err(PeerError::Garbage {
                    section: section(),
                    line,
                });
            }
        }
        let status = running.wait(deadline)?.ok_or_else(hung)?;
        if status.success() {
            return Ok(());
        }
        let output = running.last_errors();
        Err(PeerError::Failed {
            section: section(),
            status,
            output,
        })
    }
}

/// A running script, in a process group of its own so that its children can be killed with it.
struct Running {
    child: Child,
    lines: Receiver<Vec<u8>>,
    errors: Receiver<Vec<u8>>,
}

impl Running {
    fn start(script: &Script<'_>) -> io::Result<Self> {
        let mut child = Command::new(script.python)
            .arg(&script.file)
            .args(&script.args)
            // Never written to. The pipe closes when this process ends, even if it is killed, and the script ends then.
            .arg("--end-with-input")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let lines = lines_of(child.stdout.take());
        let errors = lines_of(child.stderr.take());
        Ok(Self { child, lines, errors })
    }

    /// The next line; `None` at the end of the output.
    fn line(&self, deadline: Instant) -> Result<Option<Vec<u8>>, RecvTimeoutError> {
        match self
            .lines
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(timeout) => Err(timeout),
        }
    }

    /// Waits for its end; `None` if it still runs at the deadline.
    fn wait(&mut self, deadline: Instant) -> io::Result<Option<ExitStatus>> {
        loop {
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                return Ok(ended);
            }
            // Its output is closed already, so the wait is short.
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// The last lines of its standard error.
    fn last_errors(&self) -> String {
        /// The output of an ended process arrives at once. Children that it has left behind may keep the pipe open.
        const PATIENCE: Duration = Duration::from_millis(500);
        let mut lines = Vec::new();
        while let Ok(line) = self.errors.recv_timeout(PATIENCE) {
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            if !line.is_empty() {
                lines.push(shorten(&line));
            }
        }
        if lines.is_empty() {
            return "no text on standard error".into();
        }
        lines
            .split_off(lines.len().saturating_sub(LAST_LINES))
            .join(" | ")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        // It has not been waited for, so its id is still valid.
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            // Fails only if the group has just ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// The lines of an output, read by a thread that ends with the output.
fn lines_of(output: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    if let Some(output) = output {
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}

fn shorten(line: &str) -> String {
    match line.char_indices().nth(LINE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
