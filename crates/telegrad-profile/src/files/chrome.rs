//! Chrome's trace format, which Perfetto reads too.
//!
//! A process is a worker, a thread a thread. Arrows lead from calls to their executions, and between events of the forward
//! and the backward pass that belong together. Each event has all that is known of it in its arguments, so that the
//! file can be read back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufWriter, Write};

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::rows::lanes;
use crate::profile::Profile;
use crate::worker_trace::WorkerTrace;
use telegrad_trace::{Event, Kind};

/// What viewers do not need and reading back does.
#[derive(Serialize, Deserialize)]
struct About {
    workers: Vec<WorkerTrace>,
    missing: Vec<(String, String)>,
    #[serde(default)]
    world: Option<u64>,
}

impl Profile {
    /// Writes the profile in Chrome's trace format.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_chrome(&self, to: impl Write) -> io::Result<()> {
        // It is written in small pieces, and may well be a file.
        let mut to = BufWriter::new(to);
        let about = About {
            workers: self.workers.clone(),
            missing: self.missing.clone(),
            world: self.world,
        };
        write!(
            to,
            "{{\"displayTimeUnit\":\"ms\",\"telegrad\":{},\"traceEvents\":[",
            json!(about)
        )?;
        let mut is_first = true;
        let mut write = |value: Value| {
            let separator = if std::mem::take(&mut is_first) {
                "\n"
            } else {
                ",\n"
            };
            write!(to, "{separator}{value}")
        };
        for worker in &self.workers {
            let name = json!({ "name": worker.name });
            write(json!({ "ph": "M", "name": "process_name", "pid": worker.rank, "args": name }))?;
            let order = json!({ "sort_index": worker.rank });
            write(json!({ "ph": "M", "name": "process_sort_index", "pid": worker.rank, "args": order }))?;
        }
        let (origin, _) = self.bounds();
        let lanes = lanes(self.events.iter());
        let index = self.index();
        let micros = |time: u64| time.saturating_sub(origin) as f64 / 1e3;
        // Numbers of rows that fit into 32 bits, in the order in which they are to be drawn.
        let mut numbers: BTreeMap<(u32, u64, usize), (usize, &Event)> = BTreeMap::new();
        for (event, lane) in self.events.iter().zip(&lanes) {
            numbers.insert((event.worker, event.thread, *lane), (0, event));
        }
        for (number, ((worker, _, lane), (row, event))) in (1..).zip(&mut numbers) {
            *row = number;
            let name = json!({ "name": self.row_name(event, *lane) });
            write(json!({ "ph": "M", "name": "thread_name", "pid": worker, "tid": number, "args": name }))?;
            let order = json!({ "sort_index": number });
            write(
                json!({ "ph": "M", "name": "thread_sort_index", "pid": worker, "tid": number, "args": order }),
            )?;
        }
        let mut rows = rustc_hash::FxHashMap::default();
        for (event, lane) in self.events.iter().zip(&lanes) {
            let row = numbers[&(event.worker, event.thread, *lane)].0;
            rows.insert(event.span, row);
            write(json!({
                "ph": "X",
                "name": shown_name(event),
                "cat": event.kind.name(),
                "pid": event.worker,
                "tid": row,
                "ts": micros(event.start),
                "dur": event.duration() as f64 / 1e3,
                "args": event,
            }))?;
        }
        // An end of an arrow belongs to the slice around it. Perfetto takes the last one to begin in that row, even when it is
        // over already, and needs numbers to tell arrows apart; both ends are at starts, so that none ends before it begins.
        let mut arrows = 0_u64;
        let mut arrow = |name: &str, from: &Event, to: &Event| {
            arrows += 1;
            [("s", from), ("f", to)].into_iter().try_for_each(|(ph, event)| {
                write(json!({
                    "ph": ph,
                    "bp": "e",
                    "id": arrows,
                    "name": name,
                    "cat": name,
                    "pid": event.worker,
                    "tid": rows[&event.span],
                    "ts": micros(event.start),
                }))
            })
        };
        let mut linked: rustc_hash::FxHashMap<u64, &Event> = rustc_hash::FxHashMap::default();
        for event in &self.events {
            if event.as_call().is_some()
                && let Some(execution) = index.execution(event)
            {
                arrow("call", event, execution)?;
            }
            if event.link != 0
                && let Some(earlier) = linked.insert(event.link, event)
            {
                arrow("backward", earlier, event)?;
            }
        }
        writeln!(to, "\n]}}")?;
        to.flush()
    }

    /// Reads what [`write_chrome`](Self::write_chrome) has written.
    pub(crate) fn from_chrome(file: &[u8]) -> Result<Self, String> {
        if file.trim_ascii_start().starts_with(b"[") {
            return Err("it was not written by telegrad: it is a list, and says nothing of workers".into());
        }
        let file: Chrome = serde_json::from_slice(file).map_err(|error| error.to_string())?;
        let about = file.telegrad.ok_or("it was not written by telegrad")?;
        let events = file.events.ok_or("it has no events")?.0;
        Ok(Self {
            world: about.world,
            ..Self::of(events, about.workers, about.missing)
        })
    }
}

/// A file, as far as it is read.
#[derive(Deserialize)]
struct Chrome {
    telegrad: Option<About>,
    #[serde(rename = "traceEvents")]
    events: Option<Events>,
}

/// The events among the entries of a file. Each is read as it comes by: there may be millions.
struct Events(Vec<Event>);

impl<'de> Deserialize<'de> for Events {
    fn deserialize<D: Deserializer<'de>>(entries: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Events;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of events")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Events, A::Error> {
                let mut events = Vec::new();
                while let Some(entry) = entries.next_element::<Entry<'_>>()? {
                    if let Some(args) = entry.args
                        && entry.ph == "X"
                    {
                        let event = serde_json::from_str(args.get());
                        events.push(event.map_err(|error| {
                            de::Error::custom(format!("an event makes no sense: {error}"))
                        })?);
                    }
                }
                Ok(Events(events))
            }
        }

        entries.deserialize_seq(Entries)
    }
}

/// An entry, as far as it is read. What other programs write again may have any order, and other ways to write the same text.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow, default)]
    ph: Cow<'a, str>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

fn shown_name(event: &Event) -> String {
    match &event.kind {
        Kind::Call(call) => format!("{} {}", call.verb, event.name),
        _ => event.name.clone().into_owned(),
    }
}
