//! Growth with the number of live references: the cost of a call, of one more and of one fewer.

use std::time::{Duration, Instant};

use serde_json::json;
use telegrad::prelude::*;
use telegrad_cli::Workers;

use super::Curves;
use crate::Error;
use crate::calls::{nop, times};
use crate::measurement::{Measurements, median};
use crate::rref::{owned, until};

/// References created and dropped together; reference messages travel in batches, so the cost of a single one says little.
const GROUP: usize = 2000;

pub(super) fn growth(workers: &Workers, measurements: &mut Measurements, quick: bool) -> Result<(), Error> {
    let world = &workers.world;
    let sizes: &[usize] = if quick {
        &[1, 100, 10_000]
    } else {
        &[1, 100, 10_000, 100_000, 1_000_000]
    };
    let mut curves = Curves::new("references");
    for &live in sizes {
        let (held, filled) = create(world, live)?;
        let calls = times(GROUP, || {
            world.rpc_sync("w1", nop, (7,))?;
            Ok(())
        })?;
        let (group, group_time) = create(world, GROUP)?;
        let deleted = drop_all(world, group, live)?;
        let cleared = drop_all(world, held, 0)?;
        let micros = |time: Duration, count: usize| (time.as_secs_f64() * 1e6 / count as f64, "us");
        for (operation, cost) in [
            ("call", micros(median(calls), 1)),
            ("create", micros(group_time, GROUP)),
            ("delete", micros(deleted, GROUP)),
            ("create all, each", micros(filled, live)),
            ("delete all, each", micros(cleared, live)),
        ] {
            curves.add(
                measurements,
                live,
                "growth_references",
                json!({ "cost_of": operation }),
                cost,
            );
        }
    }
    curves.end(measurements);
    Ok(())
}

/// Creates references and waits until the owner has confirmed them; returns them with the time taken.
fn create(world: &World, count: usize) -> Result<(Vec<RRef<i64>>, Duration), Error> {
    let start = Instant::now();
    let created: Result<Vec<_>> = (0..count).map(|_| world.remote("w1", nop, (1,))).collect();
    let created = created?;
    for reference in &created {
        until(|| Ok(reference.confirmed_by_owner()))?;
    }
    Ok((created, start.elapsed()))
}

/// Drops references and waits until the owner has `left` values; returns the time taken.
fn drop_all(world: &World, references: Vec<RRef<i64>>, left: usize) -> Result<Duration, Error> {
    let start = Instant::now();
    drop(references);
    until(|| Ok(world.rpc_sync("w1", owned, ())? == left))?;
    Ok(start.elapsed())
}
