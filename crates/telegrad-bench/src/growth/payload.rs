//! Growth with the bytes of a tensor argument.

use serde_json::json;
use telegrad::prelude::*;
use telegrad_cli::Workers;

use super::Curves;
use crate::Error;
use crate::calls::times;
use crate::measurement::{Measurements, median};
use crate::payload::{iterations, payloads, sink};

pub(super) fn growth(
    workers: &Workers,
    measurements: &mut Measurements,
    quick: bool,
    max_mb: usize,
) -> Result<(), Error> {
    let mut curves = Curves::new("bytes");
    for (_, bytes) in payloads(0, max_mb) {
        let t = Tensor::ones(bytes / 4, DType::F32, &Device::Cpu)?;
        let taken = times(iterations(bytes, quick), || {
            workers.world.rpc_sync("w1", sink, (t.clone(),))?;
            Ok(())
        })?;
        let micros = median(taken).as_secs_f64() * 1e6;
        curves.add(measurements, bytes, "growth_tensor", json!({}), (micros, "us"));
    }
    curves.end(measurements);
    Ok(())
}
