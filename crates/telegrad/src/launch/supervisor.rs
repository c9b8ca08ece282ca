//! Event loop of a launch: one thread waits for all events of a world and ends it in order.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;

use super::child_process::ChildProcess;
use super::printer::Printer;
use super::signals::Signals;
use super::{Ending, Failure, Launch, LaunchError};

/// Time limit for a process to end after `SIGKILL` and its output to arrive. Only a process stuck in the kernel needs longer,
/// and may never end.
const AFTER_KILL: Duration = Duration::from_secs(2);

/// A running world.
pub(super) struct Supervisor {
    workers: Vec<ChildProcess>,
    /// Standard output and standard error.
    printers: [Printer; 2],
    signals: Signals,
    grace: Duration,
    /// Whether the other workers continue when one fails.
    keep_going: bool,
    stage: Stage,
    /// Workers that failed before any request to end, in the order of their ends.
    failed: Vec<Failure>,
    /// The first signal that the launcher received while the world was running.
    interrupted: Option<Signal>,
    /// Number of signals that the launcher received.
    interrupts: usize,
    /// Whether a signal arrived while the last output was written.
    cut_short: bool,
    /// Workers killed after the grace period.
    killed: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Running,
    /// All workers were asked to end. Without a time, the grace period has no end.
    Ending {
        kill_at: Option<Instant>,
    },
    /// All workers were killed.
    Killed {
        leave_at: Instant,
    },
}

/// A ready descriptor, with the indices of worker and stream.
#[derive(Debug)]
enum Event {
    Signal,
    Printed(usize),
    Exit(usize),
    Output(usize, usize),
}

impl Supervisor {
    pub(super) fn new(
        workers: Vec<ChildProcess>,
        printers: [Printer; 2],
        signals: Signals,
        launch: &Launch,
    ) -> Self {
        Supervisor {
            workers,
            printers,
            signals,
            grace: launch.grace,
            keep_going: launch.keep_going,
            stage: Stage::Running,
            failed: Vec::new(),
            interrupted: None,
            interrupts: 0,
            cut_short: false,
            killed: Vec::new(),
        }
    }

    /// Returns when all workers have ended and their output is written.
    pub(super) fn run(mut self) -> Result<(), LaunchError> {
        self.watch().map_err(LaunchError::System)?;
        self.flush().map_err(LaunchError::System)?;
        self.verdict()
    }

    fn watch(&mut self) -> io::Result<()> {
        while !self.workers.iter().all(ChildProcess::is_finished) {
            for event in self.wait(self.next_deadline())? {
                match event {
                    Event::Signal => self.on_signals(),
                    Event::Printed(stream) => self.printers[stream].clear_progress(),
                    Event::Exit(worker) => self.on_exit(worker)?,
                    Event::Output(worker, stream) => {
                        self.printers[stream].print(&self.workers[worker].read(stream));
                    }
                }
            }
            self.on_time(Instant::now())?;
        }
        Ok(())
    }

    /// Waits for the printers. The reader of this process's output can delay this; a signal ends it.
    fn flush(&mut self) -> io::Result<()> {
        self.printers.iter().for_each(Printer::close);
        let give_up = (self.interrupts > 1).then(|| Instant::now() + AFTER_KILL);
        while !self.printers.iter().all(Printer::is_done) && give_up.is_none_or(|at| Instant::now() < at) {
            for event in self.wait(give_up)? {
                match event {
                    Event::Printed(stream) => self.printers[stream].clear_progress(),
                    Event::Signal => {
                        self.on_signals();
                        self.cut_short = true;
                        return Ok(());
                    }
                    Event::Exit(_) | Event::Output(..) => {}
                }
            }
        }
        Ok(())
    }

    fn verdict(self) -> Result<(), LaunchError> {
        if !self.failed.is_empty() {
            return Err(LaunchError::Failed {
                failures: self.failed,
                killed: self.killed,
            });
        }
        let well = |worker: &ChildProcess| matches!(worker.ending(), Some((Ending::Status(0), _)));
        match self.interrupted {
            Some(signal) if self.cut_short || !self.workers.iter().all(well) => {
                Err(LaunchError::Interrupted {
                    signal: signal.as_raw(),
                    killed: self.killed,
                })
            }
            _ => Ok(()),
        }
    }

    /// Forwards the first signal; kills on the second one.
    fn on_signals(&mut self) {
        for signal in self.signals.take() {
            self.interrupts += 1;
            if self.interrupts > 1 {
                self.kill();
                continue;
            }
            if matches!(self.stage, Stage::Running) {
                self.interrupted = Some(signal);
            }
            self.end(signal);
        }
    }

