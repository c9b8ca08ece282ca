//! Recordings as Perfetto reads them: complete, and with the right structure.
//!
//! Needs Node, Python and two packages of Python, which `.ci/run` installs in a virtual environment in `target/perfetto`. Skipped
//! without them, unless the variable `TELEGRAD_PERFETTO` names the environment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;

/// The names of the workers, by rank.
const WORKERS: [&str; 2] = ["client", "server"];

/// The virtual environment with Perfetto, if there is one.
fn environment() -> Option<PathBuf> {
    if let Some(configured) = std::env::var_os("TELEGRAD_PERFETTO") {
        return Some(configured.into());
    }
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/perfetto");
    let has_node = Command::new("node").arg("--version").output().is_ok();
    (has_node && usual.is_dir()).then_some(usual)
}

/// Runs queries in Perfetto; returns the rows of each.
#[track_caller]
fn query<const N: usize>(environment: &Path, trace: &Path, queries: [&str; N]) -> [Vec<Value>; N] {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/views/perfetto/query.py");
    let python = environment.join("bin/python");
    let answer = printed(Command::new(python).arg(script).arg(trace).args(queries));
    let rows: Vec<Vec<Value>> = serde_json::from_str(&answer).unwrap();
    rows.try_into().unwrap()
}

/// The process and the row of an entry of the file.
fn row(entry: &Value) -> (u64, u64) {
    (entry["pid"].as_u64().unwrap(), entry["tid"].as_u64().unwrap())
}

/// A slice of the file. Its arguments have the recorded values; the rest is for viewers.
struct Slice<'a> {
    entry: &'a Value,
    row: (u64, u64),
    /// In nanoseconds since the first slice.
    start: u64,
    end: u64,
}

impl<'a> Slice<'a> {
    fn all(entries: &'a [Value]) -> Vec<Self> {
        let slices = entries.iter().filter(|entry| entry["ph"] == "X").map(|entry| {
            let arg = |name: &str| entry["args"][name].as_u64().unwrap();
            Self {
                entry,
                row: (arg("worker"), row(entry).1),
                start: arg("start"),
                end: arg("end"),
            }
        });
        let mut slices: Vec<_> = slices.collect();
        let origin = slices.iter().map(|slice| slice.start).min().unwrap();
        for slice in &mut slices {
            slice.start -= origin;
            slice.end -= origin;
        }
        slices
    }

    fn arg(&self, name: &str) -> u64 {
        self.entry["args"][name].as_u64().unwrap()
    }

    /// Its unique id.
    fn span(&self) -> u64 {
        self.arg("span")
    }
}

/// For each slice, the slice around it in its row.
fn parents(slices: &[Slice<'_>]) -> BTreeMap<u64, Option<u64>> {
    let around = |inner: &Slice<'_>| {
        let around = slices.iter().filter(|outer| {
            let starts = outer.start <= inner.start && inner.start < outer.end;
            let within = starts && inner.end <= outer.end;
            outer.row == inner.row && within && outer.span() != inner.span()
        });
        around.max_by_key(|outer| outer.start).map(Slice::span)
    };
    slices.iter().map(|slice| (slice.span(), around(slice))).collect()
}

/// The expected arrows, with their names: from each call to its execution, and along each message to the other worker and its
/// gradients back.
fn arrows(slices: &[Slice<'_>]) -> BTreeSet<(String, u64, u64)> {
    let calls: BTreeSet<_> = slices
        .iter()
        .filter(|slice| slice.entry["cat"] == "call")
        .map(Slice::span)
        .collect();
    let executions = slices
        .iter()
        .filter(|slice| slice.entry["cat"] == "execution" && calls.contains(&slice.arg("parent")));
    let mut arrows: BTreeSet<_> = executions
        .map(|execution| ("call".to_owned(), execution.arg("parent"), execution.span()))
        .collect();
    let mut linked: BTreeMap<u64, Vec<&Slice<'_>>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.arg("link") != 0) {
        linked.entry(slice.arg("link")).or_default().push(slice);
    }
    for way in linked.values_mut() {
        way.sort_by_key(|slice| slice.start);
        let pairs = way.windows(2);
        arrows.extend(pairs.map(|pair| ("backward".to_owned(), pair[0].span(), pair[1].span())));
    }
    arrows
}

/// All values of each slice, by span.
const SLICES: &str = "
    select extract_arg(s.arg_set_id, 'args.span') as span, s.name, s.category, s.ts, s.dur, s.pid, s.process_name,
        s.tid, s.thread_name, extract_arg(parent.arg_set_id, 'args.span') as parent
    from thread_slice s left join slice parent on s.parent_id = parent.id
    order by 1";

fn assert_slices(found: &[Value], slices: &[Slice<'_>], names: &BTreeMap<(u64, u64), &Value>) {
    let parents = parents(slices);
    let mut wanted: Vec<_> = slices
        .iter()
        .map(|slice| {
            json!({
                "span": slice.span(),
                "name": slice.entry["name"],
                "category": slice.entry["cat"],
                "ts": slice.start,
                "dur": slice.end - slice.start,
                "pid": slice.row.0,
                "process_name": WORKERS[slice.row.0 as usize],
                "tid": slice.row.1,
                "thread_name": names[&slice.row],
                "parent": parents[&slice.span()],
            })
        })
        .collect();
    wanted.sort_by_key(|slice| slice["span"].as_u64());
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_eq!(found, wanted);
    }
    // Guards against a vacuous comparison.
    assert!(parents.values().flatten().count() > 100, "few slices are nested");
}

