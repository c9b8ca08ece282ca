//! A tensor larger than the free blocks that allocators keep: its memory at the receiver is new.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use telegrad::prelude::*;
use telegrad_cli::Workers;

use crate::Error;
use crate::measurement::Measurements;
use crate::payload::{MB, sink};

/// The tensor that [`held`] returns.
static HELD: Mutex<Option<Tensor>> = Mutex::new(None);

/// Makes a tensor of `count` elements for [`held`]; drops it for 0.
#[remote]
fn hold(count: usize) -> Result<()> {
    let tensor = match count {
        0 => None,
        count => Some(Tensor::ones(count, DType::F32, &Device::Cpu)?),
    };
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = tensor;
    Ok(())
}

/// The tensor made by [`hold`].
#[remote]
fn held() -> Result<Tensor> {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.clone()
        .ok_or_else(|| telegrad::Error::other("no tensor is held"))
}

/// Measures calls and copies in turns: the speed of new memory depends on its last use by the machine.
pub(crate) fn tensors(
    workers: &Workers,
    measurements: &mut Measurements,
    quick: bool,
    megabytes: usize,
) -> Result<(), Error> {
    let world = &workers.world;
    let (count, turns) = (megabytes * MB / 4, if quick { 1 } else { 3 });
    let [mut copies, mut arguments, mut results] = [const { Vec::new() }; 3];
    for _ in 0..turns {
        let t = Tensor::ones(count, DType::F32, &Device::Cpu)?;
        copies.push(copy(&t)?);
        let start = Instant::now();
        world.rpc_sync("w1", sink, (t,))?;
        arguments.push(start.elapsed());

        world.rpc_sync("w1", hold, (count,))?;
        let start = Instant::now();
        let t = world.rpc_sync("w1", held, ())?;
        results.push(start.elapsed());
        world.rpc_sync("w1", hold, (0,))?;
        copies.push(copy(&t)?);
    }
    let size = format!("{megabytes}MB");
    let mut rate = |metric, params, times| measurements.rate(metric, params, megabytes * MB, 1, times);
    rate("floor_fresh_copy", json!({ "size": size }), copies);
    rate(
        "tensor_fresh",
        json!({ "size": size, "as": "argument" }),
        arguments,
    );
    rate("tensor_fresh", json!({ "size": size, "as": "result" }), results);
    Ok(())
}

/// Times a copy of a tensor into new memory.
fn copy(t: &Tensor) -> Result<Duration, Error> {
    let (storage, _) = t.storage_and_layout();
    let candle_core::Storage::Cpu(storage) = &*storage else {
        return Err("the tensor is not in main memory".into());
    };
    let elements = storage.as_slice::<f32>()?;
    let start = Instant::now();
    let copy = std::hint::black_box(elements.to_vec());
    let taken = start.elapsed();
    drop(copy);
    Ok(taken)
}
