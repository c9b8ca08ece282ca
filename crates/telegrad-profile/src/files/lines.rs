//! JSON, a line for each event.

use std::io::{self, BufRead, BufWriter, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use telegrad_wire::Rank;

use crate::profile::Profile;
use telegrad_trace::{Collected, Event, SinkLine};

use crate::worker_trace::WorkerTrace;

/// The lines of a profile that are no events.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    /// The first line.
    Profile { profile: About },
    /// A worker.
    Worker(WorkerTrace),
}

/// What a profile has that is of no worker and no event.
#[derive(Serialize, Deserialize)]
struct About {
    world: Option<u64>,
    missing: Vec<(String, String)>,
    /// How many lines of events follow.
    events: usize,
}

impl Profile {
    /// Writes the profile as lines of JSON: one of the whole, then the workers, then the events.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_lines(&self, to: impl Write) -> io::Result<()> {
        // It is written in small pieces, and may well be a file.
        let mut to = BufWriter::new(to);
        let profile = About {
            world: self.world,
            missing: self.missing.clone(),
            events: self.events.len(),
        };
        serde_json::to_writer(&mut to, &Line::Profile { profile })?;
        writeln!(to)?;
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
        /// Why it is not all that the worker did.
        incomplete: Option<String>,
    },
    Profile(Profile),
}

/// Reads lines. What is cut short at the end, by a process that was killed, is left out, and said to be.
pub(crate) fn read(from: impl BufRead) -> Result<Content, String> {
    let mut of = None;
    let mut about = None;
    let mut workers = Vec::new();
    let mut events: Vec<Event> = Vec::new();
    let mut threads = None;
    let mut stopped = None;
    let mut broken: Option<String> = None;
    for (number, line) in from.split(b'\n').enumerate() {
        let line = line.map_err(|error| error.to_string())?;
        if let Some(broken) = broken {
            return Err(broken);
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        // Nearly all of them are: none of the others is taken for one.
        if let Ok(event) = serde_json::from_slice(&line) {
            events.push(event);
            continue;
        }
        // In this order: a worker has threads too.
        if let Ok(line) = serde_json::from_slice(&line) {
            match line {
                Line::Profile { profile } => about = Some(profile),
                Line::Worker(worker) => workers.push(worker),
            }
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(SinkLine::Worker {
                rank,
                of: name,
                world,
            }) => of = Some((world, rank, name)),
            Ok(SinkLine::Threads { threads: names }) => threads = Some(names),
            Ok(SinkLine::Stopped { stopped: why }) => stopped = Some(why),
            Err(_) => {
                broken = Some(format!(
                    "line {} makes no sense: {}",
                    number + 1,
                    what_is_wrong(&line)
                ))
            }
        }
    }
    if let Some((world, rank, name)) = of {
        let incomplete = match stopped {
            Some(why) => Some(format!("it could write no more: {why}")),
            None if threads.is_none() => {
                Some("its recording breaks off: it was killed, or is not done yet".into())
            }
            None => None,
        };
        let collected = Collected {
            events,
            threads: threads.unwrap_or_default(),
            ..Collected::default()
        };
        return Ok(Content::Part {
            world,
            part: (rank, name, collected),
            incomplete,
        });
    }
    if about.is_none() && workers.is_empty() {
        let why = if events.is_empty() {
            "it is empty"
        } else {
            "it has events, but not the lines before them that say which workers they are of"
        };
        return Err(broken.unwrap_or_else(|| why.into()));
    }
    // Somebody may have picked out lines. Then there is nothing to say about the others.
    let (world, mut missing, count) = match about {
        Some(about) => (about.world, about.missing, about.events),
        None => (None, Vec::new(), events.len()),
    };
    if events.len() < count {
        let why = format!("of {count} events, {} are in the file", events.len());
        missing.push(("everybody".into(), why));
    }
    Ok(Content::Profile(Profile {
        world,
        ..Profile::of(events, workers, missing)
    }))
}

/// Why a line is neither an event nor anything else that is in a recording.
fn what_is_wrong(line: &[u8]) -> String {
    let value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => return error.to_string(),
    };
    let wrong = |what: &str, error: serde_json::Error| format!("of {what}, {error}");
    // What it was meant to be is seen by what only that has.
    let found = if value.get("span").is_some() {
        Event::deserialize(&value)
            .err()
            .map(|error| wrong("an event", error))
    } else if value.get("ahead").is_some() {
        WorkerTrace::deserialize(&value)
            .err()
            .map(|error| wrong("a worker", error))
    } else if let Some(about) = value.get("profile") {
        About::deserialize(about)
            .err()
            .map(|error| wrong("a profile", error))
    } else {
        None
    };
    found.unwrap_or_else(|| "nothing in a recording looks like this".into())
}
