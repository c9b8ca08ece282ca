//! Chrome's trace format, which Perfetto reads too.
//!
//! Workers are processes, and rows are threads. Arrows lead from calls to executions, and between linked events of the forward
//! and the backward pass. The arguments of each slice contain the whole event, so that the file can be read back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufWriter, Write};

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::rows::assign_rows;
use crate::profile::Profile;
use crate::worker_trace::WorkerTrace;
use telegrad_trace::{Event, Kind};

/// The part of a profile that viewers do not need, but readers do.
#[derive(Serialize, Deserialize)]
struct Metadata {
    workers: Vec<WorkerTrace>,
    missing: Vec<(String, String)>,
    #[serde(default)]
    world: Option<u64>,
}

impl Profile {
    /// Writes the profile in Chrome's trace format.
    ///
    /// # Errors
    /// When writing fails.
    pub fn write_chrome(&self, to: impl Write) -> io::Result<()> {
        // Many small writes follow.
        let mut to = BufWriter::new(to);
        let metadata = Metadata {
            workers: self.workers.clone(),
            missing: self.missing.clone(),
            world: self.world,
        };
        write!(
            to,
            "{{\"displayTimeUnit\":\"ms\",\"telegrad\":{},\"traceEvents\":[",
            json!(metadata)
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
        let assigned = assign_rows(self.events.iter());
        let index = self.index();
        let micros = |time: u64| time.saturating_sub(origin) as f64 / 1e3;
        // Thread numbers of viewers have 32 bits, and determine the order of rows.
        let mut numbers: BTreeMap<(u32, u64, usize), (usize, &Event)> = BTreeMap::new();
        for (event, row_of_thread) in self.events.iter().zip(&assigned) {
            numbers.insert((event.worker, event.thread, *row_of_thread), (0, event));
        }
        for (number, ((worker, _, row_of_thread), (row, event))) in (1..).zip(&mut numbers) {
            *row = number;
            let name = json!({ "name": self.row_name(event, *row_of_thread) });
            write(json!({ "ph": "M", "name": "thread_name", "pid": worker, "tid": number, "args": name }))?;
            let order = json!({ "sort_index": number });
            write(
                json!({ "ph": "M", "name": "thread_sort_index", "pid": worker, "tid": number, "args": order }),
            )?;
        }
        let mut rows = rustc_hash::FxHashMap::default();
        for (event, row_of_thread) in self.events.iter().zip(&assigned) {
            let row = numbers[&(event.worker, event.thread, *row_of_thread)].0;
            rows.insert(event.span, row);
            write(json!({
                "ph": "X",
                "name": slice_name(event),
                "cat": event.kind.name(),
                "pid": event.worker,
                "tid": row,
                "ts": micros(event.start),
                "dur": event.duration() as f64 / 1e3,
                "args": event,
            }))?;
        }
        // An arrow is bound to the slice around each end. Perfetto takes the last slice that began in the row, even if it has
        // ended, and identifies arrows by number. Both ends are at starts of slices, so that no arrow points backwards.
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

    /// Reads a profile that [`write_chrome`](Self::write_chrome) has written.
    pub(crate) fn from_chrome(file: &[u8]) -> Result<Self, String> {
        if file.trim_ascii_start().starts_with(b"[") {
            return Err("it was not written by telegrad: it is a list without metadata of workers".into());
        }
        let file: Chrome = serde_json::from_slice(file).map_err(|error| error.to_string())?;
        let metadata = file.telegrad.ok_or("it was not written by telegrad")?;
        let events = file.events.ok_or("it has no events")?.0;
        Ok(Self {
            world: metadata.world,
            ..Self::from_events(events, metadata.workers, metadata.missing)
        })
    }
}

/// The parts of a file that are read.
#[derive(Deserialize)]
struct Chrome {
    telegrad: Option<Metadata>,
    #[serde(rename = "traceEvents")]
    events: Option<Events>,
}

/// The events among the entries of a file, which are decoded one by one: there may be millions.
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
                        events.push(
                            event.map_err(|error| {
                                de::Error::custom(format!("an event is invalid: {error}"))
                            })?,
                        );
                    }
                }
                Ok(Events(events))
            }
        }

        entries.deserialize_seq(Entries)
    }
}

/// The parts of an entry that are read. Other programs may reorder fields and escape text differently.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow, default)]
    ph: Cow<'a, str>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

/// Returns the name of a slice.
fn slice_name(event: &Event) -> String {
    match &event.kind {
        Kind::Call(call) => format!("{} {}", call.verb, event.name),
        _ => event.name.clone().into_owned(),
    }
}
