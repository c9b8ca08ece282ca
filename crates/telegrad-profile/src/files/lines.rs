//! Recordings as lines of JSON, one for each event.

use std::io::{self, BufRead, BufWriter, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use telegrad_wire::Rank;

use crate::profile::Profile;
use telegrad_trace::{Collected, Event, SinkLine};

use crate::worker_trace::WorkerTrace;

/// A line of a profile other than an event.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    /// The first line.
    Profile { profile: ProfileHeader },
    /// A worker.
    Worker(WorkerTrace),
}

/// The part of a profile that belongs to no worker and no event.
#[derive(Serialize, Deserialize)]
struct ProfileHeader {
    world: Option<u64>,
    missing: Vec<(String, String)>,
    /// The number of lines with events.
    events: usize,
}

impl Profile {
    /// Writes the profile as lines of JSON: a header, the workers, the events.
    ///
    /// # Errors
    /// When writing fails.
    pub fn write_lines(&self, to: impl Write) -> io::Result<()> {
        // Many small writes follow.
        let mut to = BufWriter::new(to);
        let profile = ProfileHeader {
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

/// The content of a file.
pub(crate) enum FileContent {
    /// The events of one worker.
    Part {
        world: u64,
        part: (Rank, String, Collected),
        /// Why events are missing, if they are.
        incomplete: Option<String>,
    },
    /// A profile.
    Profile(Profile),
}

/// Reads lines. A last line that a killed process left incomplete is skipped and reported.
pub(crate) fn read(from: impl BufRead) -> Result<FileContent, String> {
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
        // Events first: nearly all lines are, and no other line parses as one.
        if let Ok(event) = serde_json::from_slice(&line) {
            events.push(event);
            continue;
        }
        // Before `SinkLine`, because a worker of a profile has `threads` too.
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
            Err(_) => broken = Some(format!("line {} is invalid: {}", number + 1, line_error(&line))),
        }
    }
    if let Some((world, rank, name)) = of {
        let incomplete = match stopped {
            Some(why) => Some(format!("its recording stopped: {why}")),
            None if threads.is_none() => {
                Some("its recording is incomplete: the worker was killed, or is still running".into())
            }
            None => None,
        };
        let collected = Collected {
            events,
            threads: threads.unwrap_or_default(),
            ..Collected::default()
        };
        return Ok(FileContent::Part {
            world,
            part: (rank, name, collected),
            incomplete,
        });
    }
    if about.is_none() && workers.is_empty() {
        let why = if events.is_empty() {
            "it is empty"
        } else {
            "it has events without the lines that name their workers"
        };
        return Err(broken.unwrap_or_else(|| why.into()));
    }
    // Without a header, for instance in selected lines, the number of events is unknown.
    let (world, mut missing, count) = match about {
        Some(about) => (about.world, about.missing, about.events),
        None => (None, Vec::new(), events.len()),
    };
    if events.len() < count {
        let why = format!("the file has {} of {count} events", events.len());
        missing.push(("all workers".into(), why));
    }
    Ok(FileContent::Profile(Profile {
        world,
        ..Profile::from_events(events, workers, missing)
    }))
}

/// Returns why a line is invalid.
fn line_error(line: &[u8]) -> String {
    let value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => return error.to_string(),
    };
    let in_line_of = |what: &str, error: serde_json::Error| format!("in {what}, {error}");
    // The kind of line is recognised by a field that only this kind has.
    let found = if value.get("span").is_some() {
        Event::deserialize(&value)
            .err()
            .map(|error| in_line_of("an event", error))
    } else if value.get("ahead").is_some() {
        WorkerTrace::deserialize(&value)
            .err()
            .map(|error| in_line_of("a worker", error))
    } else if let Some(about) = value.get("profile") {
        ProfileHeader::deserialize(about)
            .err()
            .map(|error| in_line_of("a profile", error))
    } else {
        None
    };
    found.unwrap_or_else(|| "it is no line of a recording".into())
}
