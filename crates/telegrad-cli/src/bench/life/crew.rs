//! All members of a world, which are told what to do from outside of it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use telegrad::Transport;

use super::member::{Member, Report, Stage};
use crate::Error;
use crate::peer::{Process, link_name};

/// The members: each a process, or each a thread if they are linked in memory.
pub(crate) struct Crew {
    hands: Vec<Hand>,
    transport: Transport,
}

enum Hand {
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

impl Crew {
    /// Members that wait to be told to join.
    pub(crate) fn start(transport: Transport, size: u32) -> Result<Self, Error> {
        let hands = (0..size).map(|rank| Hand::start(rank, size, transport));
        let mut crew = Self {
            hands: hands.collect::<Result<_, _>>()?,
            transport,
        };
        // Whoever answers has been started: that is not part of anything that follows.
        crew.all(&Stage::Look)?;
        Ok(crew)
    }

    /// Has everybody join a new world.
    pub(crate) fn join(&mut self) -> Result<Vec<Report>, Error> {
        static WORLDS: AtomicU64 = AtomicU64::new(0);
        let address = if self.transport == Transport::Mem {
            format!("mem://telegrad-life-{}", WORLDS.fetch_add(1, SeqCst))
        } else {
            // Rank 0 listens there as part of its joining, so for a moment the port is nobody's.
            format!("tcp://{}", TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
        };
        self.all(&Stage::Join(address))
    }

    /// Has everybody do this, and waits until all have, by rank.
    pub(crate) fn all(&mut self, stage: &Stage) -> Result<Vec<Report>, Error> {
        for hand in &mut self.hands {
            hand.tell(stage)?;
        }
        self.hands.iter_mut().map(Hand::hear).collect()
    }

    /// Has everybody leave.
    pub(crate) fn end(mut self) -> Result<Vec<Report>, Error> {
        let reports = self.all(&Stage::End)?;
        self.hands.into_iter().try_for_each(Hand::end)?;
        Ok(reports)
    }
}

impl Hand {
    fn start(rank: u32, size: u32, transport: Transport) -> Result<Self, Error> {
        let name = format!("w{rank}");
        if transport != Transport::Mem {
            let (rank, size) = (rank.to_string(), size.to_string());
            let place = [
                "--rank",
                &rank,
                "--size",
                &size,
                "--transport",
                link_name(transport),
            ];
            let args = [&["--life", "--name", &name], &place[..]].concat();
            let (process, to, from) = Process::start_piped(&args)?;
            let from = BufReader::new(from);
            return Ok(Self::Process { process, to, from });
        }
        let (to, stages) = channel::<Stage>();
        let (reports, from) = channel();
        let thread = std::thread::spawn(move || {
            let mut member = Member::new(&name, rank, size, transport);
            for stage in stages {
                let report = member.go_through(&stage).map_err(|error| error.to_string());
                if reports.send(report).is_err() {
                    return;
                }
            }
        });
        Ok(Self::Thread { thread, to, from })
    }

    fn tell(&mut self, stage: &Stage) -> Result<(), Error> {
        match self {
            Self::Process { to, .. } => Ok(writeln!(to, "{}", stage.line())?),
            Self::Thread { to, .. } => Ok(to.send(stage.clone())?),
        }
    }

    /// Every stage has time limits of its own, so an answer comes, or the end of the member.
    fn hear(&mut self) -> Result<Report, Error> {
        match self {
            Self::Process { from, .. } => {
                let mut line = String::new();
                from.read_line(&mut line)?;
                Ok(Report::of_line(&line).ok_or("a member of the world has failed")?)
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
                Ok(thread.join().map_err(|_| "a member of the world panicked")?)
            }
        }
    }
}
