//! With the bytes of a tensor: a call that takes it.

use serde_json::json;
use telegrad::prelude::*;

use super::Curves;
use crate::Error;
use crate::bench::calls::times;
use crate::bench::payload::{MB, PAYLOADS, iterations, sink};
use crate::bench::record::{Recorder, percentile};
use crate::peer::Workers;

pub(super) fn growth(
    workers: &Workers,
    recorder: &mut Recorder,
    quick: bool,
    max_mb: usize,
) -> Result<(), Error> {
    let mut curves = Curves::new("bytes");
    for (_, bytes) in PAYLOADS.into_iter().filter(|(_, bytes)| *bytes <= max_mb * MB) {
        let t = Tensor::ones(bytes / 4, DType::F32, &Device::Cpu)?;
        let mut taken = times(iterations(bytes, quick), || {
            workers.world.rpc_sync("w1", sink, (t.clone(),))?;
            Ok(())
        })?;
        taken.sort_unstable();
        let micros = percentile(&taken, 50).as_secs_f64() * 1e6;
        curves.add(recorder, bytes, "growth_tensor", json!({}), (micros, "us"));
    }
    curves.end(recorder);
    Ok(())
}
