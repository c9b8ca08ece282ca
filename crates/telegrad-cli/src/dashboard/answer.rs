//! The status as JSON, for the page.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use telegrad::status::{Latency, Status};

use super::metrics;
use crate::watch::{CallInFlight, Chain, Chains, OLD, silent};

/// Maximum number of calls to list, the oldest first. A busy world has tens of thousands, and the page asks every second.
const CALLS: usize = 300;

/// The status of a world. Counters and latencies are totals since the start of each worker, so every viewer can compute rates from
/// two answers.
pub(super) fn of(workers: &[Status]) -> Value {
    let chains = Chains::new(workers);
    let waits = chains.older(OLD);
    let calls = chains.in_flight();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "time": time.as_secs_f64(),
        "id": workers.first().map(|worker| format!("{:x}", worker.world)),
        "world": workers.iter().map(of_worker).collect::<Vec<_>>(),
        "silent": silent(workers),
        "calls": calls.iter().take(CALLS).map(of_call).collect::<Vec<_>>(),
        "all_calls": calls.len(),
        "pairs": pairs(&calls),
        "chains": waits.chains.iter().map(of_chain).collect::<Vec<_>>(),
        "more_chains": waits.more,
        "barriers": waits.barriers,
        "cycles": waits.cycles,
        "suspects": waits.suspects,
    })
}

/// For each pair of workers: the caller, the callee, the number of calls in flight, and the age of the oldest.
fn pairs(calls: &[CallInFlight<'_>]) -> Vec<(u32, u32, u64, f64)> {
    let mut pairs: BTreeMap<(u32, u32), (u64, Duration)> = BTreeMap::new();
    for call in calls {
        let (count, age) = pairs.entry((call.caller, call.callee)).or_default();
        *count += 1;
        *age = call.age.max(*age);
    }
    let row =
        |((from, to), (count, age)): ((u32, u32), (u64, Duration))| (from, to, count, age.as_secs_f64());
    pairs.into_iter().map(row).collect()
}

fn of_call(call: &CallInFlight<'_>) -> Value {
    json!({
        "caller": call.caller,
        "callee": call.callee,
        "call": call.call,
        "function": call.function,
        "age": call.age.as_secs_f64(),
        "within": call.within,
        "makes": call.makes,
        "state": call.state.name(),
    })
}

fn of_chain(chain: &Chain) -> Value {
    let calls = chain.links.iter().map(|link| {
        json!({
            "function": link.function,
            "caller": link.caller,
            "on": link.on,
            "age": link.age.as_secs_f64(),
            "state": link.state.name(),
            "is_stuck": link.is_stuck,
        })
    });
    json!({
        "from": chain.from,
        "age": chain.age.as_secs_f64(),
        "is_cycle": chain.is_cycle,
        "text": chain.to_string(),
        "calls": calls.collect::<Vec<_>>(),
    })
}

fn of_worker(status: &Status) -> Value {
    let latency = status.latency.iter().map(|latency| {
        let counts = latency.counts.iter();
        let counts = counts.map(|(bucket, count)| (Latency::longest(*bucket).as_secs_f64(), count));
        json!({ "to": latency.to, "counts": counts.collect::<Vec<_>>() })
    });
    let counters: serde_json::Map<String, Value> = metrics::of(&status.counters)
        .into_iter()
        .map(|metric| (metric.name.to_owned(), metric.value.into()))
        .collect();
    json!({
        "rank": status.rank,
        "name": status.name,
        "process": status.process,
        "size": status.size,
        "time": status.uptime.as_secs_f64(),
        "counters": counters,
        "latency": latency.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use telegrad::status::Made;

    use super::*;

    #[test]
    fn of_many_calls_the_oldest_are_listed_and_all_are_counted() {
        let made = |call: u64| Made {
            call,
            function: "f".into(),
            callee: (call % 2) as u32,
            age: Duration::from_millis(call),
            within: None,
            is_awaited: true,
            is_held_up: false,
            is_gathering: false,
        };
        let busy = Status {
            world: 0xab,
            rank: 0,
            name: "a".into(),
            size: 1,
            uptime: Duration::from_secs(5),
            process: 1,
            made: (0..10_000).map(made).collect(),
            ..Status::default()
        };
        let answer = of(&[busy]);
        assert_eq!(answer["id"], "ab");
        assert_eq!(
            (&answer["all_calls"], &answer["world"][0]["time"]),
            (&json!(10_000), &json!(5.0))
        );
        let calls = answer["calls"].as_array().unwrap();
        assert_eq!((calls.len(), &calls[0]["call"]), (CALLS, &json!(9_999)));
        assert_eq!(calls[0]["state"], "unknown to the callee");
        assert_eq!(calls[1]["state"], "on its way");
        assert_eq!(
            answer["pairs"],
            json!([[0, 0, 5_000, 9.998], [0, 1, 5_000, 9.999]])
        );
        assert!(answer.to_string().len() < 200_000, "{}", answer.to_string().len());
    }
}
