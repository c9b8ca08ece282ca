//! All members of a world, driven from outside of it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use telegrad_cli::{Link, Process};

use super::member::{Member, Report, Stage};
use crate::Error;

/// The members of a world: processes, or threads if they are linked in memory.
pub(crate) struct Members {
    drivers: Vec<Driver>,
    link: Link,
}

/// Sends stages to one member and receives its reports.
enum Driver {
    Process {
        process: Process,
        to: ChildStdin,
        from: BufReader<ChildStdout>,
    },
    Thread {
        thread: JoinHandle<()>,
        to: Sender<Stage>,
        from: Receiver<Result<Report, String>>,
    },
}

impl Members {
    /// Starts members that wait for the command to join.
    pub(crate) fn start(link: Link, size: u32) -> Result<Self, Error> {
        let drivers = (0..size).map(|rank| Driver::start(rank, size, link));
        let mut members = Self {
            drivers: drivers.collect::<Result<_, _>>()?,
            link,
        };
        // Waits until all have started, so that no later stage includes it.
        members.run_all(&Stage::Look)?;
        Ok(members)
    }

    /// Lets all members join a new world.
    pub(crate) fn join(&mut self) -> Result<Vec<Report>, Error> {
        static WORLDS: AtomicU64 = AtomicU64::new(0);
        let address = if self.link == Link::Mem {
            format!("mem://telegrad-lifecycle-{}", WORLDS.fetch_add(1, SeqCst))
        } else {
            // Rank 0 listens there while it joins, so the port is free for a moment.
            format!("tcp://{}", TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
        };
        self.run_all(&Stage::Join(address))
    }

    /// Runs a stage on all members and waits for their reports, by rank.
    pub(crate) fn run_all(&mut self, stage: &Stage) -> Result<Vec<Report>, Error> {
        for driver in &mut self.drivers {
            driver.send(stage)?;
        }
        self.drivers.iter_mut().map(Driver::receive).collect()
    }

    /// Lets all members leave, and waits for their end.
    pub(crate) fn end(mut self) -> Result<Vec<Report>, Error> {
        let reports = self.run_all(&Stage::End)?;
        self.drivers.into_iter().try_for_each(Driver::end)?;
        Ok(reports)
    }
}

impl Driver {
    fn start(rank: u32, size: u32, link: Link) -> Result<Self, Error> {
        let name = format!("w{rank}");
        if link != Link::Mem {
            let (rank, size) = (rank.to_string(), size.to_string());
            let member = ["member", "--name", &name, "--rank", &rank];
            let world = ["--size", &size, "--transport", link.name()];
            let (process, to, from) = Process::start_piped(&name, &[&member[..], &world].concat())?;
            let from = BufReader::new(from);
            return Ok(Self::Process { process, to, from });
        }
        let (to, stages) = channel::<Stage>();
        let (reports, from) = channel();
        let thread = std::thread::spawn(move || {
            let mut member = Member::new(&name, rank, size, link);
            for stage in stages {
                let report = member.run(&stage).map_err(|error| error.to_string());
                if reports.send(report).is_err() {
                    return;
                }
            }
        });
        Ok(Self::Thread { thread, to, from })
    }

    fn send(&mut self, stage: &Stage) -> Result<(), Error> {
        match self {
            Self::Process { to, .. } => Ok(writeln!(to, "{}", stage.line())?),
            Self::Thread { to, .. } => Ok(to.send(stage.clone())?),
        }
    }

    /// Every stage has time limits of its own, so a report or the end of the member always comes.
    fn receive(&mut self) -> Result<Report, Error> {
        match self {
            Self::Process { from, .. } => {
                let mut line = String::new();
                from.read_line(&mut line)?;
                Ok(Report::from_line(&line).ok_or("a member of the world failed; its error is above")?)
            }
            Self::Thread { from, .. } => Ok(from.recv()??),
        }
    }

    fn end(self) -> Result<(), Error> {
        match self {
            Self::Process { mut process, to, .. } => {
                drop(to);
                process.wait()
            }
            Self::Thread { thread, to, .. } => {
                drop(to);
                Ok(thread.join().map_err(|_| "the thread of a member panicked")?)
            }
        }
    }
}
