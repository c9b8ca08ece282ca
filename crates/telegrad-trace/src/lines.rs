//! JSON, a line for each event.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use telegrad_wire::Rank;

use crate::event::Event;
use crate::profile::{Profile, Worker};
use crate::recorder::Collected;

/// One line of a file.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Line {
    /// The first line of what one worker has recorded.
    Of {
        /// Its number.
        rank: Rank,
        /// Its name.
        of: String,
        /// Its world.
        world: u64,
    },
    /// A worker of a profile.
    Worker(Worker),
    /// An event.
    Event(Event),
    /// The last line, if it came to that. After the others: a worker has threads too.
    Threads { threads: Vec<(u64, String)> },
}

impl Profile {
    /// Writes the profile as lines of JSON: the workers first, then the events.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_lines(&self, mut to: impl Write) -> io::Result<()> {
        for worker in &self.workers {
            serde_json::to_writer(&mut to, &worker)?;
            writeln!(to)?;
        }
        for event in &self.events {
            serde_json::to_writer(&mut to, &event)?;
            writeln!(to)?;
        }
        to.flush()
    }
}

/// What a file has: what one worker of a world has recorded, or a profile.
pub(crate) enum Content {
    Part {
        world: u64,
        part: (Rank, String, Collected),
    },
    Profile(Profile),
}

/// Reads lines. One that is cut short at the end, by a process that was killed, is left out.
pub(crate) fn read(from: impl BufRead) -> Result<Content, String> {
    let mut part = None;
    let mut workers = Vec::new();
    let mut events = Vec::new();
    let mut broken: Option<String> = None;
    for (number, line) in from.split(b'\n').enumerate() {
        let line = line.map_err(|error| error.to_string())?;
        if let Some(broken) = broken {
            return Err(broken);
        }
        match serde_json::from_slice(&line) {
            Ok(Line::Of { rank, of, world }) => part = Some((world, rank, of, Vec::new())),
            Ok(Line::Threads { threads: names }) => {
                if let Some((.., threads)) = &mut part {
                    *threads = names;
                }
            }
            Ok(Line::Worker(worker)) => workers.push(worker),
            Ok(Line::Event(event)) => events.push(event),
            Err(error) => broken = Some(format!("line {} makes no sense: {error}", number + 1)),
        }
    }
    match part {
        Some((world, rank, name, threads)) => Ok(Content::Part {
            world,
            part: (
                rank,
                name,
                Collected {
                    events,
                    threads,
                    ..Collected::default()
                },
            ),
        }),
        None if workers.is_empty() => Err(broken.unwrap_or_else(|| "it is empty".into())),
        None => Ok(Content::Profile(Profile::of(events, workers, Vec::new()))),
    }
}