/// The start and end of each arrow.
const FLOWS: &str = "
    select extract_arg(flow.arg_set_id, 'name') as name, extract_arg(o.arg_set_id, 'args.span') as start,
        extract_arg(i.arg_set_id, 'args.span') as finish
    from flow join slice o on slice_out = o.id join slice i on slice_in = i.id";

fn assert_flows(found: &[Value], slices: &[Slice<'_>]) {
    let span = |value: &Value| value.as_u64().unwrap();
    let wanted = arrows(slices);
    assert_eq!(found.len(), wanted.len());
    let found = found.iter().map(|flow| {
        let name = flow["name"].as_str().unwrap().to_owned();
        (name, span(&flow["start"]), span(&flow["finish"]))
    });
    assert_eq!(found.collect::<BTreeSet<_>>(), wanted);
}

/// Count and duration per worker and category.
const TIMES: &str = "
    select process_name as worker, category, count(*) as count, sum(dur) as time
    from thread_slice group by 1, 2 order by 1, 2";

/// Bytes per kind of call.
const BYTES: &str = "
    select extract_arg(arg_set_id, 'args.kind.call.verb') as verb,
        sum(extract_arg(arg_set_id, 'args.kind.call.sent_bytes')) as sent,
        sum(extract_arg(arg_set_id, 'args.tensor_bytes')) as tensors
    from slice where category = 'call' group by 1 order by 1";

fn assert_sums(times: &[Value], bytes: &[Value], slices: &[Slice<'_>]) {
    let mut by_worker: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    let mut by_verb: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for slice in slices {
        let worker = WORKERS[slice.row.0 as usize];
        let sums = by_worker
            .entry((worker, slice.entry["cat"].as_str()))
            .or_default();
        sums.0 += 1;
        sums.1 += slice.end - slice.start;
        let call = &slice.entry["args"]["kind"]["call"];
        if let Some(verb) = call["verb"].as_str() {
            let sums = by_verb.entry(verb).or_default();
            sums.0 += call["sent_bytes"].as_u64().unwrap();
            sums.1 += slice.arg("tensor_bytes");
        }
    }
    let wanted = by_worker.iter().map(|((worker, category), (count, time))| {
        json!({ "worker": worker, "category": category, "count": count, "time": time })
    });
    assert_eq!(times, wanted.collect::<Vec<_>>());
    let wanted = by_verb
        .iter()
        .map(|(verb, (sent, tensors))| json!({ "verb": verb, "sent": sent, "tensors": tensors }));
    assert_eq!(bytes, wanted.collect::<Vec<_>>());
}

#[test]
fn perfetto_reads_a_complete_recording() {
    let Some(environment) = environment() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), "t.json");
    let file = folder.path().join("t.json");
    let trace: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let entries = trace["traceEvents"].as_array().unwrap();
    let slices = Slice::all(entries);

    let rows = query(
        &environment,
        &file,
        [
            "include perfetto module slices.with_context;
            select name, value from stats where severity in ('error', 'data_loss') and value > 0",
            "select pid, name from process where name is not null order by 1",
            SLICES,
            FLOWS,
            TIMES,
            BYTES,
            // The backward pass of the client contains the derivatives of its layers.
            "select distinct s.process_name as worker, d.name
            from thread_slice s join descendant_slice(s.id) d
            where s.name = 'backward' and d.name = 'conv2d backward'",
            // The client's call to step leads to the step on the server.
            "select distinct call.process_name as caller, execution.process_name as callee, step.name
            from flow join thread_slice call on slice_out = call.id
                join thread_slice execution on slice_in = execution.id
                join slice step on step.parent_id = execution.id
            where call.name = 'rpc_async telegrad::optim::Local::step'",
            // Received tensors go back as gradients.
            "select distinct o.name as start, i.name as finish
            from flow join slice o on slice_out = o.id join slice i on slice_in = i.id
            where extract_arg(flow.arg_set_id, 'cat') = 'backward' order by 1, 2",
        ],
    );
    let [
        problems,
        processes,
        found,
        flows,
        times,
        bytes,
        backward,
        step,
        gradients,
    ] = rows;
    assert_eq!(problems, Vec::<Value>::new());
    assert_eq!(
        processes,
        [0, 1].map(|rank| json!({ "pid": rank, "name": WORKERS[rank] }))
    );
    let names = entries.iter().filter(|entry| entry["name"] == "thread_name");
    let names = names.map(|entry| (row(entry), &entry["args"]["name"]));
    assert_slices(&found, &slices, &names.collect());
    assert_eq!(
        flows.len(),
        entries.iter().filter(|entry| entry["ph"] == "s").count()
    );
    assert_flows(&flows, &slices);
    assert_sums(&times, &bytes, &slices);
    assert_eq!(
        backward,
        [json!({ "worker": "client", "name": "conv2d backward" })]
    );
    assert_eq!(
        step,
        [json!({ "caller": "client", "callee": "server", "name": "Optimizer::step" })]
    );
    assert_eq!(
        gradients,
        [
            json!({ "start": "autograd::receive", "finish": "autograd::send gradient" }),
            json!({ "start": "autograd::send", "finish": "autograd::receive" }),
            json!({ "start": "autograd::send gradient", "finish": "autograd::receive gradient" }),
        ]
    );
}
