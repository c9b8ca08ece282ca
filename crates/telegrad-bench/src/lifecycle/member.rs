//! One member of a world, which runs stages on demand.

use std::io::{BufRead, Write};
use std::time::Duration;

use serde_json::{Value, json};
use telegrad::prelude::*;
use telegrad_cli::{Link, Meeting};

use super::usage;
use crate::Error;
use crate::calls::nop;

/// A step in the lifecycle of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Report memory and threads.
    Look,
    /// Join the world at this address.
    Join(String),
    /// Call each other member, one after the other.
    Mesh,
    /// Repeatedly call all other members at once and wait for the replies.
    Calls(usize),
    /// Sleep for so many milliseconds.
    Idle(u64),
    /// Leave the world.
    End,
}

impl Stage {
    /// The command line for a process.
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

    fn from_line(line: &str) -> Result<Self, Error> {
        let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
        Ok(match verb {
            "look" => Self::Look,
            "join" => Self::Join(argument.into()),
            "mesh" => Self::Mesh,
            "calls" => Self::Calls(argument.parse()?),
            "idle" => Self::Idle(argument.parse()?),
            "end" => Self::End,
            _ => return Err(format!("`{line}` is not a stage of a member").into()),
        })
    }
}

/// The report of a member after a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Start on the clock that all processes share, in nanoseconds.
    pub(crate) from: u64,
    /// End on the same clock.
    pub(crate) to: u64,
    /// Processor time of the process during the stage, in nanoseconds.
    pub(crate) cpu: u64,
    /// Resident memory of the process afterwards, in bytes.
    pub(crate) rss: u64,
    /// Threads of the process afterwards.
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

    pub(super) fn from_line(line: &str) -> Option<Self> {
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

/// A member of a world; it joins in [`Stage::Join`].
pub(super) struct Member {
    name: String,
    rank: u32,
    size: u32,
    link: Link,
    world: Option<World>,
}

impl Member {
    pub(super) fn new(name: &str, rank: u32, size: u32, link: Link) -> Self {
        Self {
            name: name.into(),
            rank,
            size,
            link,
            world: None,
        }
    }

    /// Runs a stage.
    pub(super) fn run(&mut self, stage: &Stage) -> Result<Report, Error> {
        let (cpu, from) = (usage::cpu(), usage::now());
        match stage {
            Stage::Look => {}
            Stage::Join(address) => {
                let meeting = Meeting::new(address, self.size, self.link);
                self.world = Some(meeting.join(&self.name, self.rank, None)?);
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

    /// Ranks of the other members, from the next one on, so that not all call the same one first.
    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |step| (rank + step) % size)
    }
}

/// Options of the hidden subcommand `member`.
#[derive(Debug, clap::Args)]
pub(crate) struct MemberArgs {
    /// Name of this member
    #[arg(long)]
    name: String,

    /// Rank of this member
    #[arg(long)]
    rank: u32,

    /// Number of members
    #[arg(long)]
    size: u32,

    /// Kind of links
    #[arg(long)]
    transport: Link,
}

/// Runs a member in this process: stages on standard input, reports on standard output.
pub(crate) fn serve(args: &MemberArgs) -> Result<(), Error> {
    let mut member = Member::new(&args.name, args.rank, args.size, args.transport);
    let mut output = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let report = member.run(&Stage::from_line(&line?)?)?;
        writeln!(output, "{}", report.line())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_and_reports_survive_a_round_trip_as_lines() {
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
            assert_eq!(Stage::from_line(&stage.line()).unwrap(), stage);
        }
        assert!(Stage::from_line("dance").is_err());
        let report = Report {
            from: 1,
            to: 2,
            cpu: 3,
            rss: 4,
            threads: 5,
        };
        assert_eq!(Report::from_line(&report.line()), Some(report));
        assert_eq!(Report::from_line("{}"), None);
    }
}
