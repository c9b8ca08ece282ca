//! One member of a world, which does each stage when it is told to.

use std::io::{BufRead, Write};
use std::time::Duration;

use serde_json::{Value, json};
use telegrad::prelude::*;

use super::usage;
use crate::Error;
use crate::bench::calls::nop;
use crate::peer::Place;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing; say how things are.
    Look,
    /// Join the world that meets at this address.
    Join(String),
    /// Call everybody else, one after the other.
    Mesh,
    /// So many times: call everybody else at once, and wait for all answers.
    Calls(usize),
    /// Nothing, for so many milliseconds.
    Idle(u64),
    /// Leave the world.
    End,
}

impl Stage {
    /// As a line for a process.
    pub(super) fn line(&self) -> String {
        match self {
            Self::Look => "look".into(),
            Self::Join(address) => format!("join {address}"),
            Self::Mesh => "mesh".into(),
            Self::Calls(rounds) => format!("calls {rounds}"),
            Self::Idle(millis) => format!("idle {millis}"),
            Self::End => "end".into(),
        }
    }

    fn of_line(line: &str) -> Result<Self, Error> {
        let (verb, what) = line.split_once(' ').unwrap_or((line, ""));
        Ok(match verb {
            "look" => Self::Look,
            "join" => Self::Join(what.into()),
            "mesh" => Self::Mesh,
            "calls" => Self::Calls(what.parse()?),
            "idle" => Self::Idle(what.parse()?),
            "end" => Self::End,
            _ => return Err(format!("`{line}` is no stage of a member").into()),
        })
    }
}

/// How a stage went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// When it began and when it was done, on the clock that all processes share, in nanoseconds.
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// What the process computed in the meantime, in nanoseconds.
    pub(crate) cpu: u64,
    /// Resident memory of the process after it, in bytes.
    pub(crate) rss: u64,
    /// Threads of the process after it.
    pub(crate) threads: u64,
}

impl Report {
    fn line(&self) -> String {
        let Self {
            from,
            to,
            cpu,
            rss,
            threads,
        } = self;
        json!({ "from": from, "to": to, "cpu": cpu, "rss": rss, "threads": threads }).to_string()
    }

    pub(super) fn of_line(line: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(line).ok()?;
        let number = |key: &str| line[key].as_u64();
        Some(Self {
            from: number("from")?,
            to: number("to")?,
            cpu: number("cpu")?,
            rss: number("rss")?,
            threads: number("threads")?,
        })
    }
}

/// A member that has not joined yet.
pub(super) struct Member {
    name: String,
    rank: u32,
    size: u32,
    transport: Transport,
    world: Option<World>,
}

impl Member {
    pub(super) fn new(name: &str, rank: u32, size: u32, transport: Transport) -> Self {
        Self {
            name: name.into(),
            rank,
            size,
            transport,
            world: None,
        }
    }

    /// Does a stage.
    pub(super) fn go_through(&mut self, stage: &Stage) -> Result<Report, Error> {
        let (cpu, from) = (usage::cpu(), usage::now());
        match stage {
            Stage::Look => {}
            Stage::Join(address) => {
                let place = Place::new(address, self.size, self.transport);
                self.world = Some(place.join(&self.name, self.rank, None)?);
            }
            Stage::Mesh => {
                for other in self.others() {
                    self.world()?.rpc_sync(other, nop, (0,))?;
                }
            }
            Stage::Calls(rounds) => {
                let world = self.world()?;
                for _ in 0..*rounds {
                    let calls: Result<Vec<_>> = self
                        .others()
                        .map(|other| world.rpc_async(other, nop, (0,)))
                        .collect();
                    join_all(calls?).wait()?;
                }
            }
            Stage::Idle(millis) => std::thread::sleep(Duration::from_millis(*millis)),
            Stage::End => self.world()?.shutdown()?,
        }
        let (to, cpu) = (usage::now(), usage::cpu() - cpu);
        let (rss, threads) = usage::memory()?;
        Ok(Report {
            from,
            to,
            cpu,
            rss,
            threads,
        })
    }

    fn world(&self) -> Result<&World, Error> {
        Ok(self.world.as_ref().ok_or("the member has not joined yet")?)
    }

    /// Everybody else, from the next one on, so that not all call the same one first.
    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |step| (rank + step) % size)
    }
}

/// A member as a process of its own: stages on standard input, reports on standard output.
pub(crate) fn serve(name: &str, rank: u32, size: u32, transport: Transport) -> Result<(), Error> {
    let mut member = Member::new(name, rank, size, transport);
    let mut output = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let report = member.go_through(&Stage::of_line(&line?)?)?;
        writeln!(output, "{}", report.line())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_and_reports_are_the_same_after_a_pipe() {
        let address = "tcp://127.0.0.1:1".to_owned();
        let stages = [
            Stage::Look,
            Stage::Join(address),
            Stage::Mesh,
            Stage::Calls(3),
            Stage::Idle(9),
            Stage::End,
        ];
        for stage in stages {
            assert_eq!(Stage::of_line(&stage.line()).unwrap(), stage);
        }
        assert!(Stage::of_line("dance").is_err());
        let report = Report {
            from: 1,
            to: 2,
            cpu: 3,
            rss: 4,
            threads: 5,
        };
        assert_eq!(Report::of_line(&report.line()), Some(report));
        assert_eq!(Report::of_line("{}"), None);
    }
}
