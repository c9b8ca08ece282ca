//! The cost of profiling.

use std::time::{Duration, Instant};

use serde_json::json;
use telegrad::prelude::*;
use telegrad::{ProcessProfile, profile, trace};
use telegrad_cli::Workers;

use crate::Error;
use crate::calls::{nop, times};
use crate::measurement::{Measurements, median};

/// Computes for so many microseconds.
#[remote]
fn work(micros: u64) {
    let until = Instant::now() + Duration::from_micros(micros);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

// How a call is recorded.
const NOT: &str = "no";
const PROFILE: &str = "profile";
const PROCESS: &str = "process";

pub(crate) fn cost(workers: &Workers, measurements: &mut Measurements, quick: bool) -> Result<(), Error> {
    let count = if quick { 20 } else { 200 };
    let world = &workers.world;
    compare(measurements, world, "100us", count, || {
        Ok(world.rpc_sync("w1", work, (100,))?)
    })?;
    compare(measurements, world, "nop", count, || {
        world.rpc_sync("w1", nop, (7,))?;
        Ok(())
    })
}

/// Checks that a profile has at least `calls` calls or executions.
fn check(profile: &profile::Profile, calls: usize) -> Result<(), Error> {
    let is_call = |event: &&trace::Event| event.as_call().is_some() || event.as_execution().is_some();
    let found = profile.events.iter().filter(is_call).count();
    if found < calls {
        return Err(format!("the profile has {found} calls instead of {calls}").into());
    }
    Ok(())
}

/// Measures a call in each way in turns, so that a disturbance of the machine affects all of them.
fn compare(
    measurements: &mut Measurements,
    world: &World,
    name: &str,
    count: usize,
    mut call: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    const TURNS: usize = 32;
    let [mut without, mut profiled, mut recorded] = [const { Vec::new() }; 3];
    for turn in 0..TURNS {
        // Rotated, because each way affects the caches of the one after it.
        for way in 0..3 {
            match (turn + way) % 3 {
                0 => without.extend(times(count, &mut call)?),
                1 => {
                    let options = profile::Options::default();
                    let (taken, profile) = profile(world, options, || times(count, &mut call))?;
                    profiled.extend(taken?);
                    // A profile without the calls would have no cost.
                    check(&profile, 2 * count)?;
                }
                _ => {
                    let recording = ProcessProfile::start(world)?;
                    recorded.extend(times(count, &mut call)?);
                    check(&recording.finish(), count)?;
                }
            }
        }
    }
    let seconds = |times: &[Duration]| median(times.to_vec()).as_secs_f64();
    let plain = seconds(&without);
    for (how, times) in [(PROFILE, &profiled), (PROCESS, &recorded)] {
        let ratio = (seconds(times) / plain * 1e4).round() / 1e4;
        let params = json!({ "call": name, "recorded": how });
        measurements.value(
            "profiling_cost",
            params,
            "ratio",
            ratio,
            json!({ "n": times.len() }),
        );
    }
    for (how, times) in [(NOT, without), (PROFILE, profiled), (PROCESS, recorded)] {
        let params = json!({ "call": name, "recorded": how });
        measurements.latency("profiled_latency", params, times);
    }
    Ok(())
}
