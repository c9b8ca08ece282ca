//! A profile as the page needs it that shows it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use telegrad_wire::Rank;

use crate::lanes::lanes;
use crate::names::Names;
use crate::profile::{Profile, phases};
use crate::step::{Step, Steps};

/// Steps that a page is told of. Each comes with its critical path, and nobody goes through more of them by hand; the table of the
/// whole has the rest.
const MOST_STEPS: usize = 200;

impl Profile {
    /// Everything that a page needs to show the profile: events in rows, averages, traffic, the critical path. Times are in
    /// microseconds since its start.
    pub fn view(&self, title: &str) -> Value {
        let (start, end) = self.bounds();
        let micros = |time: u64| time.saturating_sub(start) as f64 / 1e3;
        let duration = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        let index = self.index();
        let names = Names::new(self, &index);
        let steps = Steps::new(self, &index);
        let mut rows: BTreeMap<Rank, Rows> = BTreeMap::new();
        let mut events = Vec::with_capacity(self.events.len());
        for (event, lane) in self.events.iter().zip(lanes(self.events.iter())) {
            let row = rows
                .entry(event.worker)
                .or_default()
                .of((event.thread, lane), || self.row_name(event, lane));
            let call = event.as_call();
            let peer = call.map(|call| call.callee);
            let peer = peer.or_else(|| event.as_execution().map(|execution| execution.caller));
            let phases = index
                .execution(event)
                .and_then(|execution| phases(event, execution));
            events.push(json!({
                "id": id(event.span),
                "parent": id(event.parent),
                "name": event.name,
                "key": names.of(event),
                "kind": event.kind.name(),
                "worker": event.worker,
                "row": row,
                "start": micros(event.start),
                "end": micros(event.end),
                "status": event.status.to_string(),
                "bytes": call.map_or(0, |call| call.sent_bytes + call.received_bytes),
                "tensor_bytes": event.tensor_bytes,
                "peer": peer,
                "shapes": event.shapes,
                "link": id(event.link),
                "phases": phases.map(|phases| json!({
                    "encode": duration(phases.encode),
                    "wire": duration(phases.wire),
                    "queue": duration(phases.queue),
                    "execute": duration(phases.execute),
                    "reply": duration(phases.reply),
                })),
            }));
        }
        let workers = self.workers.iter().map(|worker| {
            let rows = rows.remove(&worker.rank).unwrap_or_default();
            json!({
                "rank": worker.rank,
                "name": worker.name,
                "rows": rows.names,
                "dropped": worker.dropped,
                "known": worker.known,
            })
        });
        let averages = self.key_averages().0.into_iter().map(|average| {
            json!({
                "name": average.name,
                "worker": average.worker,
                "calls": average.calls,
                "failed": average.failed,
                "self": duration(average.self_time),
                "total": duration(average.total),
                "mean": duration(average.mean),
                "p50": duration(average.p50),
                "p99": duration(average.p99),
                "bytes": average.bytes,
                "tensor_bytes": average.tensor_bytes,
            })
        });
        let repeated = steps.repeated().into_iter().take(MOST_STEPS).map(|event| {
            let mut step = of_step(&steps.of(event), &micros);
            step["worker"] = self.worker(event.worker).into();
            step
        });
        json!({
            "title": title,
            "duration": micros(end),
            "workers": workers.collect::<Vec<_>>(),
            "events": events,
            "averages": averages.collect::<Vec<_>>(),
            "traffic": self.traffic().into_iter().map(|((from, to), (calls, bytes))| {
                json!({ "from": from, "to": to, "calls": calls, "bytes": bytes })
            }).collect::<Vec<_>>(),
            "step": steps.whole().map(|step| of_step(&step, &micros)),
            "steps": repeated.collect::<Vec<_>>(),
            "missing": self.missing,
        })
    }

    /// Calls and bytes from worker to worker: requests there, answers back.
    fn traffic(&self) -> BTreeMap<(Rank, Rank), (u64, u64)> {
        let mut traffic: BTreeMap<(Rank, Rank), (u64, u64)> = BTreeMap::new();
        for event in &self.events {
            if let Some(call) = event.as_call() {
                let there = traffic.entry((event.worker, call.callee)).or_default();
                there.0 += 1;
                there.1 += call.sent_bytes;
                traffic.entry((call.callee, event.worker)).or_default().1 += call.received_bytes;
            }
        }
        traffic
    }
}

fn of_step(step: &Step, micros: &dyn Fn(u64) -> f64) -> Value {
    let workers = step.workers.iter().map(|usage| {
        json!({
            "worker": usage.worker,
            "busy": usage.busy as f64 / 1e3,
            "waiting": usage.waiting as f64 / 1e3,
            "idle": usage.idle as f64 / 1e3,
        })
    });
    let critical = step.critical_path.iter().map(|segment| {
        json!({
            "event": id(segment.span),
            "worker": segment.worker,
            "name": segment.name,
            "start": micros(segment.start),
            "end": micros(segment.end),
        })
    });
    json!({
        "event": id(step.span),
        "name": step.name,
        "start": micros(step.start),
        "duration": step.duration() as f64 / 1e3,
        "bubble": step.bubble_ratio(),
        "workers": workers.collect::<Vec<_>>(),
        "critical": critical.collect::<Vec<_>>(),
    })
}

/// An event as the page refers to it: numbers in a browser have fewer digits than those of spans.
fn id(span: u64) -> Option<String> {
    (span != 0).then(|| span.to_string())
}

/// The rows of one worker, in the order in which they are first needed.
#[derive(Default)]
struct Rows {
    known: BTreeMap<(u64, usize), usize>,
    names: Vec<String>,
}

impl Rows {
    fn of(&mut self, row: (u64, usize), name: impl FnOnce() -> String) -> usize {
        *self.known.entry(row).or_insert_with(|| {
            self.names.push(name());
            self.names.len() - 1
        })
    }
}
