//! Small calls: one at a time, and many at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::json;
use telegrad::prelude::*;
use telegrad::{RpcFuture, ops};
use telegrad_cli::Workers;

use crate::Error;
use crate::floor::{Floor, Kind, PING};
use crate::measurement::Measurements;

/// A function of the program that returns its argument.
#[remote]
pub(crate) fn nop(i: i64) -> i64 {
    i
}

/// The same on the thread that reads the request: the cost of an empty call.
#[remote(inline)]
fn nothing(i: i64) -> i64 {
    i
}

/// Returns the times of `count` runs of `call`, after a warm-up of a tenth as many.
pub(crate) fn times(
    count: usize,
    mut call: impl FnMut() -> Result<(), Error>,
) -> Result<Vec<Duration>, Error> {
    for _ in 0..count.div_ceil(10) {
        call()?;
    }
    (0..count)
        .map(|_| {
            let start = Instant::now();
            call()?;
            Ok(start.elapsed())
        })
        .collect()
}

pub(crate) fn latency(workers: &Workers, measurements: &mut Measurements, quick: bool) -> Result<(), Error> {
    /// Calls and floors take turns, so that a disturbance of the machine affects all of them.
    const TURNS: usize = 16;
    let count = if quick { 500 } else { 4000 } / TURNS;
    let (a, b) = ones2()?;
    let world = &workers.world;
    let mut unix = Floor::start(Kind::Unix)?;
    let mut tcp = Floor::start(Kind::Tcp)?;
    let [mut floor_unix, mut floor_tcp, mut builtin, mut user, mut inline] = [const { Vec::new() }; 5];
    for _ in 0..TURNS {
        floor_unix.extend(unix.ping_pong(count)?.split_off(count / 10));
        builtin.extend(times(count, || {
            world.rpc_sync("w1", ops::add, (a.clone(), b.clone()))?;
            Ok(())
        })?);
        floor_tcp.extend(tcp.ping_pong(count)?.split_off(count / 10));
        user.extend(times(count, || {
            world.rpc_sync("w1", nop, (7,))?;
            Ok(())
        })?);
        inline.extend(times(count, || {
            world.rpc_sync("w1", nothing, (7,))?;
            Ok(())
        })?);
    }
    unix.end()?;
    tcp.end()?;
    measurements.latency("floor_unix_latency", json!({ "bytes": PING }), floor_unix);
    measurements.latency("floor_tcp_latency", json!({ "bytes": PING }), floor_tcp);
    measurements.latency(
        "rpc_sync_latency",
        json!({ "call": "builtin_add_ones2" }),
        builtin,
    );
    measurements.latency("rpc_sync_latency", json!({ "call": "user_function" }), user);
    measurements.latency("rpc_sync_latency", json!({ "call": "inline" }), inline);
    Ok(())
}

pub(crate) fn throughput(
    workers: &Workers,
    measurements: &mut Measurements,
    quick: bool,
) -> Result<(), Error> {
    const OUTSTANDING: usize = 64;
    let count = if quick { 10_000 } else { 100_000 };
    let (a, b) = ones2()?;
    let world = &workers.world;
    let params = |call: &str| json!({ "call": call, "outstanding": OUTSTANDING });

    let mut floor = Floor::start(Kind::Unix)?;
    let pings = floor.pipeline(count / OUTSTANDING, OUTSTANDING)?;
    floor.end()?;
    let floor_params = json!({ "bytes": PING, "outstanding": OUTSTANDING });
    measurements.value(
        "floor_unix_pipelined",
        floor_params,
        "calls/s",
        pings.round(),
        json!({ "n": count }),
    );

    let rate = pipelined(count, OUTSTANDING, || {
        world.rpc_async("w1", ops::add, (a.clone(), b.clone()))
    })?;
    measurements.value(
        "rpc_async_throughput",
        params("builtin_add_ones2"),
        "calls/s",
        rate,
        json!({ "n": count }),
    );
    let rate = pipelined(count, OUTSTANDING, || world.rpc_async("w1", nop, (7,)))?;
    measurements.value(
        "rpc_async_throughput",
        params("user_function"),
        "calls/s",
        rate,
        json!({ "n": count }),
    );
    Ok(())
}

/// Returns calls per second with `outstanding` calls in flight: waits for the oldest before each new one.
fn pipelined<T: Wire>(
    count: usize,
    outstanding: usize,
    mut call: impl FnMut() -> Result<RpcFuture<T>>,
) -> Result<f64, Error> {
    for _ in 0..200 {
        call()?.wait()?;
    }
    let mut window = VecDeque::with_capacity(outstanding);
    let start = Instant::now();
    for _ in 0..count {
        if window.len() == outstanding
            && let Some(oldest) = window.pop_front()
        {
            RpcFuture::wait(oldest)?;
        }
        window.push_back(call()?);
    }
    for rest in window {
        rest.wait()?;
    }
    Ok((count as f64 / start.elapsed().as_secs_f64()).round())
}

pub(crate) fn ones2() -> Result<(Tensor, Tensor), Error> {
    let ones = || Tensor::ones(2, DType::F32, &Device::Cpu);
    Ok((ones()?, ones()?))
}