    /// Handles the end of a worker. The first failure ends the world, unless `keep_going` is set; later failures are its
    /// consequences.
    fn on_exit(&mut self, index: usize) -> io::Result<()> {
        let worker = &mut self.workers[index];
        worker.check_exit()?;
        let Some((ending, _)) = worker.ending().filter(|(ending, _)| *ending != Ending::Status(0)) else {
            return Ok(());
        };
        if !matches!(self.stage, Stage::Running) {
            return Ok(());
        }
        let failure = Failure {
            name: worker.name().to_owned(),
            rank: worker.rank(),
            ending,
        };
        if self.keep_going {
            self.report(&failure);
        } else {
            self.end(Signal::TERM);
        }
        self.failed.push(failure);
        Ok(())
    }

    /// Prints the failed worker and the number of workers that continue.
    fn report(&self, failure: &Failure) {
        let rest = match self
            .workers
            .iter()
            .filter(|worker| worker.ending().is_none())
            .count()
        {
            0 => String::new(),
            1 => "; 1 other continues".into(),
            others => format!("; {others} others continue"),
        };
        self.printers[1].print(format!("telegrad: worker {failure}{rest}\n").as_bytes());
    }

    /// Signals the running workers. Processes that an ended worker has left behind may print until its output is closed.
    fn end(&mut self, signal: Signal) {
        for worker in self.workers.iter().filter(|worker| worker.ending().is_none()) {
            worker.signal(signal);
        }
        if matches!(self.stage, Stage::Running) {
            self.stage = Stage::Ending {
                kill_at: Instant::now().checked_add(self.grace),
            };
        }
    }

    fn kill(&mut self) {
        self.workers.iter().for_each(|worker| worker.signal(Signal::KILL));
        self.stage = Stage::Killed {
            leave_at: Instant::now() + AFTER_KILL,
        };
    }

    /// Performs the actions whose time has come.
    fn on_time(&mut self, now: Instant) -> io::Result<()> {
        if let Stage::Ending {
            kill_at: Some(kill_at),
        } = self.stage
            && kill_at <= now
        {
            let running = self.workers.iter().filter(|worker| worker.ending().is_none());
            self.killed = running.map(|worker| worker.name().to_owned()).collect();
            self.kill();
        }
        for index in 0..self.workers.len() {
            if self
                .deadline(&self.workers[index])
                .is_some_and(|deadline| deadline <= now)
            {
                for (printer, lines) in self.printers.iter().zip(self.workers[index].finish()?) {
                    printer.print(&lines);
                }
            }
        }
        Ok(())
    }

    /// The time to stop waiting for a worker: at once if the worker and its output have ended.
    fn deadline(&self, worker: &ChildProcess) -> Option<Instant> {
        let leave_at = match self.stage {
            Stage::Killed { leave_at } => Some(leave_at),
            _ => None,
        };
        let (_, ended) = match worker.ending() {
            _ if worker.is_finished() => return None,
            None => return leave_at,
            Some(ending) => ending,
        };
        let open = |stream: usize| worker.output_fd(stream).is_some();
        if !open(0) && !open(1) {
            Some(ended)
        } else if self.interrupts < 2 && (0..2).any(|i| open(i) && self.printers[i].is_full()) {
            // The reader of this process is slow. Output is kept even after the end of the world.
            None
        } else {
            [ended.checked_add(self.grace), leave_at]
                .into_iter()
                .flatten()
                .min()
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let kill_at = match self.stage {
            Stage::Ending { kill_at } => kill_at,
            _ => None,
        };
        self.workers
            .iter()
            .filter_map(|worker| self.deadline(worker))
            .chain(kill_at)
            .min()
    }

    /// Waits for events until the deadline.
    fn wait(&self, until: Option<Instant>) -> io::Result<Vec<Event>> {
        let mut fds = Vec::new();
        let mut events = Vec::new();
        let mut watch = |fd, event| {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            events.push(event);
        };
        self.signals.fds().for_each(|fd| watch(fd, Event::Signal));
        for (stream, printer) in self.printers.iter().enumerate() {
            watch(printer.progress_fd(), Event::Printed(stream));
            // Workers whose output is not read block.
            let readable = self.workers.iter().enumerate().filter(|_| !printer.is_full());
            for (index, worker) in readable {
                worker
                    .output_fd(stream)
                    .into_iter()
                    .for_each(|fd| watch(fd, Event::Output(index, stream)));
            }
        }
        for (index, worker) in self.workers.iter().enumerate() {
            worker
                .exit_fd()
                .into_iter()
                .for_each(|fd| watch(fd, Event::Exit(index)));
        }
        let left = until.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = fds.iter().map(|fd| !fd.revents().is_empty());
        Ok(events
            .into_iter()
            .zip(ready)
            .filter_map(|(event, ready)| ready.then_some(event))
            .collect())
    }
}
