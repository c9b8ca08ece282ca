//! Waits for everything that can happen to a world at once, on one thread, and ends it in order.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;

use super::printer::Printer;
use super::signals::Signals;
use super::worker::Worker;
use super::{Ending, Failure, Launch, LaunchError};

/// How long a process may take to disappear after `SIGKILL`, and its output to arrive. Only one that
/// is stuck inside the system needs longer, and that one may stay for ever.
const AFTER_KILL: Duration = Duration::from_secs(2);

/// A world that runs.
pub(super) struct Supervisor {
    workers: Vec<Worker>,
    /// Standard output and standard error.
    printers: [Printer; 2],
    signals: Signals,
    grace: Duration,
    /// Whether the others go on when a worker fails.
    keep_going: bool,
    stage: Stage,
    /// The workers that failed without a request to end, in the order of their ends.
    failed: Vec<Failure>,
    /// The first signal that the launcher got while the world was running.
    interrupted: Option<Signal>,
    /// How many signals the launcher got.
    interrupts: usize,
    /// A signal came while the last output was written.
    cut_short: bool,
    /// Who was killed because the grace period was over.
    stubborn: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Running,
    /// Everybody was asked to end; no time means an endless grace period.
    Ending {
        kill_at: Option<Instant>,
    },
    /// Everybody was killed.
    Killed {
        leave_at: Instant,
    },
}

/// What there is to do, by the numbers of worker and stream.
#[derive(Debug)]
enum Event {
    Signal,
    Printed(usize),
    Exit(usize),
    Output(usize, usize),
}

impl Supervisor {
    pub(super) fn new(
        workers: Vec<Worker>,
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
            stubborn: Vec::new(),
        }
    }

    /// Returns when all workers are gone and what they printed is written.
    pub(super) fn run(mut self) -> Result<(), LaunchError> {
        self.watch().map_err(LaunchError::System)?;
        self.flush().map_err(LaunchError::System)?;
        self.verdict()
    }

    fn watch(&mut self) -> io::Result<()> {
        while !self.workers.iter().all(Worker::is_gone) {
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

    /// Waits for the printers. Only the reader of our own output can make this long, and a signal
    /// ends it.
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
                stubborn: self.stubborn,
            });
        }
        let well = |worker: &Worker| matches!(worker.ending(), Some((Ending::Status(0), _)));
        match self.interrupted {
            Some(signal) if self.cut_short || !self.workers.iter().all(well) => {
                Err(LaunchError::Interrupted {
                    signal: signal.as_raw(),
                    stubborn: self.stubborn,
                })
            }
            _ => Ok(()),
        }
    }

    /// The first signal is passed on, the second one kills.
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

    /// Notes the end of a worker. A failure ends the world, unless that is to keep going; a failure after that is a
    /// consequence.
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

    /// Prints which worker failed, and how many go on without it.
    fn report(&self, failure: &Failure) {
        let rest = match self
            .workers
            .iter()
            .filter(|worker| worker.ending().is_none())
            .count()
        {
            0 => String::new(),
            1 => "; 1 other goes on".into(),
            others => format!("; {others} others go on"),
        };
        self.printers[1].print(format!("telegrad: worker {failure}{rest}\n").as_bytes());
    }

    /// Asks the workers that run to end. One that has ended may have left processes that still print:
    /// they have until its output is given up.
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

    /// Does what is due.
    fn on_time(&mut self, now: Instant) -> io::Result<()> {
        if let Stage::Ending {
            kill_at: Some(kill_at),
        } = self.stage
            && kill_at <= now
        {
            let running = self.workers.iter().filter(|worker| worker.ending().is_none());
            self.stubborn = running.map(|worker| worker.name().to_owned()).collect();
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

    /// When to stop waiting for a worker: at once when it has ended and its output too.
    fn deadline(&self, worker: &Worker) -> Option<Instant> {
        let leave_at = match self.stage {
            Stage::Killed { leave_at } => Some(leave_at),
            _ => None,
        };
        let (_, ended) = match worker.ending() {
            _ if worker.is_gone() => return None,
            None => return leave_at,
            Some(ending) => ending,
        };
        let open = |stream: usize| worker.output_fd(stream).is_some();
        if !open(0) && !open(1) {
            Some(ended)
        } else if self.interrupts < 2 && (0..2).any(|i| open(i) && self.printers[i].is_full()) {
            // The output is late because our reader is; not even the end of the world drops it.
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

    /// Waits until something happens or the time has come.
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
            // Not reading is what makes the workers wait.
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
