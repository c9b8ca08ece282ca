//! Tensors from small to large, and small calls during large transfers.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use serde_json::json;
use telegrad::ops;
use telegrad::prelude::*;
use telegrad_cli::Workers;

use crate::Error;
use crate::calls::{ones2, times};
use crate::floor::{Floor, Kind};
use crate::measurement::Measurements;

const KB: usize = 1024;
pub(crate) const MB: usize = 1024 * 1024;

/// The sizes, which are those of the peer.
const PAYLOADS: [(&str, usize); 6] = [
    ("4KB", 4 * KB),
    ("64KB", 64 * KB),
    ("1MB", MB),
    ("16MB", 16 * MB),
    ("64MB", 64 * MB),
    ("256MB", 256 * MB),
];

/// Time limit for the small calls during large transfers.
const MIXED_LIMIT: Duration = Duration::from_secs(12);

/// Returns its argument.
#[remote]
fn give_back(t: Tensor) -> Tensor {
    t
}

/// Returns the number of elements.
#[remote]
pub(crate) fn sink(t: Tensor) -> usize {
    t.elem_count()
}

/// The sizes from `min_mb` to `max_mb`.
pub(crate) fn payloads(min_mb: usize, max_mb: usize) -> impl Iterator<Item = (&'static str, usize)> {
    let range = min_mb * MB..=max_mb * MB;
    PAYLOADS
        .into_iter()
        .filter(move |(_, bytes)| range.contains(bytes))
}

/// Number of transfers of a payload: enough to settle, bounded in total bytes.
pub(crate) fn iterations(bytes: usize, quick: bool) -> usize {
    let (budget, most, least) = if quick {
        (256 * MB, 200, 3)
    } else {
        (1024 * MB, 1000, 5)
    };
    (budget / bytes).clamp(least, most)
}

pub(crate) fn echo(
    workers: &Workers,
    measurements: &mut Measurements,
    quick: bool,
    max_mb: usize,
) -> Result<(), Error> {
    let world = &workers.world;
    let mut unix = Floor::start(Kind::Unix)?;
    let mut tcp = Floor::start(Kind::Tcp)?;
    for (size, bytes) in payloads(0, max_mb) {
        let count = iterations(bytes, quick);
        let params = json!({ "size": size });
        measurements.rate("floor_memcpy", params.clone(), bytes, 1, memcpy(bytes, count));
        for (metric, floor) in [
            ("floor_unix_throughput", &mut unix),
            ("floor_tcp_throughput", &mut tcp),
        ] {
            // The first tenth is warm-up.
            let times = floor.sink(bytes, count + count.div_ceil(10))?;
            let times = times[times.len() - count..].to_vec();
            measurements.rate(metric, params.clone(), bytes, 1, times);
        }
        let t = Tensor::ones(bytes / 4, DType::F32, &Device::Cpu)?;
        let echoes = times(count, || {
            world.rpc_sync("w1", give_back, (t.clone(),))?;
            Ok(())
        })?;
        measurements.rate("tensor_echo", params.clone(), bytes, 2, echoes);
        let sinks = times(count, || {
            world.rpc_sync("w1", sink, (t.clone(),))?;
            Ok(())
        })?;
        measurements.rate("tensor_sink", params, bytes, 1, sinks);
    }
    unix.end()?;
    tcp.end()
}

/// Times copies into memory that has been written before.
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

/// Measures a small call, idle and while large tensors flow to the same worker.
pub(crate) fn mixed(
    workers: &Workers,
    measurements: &mut Measurements,
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
    measurements.latency("mixed_latency", json!({ "while": "idle" }), times(count, small)?);
    for (size, bytes) in payloads(64, max_mb) {
        let large = Tensor::ones(bytes / 4, DType::F32, &Device::Cpu)?;
        let (flowed, taken) = while_flowing(world, &large, || {
            // Long enough for several tensors, so that small calls meet every phase of a transfer.
            let (start, mut taken) = (Instant::now(), Vec::new());
            while (taken.len() < count || start.elapsed() < least) && start.elapsed() < MIXED_LIMIT {
                let call = Instant::now();
                small()?;
                taken.push(call.elapsed());
            }
            Ok(taken)
        })?;
        measurements.latency_with(
            "mixed_latency",
            json!({ "while": format!("{size} tensors flow") }),
            taken,
            json!({ "tensors": flowed }),
        );
    }
    Ok(())
}

/// Runs `measure` while a thread sends `large` repeatedly; returns the number of tensors sent and the result.
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
    let flowed = flowed.map_err(|_| "the thread that sends tensors panicked")??;
    Ok((flowed, measured?))
}
