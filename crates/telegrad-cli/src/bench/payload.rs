//! Tensors from small to large, and small calls beside large tensors.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use serde_json::json;
use telegrad::ops;
use telegrad::prelude::*;

use super::Error;
use super::calls::{ones2, times};
use super::floor::{Floor, Kind};
use super::record::Recorder;
use crate::peer::Workers;

const KB: usize = 1024;
pub(super) const MB: usize = 1024 * 1024;

/// The sizes that all compared benchmarks share.
pub(super) const PAYLOADS: [(&str, usize); 6] = [
    ("4KB", 4 * KB),
    ("64KB", 64 * KB),
    ("1MB", MB),
    ("16MB", 16 * MB),
    ("64MB", 64 * MB),
    ("256MB", 256 * MB),
];

/// How long small calls are measured beside large tensors, however slow they are.
const MIXED_LIMIT: Duration = Duration::from_secs(12);

/// Sends back what it gets.
#[remote]
fn give_back(t: Tensor) -> Tensor {
    t
}

/// Takes what it gets, and says how much it was.
#[remote]
pub(super) fn sink(t: Tensor) -> usize {
    t.elem_count()
}

/// How often to move a payload: enough to settle, bounded in total bytes.
pub(super) fn iterations(bytes: usize, quick: bool) -> usize {
    let (budget, most, least) = if quick {
        (256 * MB, 200, 3)
    } else {
        (1024 * MB, 1000, 5)
    };
    (budget / bytes).clamp(least, most)
}

pub(super) fn echo(
    workers: &Workers,
    recorder: &mut Recorder,
    quick: bool,
    max_mb: usize,
) -> Result<(), Error> {
    let world = &workers.world;
    let mut unix = Floor::start(Kind::Unix)?;
    let mut tcp = Floor::start(Kind::Tcp)?;
    for (size, bytes) in PAYLOADS.into_iter().filter(|(_, bytes)| *bytes <= max_mb * MB) {
        let count = iterations(bytes, quick);
        let params = json!({ "size": size });
        recorder.rate("floor_memcpy", params.clone(), bytes, 1, memcpy(bytes, count));
        recorder.rate(
            "floor_unix_throughput",
            params.clone(),
            bytes,
            1,
            warm(unix.sink(bytes, count + count.div_ceil(10))?, count),
        );
        recorder.rate(
            "floor_tcp_throughput",
            params.clone(),
            bytes,
            1,
            warm(tcp.sink(bytes, count + count.div_ceil(10))?, count),
        );
        let t = Tensor::ones(bytes / 4, DType::F32, &Device::Cpu)?;
        let echoes = times(count, || {
            world.rpc_sync("w1", give_back, (t.clone(),))?;
            Ok(())
        })?;
        recorder.rate("tensor_echo", params.clone(), bytes, 2, echoes);
        let sinks = times(count, || {
            world.rpc_sync("w1", sink, (t.clone(),))?;
            Ok(())
        })?;
        recorder.rate("tensor_sink", params, bytes, 1, sinks);
    }
    unix.end()?;
    tcp.end()
}

/// Drops the first times, which warm things up.
fn warm(mut times: Vec<Duration>, count: usize) -> Vec<Duration> {
    times.split_off(times.len().saturating_sub(count))
}

/// Copies into memory that has been written before.
fn memcpy(bytes: usize, count: usize) -> Vec<Duration> {
    let (from, mut to) = (vec![1_u8; bytes], vec![2_u8; bytes]);
    (0..count)
        .map(|_| {
            let start = Instant::now();
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&mut to);
            start.elapsed()
        })
        .collect()
}

/// A small call, idle and while large tensors flow to the same worker.
pub(super) fn mixed(
    workers: &Workers,
    recorder: &mut Recorder,
    quick: bool,
    max_mb: usize,
) -> Result<(), Error> {
    let world = &workers.world;
    let (a, b) = ones2()?;
    let (count, least) = if quick {
        (300, Duration::from_millis(300))
    } else {
        (2000, Duration::from_secs(2))
    };
    let small = || {
        world.rpc_sync("w1", ops::add, (a.clone(), b.clone()))?;
        Ok(())
    };
    recorder.latency("mixed_latency", json!({ "while": "idle" }), times(count, small)?);
    for (size, bytes) in PAYLOADS
        .into_iter()
        .filter(|(_, bytes)| (64 * MB..=max_mb * MB).contains(bytes))
    {
        let large = Tensor::ones(bytes / 4, DType::F32, &Device::Cpu)?;
        let (flowed, taken) = while_flowing(world, &large, || {
            // Until several tensors have gone by, so that every part of a transfer meets small calls.
            let (start, mut taken) = (Instant::now(), Vec::new());
            while (taken.len() < count || start.elapsed() < least) && start.elapsed() < MIXED_LIMIT {
                let call = Instant::now();
                small()?;
                taken.push(call.elapsed());
            }
            Ok(taken)
        })?;
        recorder.latency_with(
            "mixed_latency",
            json!({ "while": format!("{size} tensors flow") }),
            taken,
            json!({ "tensors": flowed }),
        );
    }
    Ok(())
}

/// Runs `measure` while a thread sends `large` again and again; how often it went, and what was measured.
fn while_flowing<T>(
    world: &World,
    large: &Tensor,
    measure: impl FnOnce() -> Result<T, Error>,
) -> Result<(usize, T), Error> {
    let stop = AtomicBool::new(false);
    let (flowed, measured) = std::thread::scope(|scope| {
        let flow = scope.spawn(|| {
            let mut tensors = 0;
            while !stop.load(SeqCst) {
                world.rpc_sync("w1", sink, (large.clone(),))?;
                tensors += 1;
            }
            Ok::<_, telegrad::Error>(tensors)
        });
        let measured = measure();
        stop.store(true, SeqCst);
        (flow.join(), measured)
    });
    let flowed = flowed.map_err(|_| "the flow of tensors panicked")??;
    Ok((flowed, measured?))
}
