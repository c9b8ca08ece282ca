//! Small calls: one at a time, and many at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::json;
use telegrad::prelude::*;
use telegrad::{RpcFuture, ops};

use super::Error;
use super::floor::{Floor, Kind, PING};
use super::record::Recorder;
use crate::peer::Workers;

/// A user's function that does nothing.
#[remote]
pub(super) fn nop(i: i64) -> i64 {
    i
}

/// The same on the thread that reads the request: what a call costs that carries nothing.
#[remote(inline)]
fn nothing(i: i64) -> i64 {
    i
}

/// Times of `count` runs of `call`, after a tenth as many that do not count.
pub(super) fn times(
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

pub(super) fn latency(workers: &Workers, recorder: &mut Recorder, quick: bool) -> Result<(), Error> {
    /// Calls and floors take turns, so that a disturbance of the machine meets all of them.
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
    recorder.latency("floor_unix_latency", json!({ "bytes": PING }), floor_unix);
    recorder.latency("floor_tcp_latency", json!({ "bytes": PING }), floor_tcp);
    recorder.latency(
        "rpc_sync_latency",
        json!({ "call": "builtin_add_ones2" }),
        builtin,
    );
    recorder.latency("rpc_sync_latency", json!({ "call": "python_udf" }), user);
    recorder.latency("rpc_sync_latency", json!({ "call": "inline" }), inline);
    Ok(())
}

pub(super) fn throughput(workers: &Workers, recorder: &mut Recorder, quick: bool) -> Result<(), Error> {
    const OUTSTANDING: usize = 64;
    let count = if quick { 10_000 } else { 100_000 };
    let (a, b) = ones2()?;
    let world = &workers.world;
    let params = |call: &str| json!({ "call": call, "outstanding": OUTSTANDING });

    let mut floor = Floor::start(Kind::Unix)?;
    let pings = floor.pipeline(count / OUTSTANDING, OUTSTANDING)?;
    floor.end()?;
    let floor_params = json!({ "bytes": PING, "outstanding": OUTSTANDING });
    recorder.value(
        "floor_unix_pipelined",
        floor_params,
        "calls/s",
        pings.round(),
        json!({ "n": count }),
    );

    let rate = pipelined(count, OUTSTANDING, || {
        world.rpc_async("w1", ops::add, (a.clone(), b.clone()))
    })?;
    recorder.value(
        "rpc_async_throughput",
        params("builtin_add_ones2"),
        "calls/s",
        rate,
        json!({ "n": count }),
    );
    let rate = pipelined(count, OUTSTANDING, || world.rpc_async("w1", nop, (7,)))?;
    recorder.value(
        "rpc_async_throughput",
        params("python_udf"),
        "calls/s",
        rate,
        json!({ "n": count }),
    );
    Ok(())
}

/// Calls per second with `outstanding` of them under way; the oldest is waited for before each new one.
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

pub(super) fn ones2() -> Result<(Tensor, Tensor), Error> {
    let ones = || Tensor::ones(2, DType::F32, &Device::Cpu);
    Ok((ones()?, ones()?))
}
