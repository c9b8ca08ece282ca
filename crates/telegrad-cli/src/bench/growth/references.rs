//! With the references that live: what a call costs beside them, and one more of them, and one less.

use std::time::{Duration, Instant};

use serde_json::json;
use telegrad::prelude::*;

use super::Curves;
use crate::Error;
use crate::bench::calls::{nop, times};
use crate::bench::record::{Recorder, percentile};
use crate::bench::rref::{owned, until};
use crate::peer::Workers;

/// Made and dropped together: news of references travels in groups, so one by itself says little.
const GROUP: usize = 2000;

pub(super) fn growth(workers: &Workers, recorder: &mut Recorder, quick: bool) -> Result<(), Error> {
    let world = &workers.world;
    let sizes: &[usize] = if quick {
        &[1, 100, 10_000]
    } else {
        &[1, 100, 10_000, 100_000, 1_000_000]
    };
    let mut curves = Curves::new("references");
    for &live in sizes {
        let (held, filled) = make(world, live)?;
        let mut calls = times(GROUP, || {
            world.rpc_sync("w1", nop, (7,))?;
            Ok(())
        })?;
        calls.sort_unstable();
        let (group, created) = make(world, GROUP)?;
        let deleted = drop_all(world, group, live)?;
        let cleared = drop_all(world, held, 0)?;
        let micros = |time: Duration, count: usize| (time.as_secs_f64() * 1e6 / count as f64, "us");
        for (what, cost) in [
            ("call", micros(percentile(&calls, 50), 1)),
            ("create", micros(created, GROUP)),
            ("delete", micros(deleted, GROUP)),
            ("create all, each", micros(filled, live)),
            ("delete all, each", micros(cleared, live)),
        ] {
            curves.add(
                recorder,
                live,
                "growth_references",
                json!({ "cost_of": what }),
                cost,
            );
        }
    }
    curves.end(recorder);
    Ok(())
}

/// New references that their owner has confirmed, and how long that took.
fn make(world: &World, count: usize) -> Result<(Vec<RRef<i64>>, Duration), Error> {
    let start = Instant::now();
    let made: Result<Vec<_>> = (0..count).map(|_| world.remote("w1", nop, (1,))).collect();
    let made = made?;
    for reference in &made {
        until(|| Ok(reference.confirmed_by_owner()))?;
    }
    Ok((made, start.elapsed()))
}

/// Drops them and waits until the owner has `left` values; how long that took.
fn drop_all(world: &World, references: Vec<RRef<i64>>, left: usize) -> Result<Duration, Error> {
    let start = Instant::now();
    drop(references);
    until(|| Ok(world.rpc_sync("w1", owned, ())? == left))?;
    Ok(start.elapsed())
}
