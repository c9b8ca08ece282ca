//! What it costs to be profiled.

use std::time::{Duration, Instant};

use serde_json::json;
use telegrad::prelude::*;
use telegrad::{ProcessProfile, profile, trace};

use super::Error;
use super::calls::{nop, times};
use super::record::Recorder;
use crate::peer::Workers;

/// Works for so many microseconds.
#[remote]
fn work(micros: u64) {
    let until = Instant::now() + Duration::from_micros(micros);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// How a call is recorded.
const NOT: &str = "no";
const PROFILE: &str = "profile";
const PROCESS: &str = "process";

pub(super) fn cost(workers: &Workers, recorder: &mut Recorder, quick: bool) -> Result<(), Error> {
    let count = if quick { 20 } else { 200 };
    let world = &workers.world;
    compare(recorder, world, "100us", count, || {
        Ok(world.rpc_sync("w1", work, (100,))?)
    })?;
    compare(recorder, world, "nop", count, || {
        world.rpc_sync("w1", nop, (7,))?;
        Ok(())
    })
}

/// That so much was recorded, at least.
fn check(profile: &profile::Profile, calls: usize) -> Result<(), Error> {
    let of_calls = |event: &&trace::Event| event.as_call().is_some() || event.as_execution().is_some();
    if profile.events.iter().filter(of_calls).count() < calls {
        return Err("calls were not recorded".into());
    }
    Ok(())
}

/// Calls with and without being recorded, in turns, so that a disturbance of the machine meets all of them.
fn compare(
    recorder: &mut Recorder,
    world: &World,
    name: &str,
    count: usize,
    mut call: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    const TURNS: usize = 32;
    let [mut without, mut profiled, mut recorded] = [const { Vec::new() }; 3];
    for turn in 0..TURNS {
        // Whichever comes first meets what the one before has left behind.
        for way in 0..3 {
            match (turn + way) % 3 {
                0 => without.extend(times(count, &mut call)?),
                1 => {
                    let options = profile::Options::default();
                    let (taken, profile) = profile(world, options, || times(count, &mut call))?;
                    profiled.extend(taken?);
                    // What was not recorded has cost nothing.
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
    let median = |times: &[Duration]| {
        let mut times = times.to_vec();
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64()
    };
    let plain = median(&without);
    for (how, times) in [(PROFILE, &profiled), (PROCESS, &recorded)] {
        let ratio = (median(times) / plain * 1e4).round() / 1e4;
        let params = json!({ "call": name, "recorded": how });
        recorder.value(
            "profiling_cost",
            params,
            "ratio",
            ratio,
            json!({ "n": times.len() }),
        );
    }
    for (how, times) in [(NOT, without), (PROFILE, profiled), (PROCESS, recorded)] {
        let params = json!({ "call": name, "recorded": how });
        recorder.latency("profiled_latency", params, times);
    }
    Ok(())
}
