//! Several clients on one server.

use std::time::{Duration, Instant};

use candle_core::{CpuStorage, InplaceOp2, Layout};
use serde_json::json;
use telegrad::prelude::*;
use telegrad_cli::Workers;

use crate::Error;
use crate::measurement::{Measurements, round};
use crate::payload::MB;

/// Elements of a gradient and of the parameters.
const ELEMENTS: usize = MB / 4;

/// The parameters of the parameter server.
struct Shard(Tensor);

#[remote]
impl Shard {
    fn push(&mut self, gradient: Tensor) -> Result<()> {
        // This call owns the gradient, which becomes the new parameters. The old ones stay unchanged: replies may
        // still carry them.
        gradient.inplace_op2(&self.0, &Descend)?;
        self.0 = gradient;
        Ok(())
    }

    fn pull(&self) -> Tensor {
        self.0.clone()
    }

    fn push_pull(&mut self, gradient: Tensor) -> Result<Tensor> {
        self.push(gradient)?;
        Ok(self.pull())
    }
}

/// Replaces a gradient by the parameters after a step along it.
struct Descend;

impl InplaceOp2 for Descend {
    fn name(&self) -> &'static str {
        "descend"
    }

    fn cpu_fwd(
        &self,
        gradient: &mut CpuStorage,
        gradient_layout: &Layout,
        params: &CpuStorage,
        params_layout: &Layout,
    ) -> candle_core::Result<()> {
        let (CpuStorage::F32(gradient), Some((start, end))) =
            (gradient, gradient_layout.contiguous_offsets())
        else {
            candle_core::bail!("a gradient must be of f32 in row-major order");
        };
        let Some((params_start, params_end)) = params_layout.contiguous_offsets() else {
            candle_core::bail!("parameters must be in row-major order");
        };
        let params = &params.as_slice::<f32>()?[params_start..params_end];
        for (gradient, param) in gradient[start..end].iter_mut().zip(params) {
            *gradient = param - *gradient * 0.01;
        }
        Ok(())
    }
}

/// Runs on each client.
#[remote]
fn client(shard: RRef<Shard>, steps: usize, combined: bool) -> Result<()> {
    let gradient = Tensor::ones(ELEMENTS, DType::F32, &Device::Cpu)?;
    for _ in 0..steps {
        if combined {
            shard.rpc_sync(Shard::push_pull, (gradient.clone(),))?;
        } else {
            let push = shard.rpc_async(Shard::push, (gradient.clone(),))?;
            let pull = shard.rpc_async(Shard::pull, ())?;
            push.wait()?;
            pull.wait()?;
        }
    }
    Ok(())
}

/// Measures the steps of all clients.
pub(crate) fn steps(workers: &Workers, measurements: &mut Measurements, quick: bool) -> Result<(), Error> {
    let steps = if quick { 20 } else { 100 };
    let world = &workers.world;
    let clients = workers.others();
    let zeros = Tensor::zeros(ELEMENTS, DType::F32, &Device::Cpu)?;
    let shard = RRef::hold(world, Shard(zeros))?;
    let run = |steps: usize, combined: bool| -> Result<Duration> {
        let start = Instant::now();
        let runs: Result<Vec<_>> = clients
            .iter()
            .map(|name| world.rpc_async(name.as_str(), client, (shard.clone(), steps, combined)))
            .collect();
        join_all(runs?).wait()?;
        Ok(start.elapsed())
    };
    for (mode, combined) in [("push_and_pull_separate", false), ("push_pull_one_call", true)] {
        run(5, combined)?;
        let seconds = run(steps, combined)?.as_secs_f64();
        let all = (clients.len() * steps) as f64;
        measurements.value(
            "parameter_server",
            json!({ "clients": clients.len(), "mode": mode, "size": "1MB" }),
            "steps/s",
            round(all / seconds, 10.0),
            json!({ "GBps_both_directions": round(2.0 * all * MB as f64 / seconds / 1e9, 1e4) }),
        );
    }
    Ok(())
}
