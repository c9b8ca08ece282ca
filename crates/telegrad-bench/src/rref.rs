//! References: one at a time, and many at once.

use std::time::{Duration, Instant};

use serde_json::json;
use telegrad::ops;
use telegrad::prelude::*;
use telegrad_cli::Workers;

use crate::Error;
use crate::calls::{nop, ones2, times};
use crate::measurement::Measurements;

/// An object with a small method.
struct Counter(i64);

#[remote]
impl Counter {
    fn new() -> Result<Self> {
        Ok(Self(0))
    }

    #[remote(inline)]
    fn bump(&mut self, by: i64) -> i64 {
        self.0 += by;
        self.0
    }
}

/// Returns the number of values that this worker owns.
#[remote]
pub(crate) fn owned() -> Result<usize> {
    Ok(World::current()?.debug_info().references_owned)
}

pub(crate) fn rref(workers: &Workers, measurements: &mut Measurements, quick: bool) -> Result<(), Error> {
    one_at_a_time(&workers.world, measurements, quick)?;
    many_at_once(&workers.world, measurements, quick)
}

fn one_at_a_time(world: &World, measurements: &mut Measurements, quick: bool) -> Result<(), Error> {
    /// The kinds take turns, so that a disturbance of the machine affects all of them.
    const TURNS: usize = 16;
    let count = if quick { 300 } else { 4000 } / TURNS;
    let (a, b) = ones2()?;
    let counter = world.remote("w1", Counter::new, ())?;
    let [mut builtin, mut user, mut method] = [const { Vec::new() }; 3];
    for _ in 0..TURNS {
        builtin.extend(times(count, || {
            world.remote("w1", ops::add, (a.clone(), b.clone()))?.to_here()?;
            Ok(())
        })?);
        user.extend(times(count, || {
            world.remote("w1", nop, (1,))?.to_here()?;
            Ok(())
        })?);
        method.extend(times(count, || {
            counter.rpc_sync(Counter::bump, (1,))?;
            Ok(())
        })?);
    }
    for (call, times) in [("builtin_add_ones2", builtin), ("user_function", user)] {
        measurements.latency("rref_remote_to_here_latency", json!({ "call": call }), times);
    }
    measurements.latency(
        "rref_method_latency",
        json!({ "call": "rref.rpc_sync().bump" }),
        method,
    );
    Ok(())
}

fn many_at_once(world: &World, measurements: &mut Measurements, quick: bool) -> Result<(), Error> {
    let (turns, count) = if quick { (3, 2000) } else { (7, 20_000) };
    let (a, b) = ones2()?;
    let [mut issued, mut confirmed, mut deleted] = [const { Vec::new() }; 3];
    until(|| Ok(world.rpc_sync("w1", owned, ())? == 0))?;
    // The first turn is warm-up.
    for turn in 0..=turns {
        let start = Instant::now();
        let held: Result<Vec<_>> = (0..count)
            .map(|_| world.remote("w1", ops::add, (a.clone(), b.clone())))
            .collect();
        let (issue, held) = (start.elapsed(), held?);
        for reference in &held {
            until(|| Ok(reference.confirmed_by_owner()))?;
        }
        let confirm = start.elapsed();
        let start = Instant::now();
        drop(held);
        until(|| Ok(world.rpc_sync("w1", owned, ())? == 0))?;
        if turn > 0 {
            issued.push(issue);
            confirmed.push(confirm);
            deleted.push(start.elapsed());
        }
    }
    for (metric, params, mut times) in [
        ("rref_create_issue_rate", json!({}), issued),
        ("rref_create_confirmed_rate", json!({}), confirmed),
        ("rref_delete_rate", json!({ "until": "owner_released" }), deleted),
    ] {
        times.sort_unstable();
        let rate = |time: Duration| (count as f64 / time.as_secs_f64()).round();
        let more = json!({ "best": rate(times[0]), "turns": turns, "n": count });
        measurements.value(metric, params, "rrefs/s", rate(times[times.len() / 2]), more);
    }
    Ok(())
}

/// Waits until a condition holds. The thread sleeps in between, to leave the core to the workers.
pub(crate) fn until(mut condition: impl FnMut() -> Result<bool>) -> Result<(), Error> {
    /// Far longer than any of these conditions takes.
    const LIMIT: Duration = Duration::from_secs(120);
    let start = Instant::now();
    while !condition()? {
        if start.elapsed() > LIMIT {
            return Err(format!("the owner has not processed all reference messages after {LIMIT:?}").into());
        }
        std::thread::park_timeout(Duration::from_micros(100));
    }
    Ok(())
}
