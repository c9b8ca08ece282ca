//! Many workers: several clients on one server, and one client on several servers.

use std::time::{Duration, Instant};

use candle_core::{CpuStorage, InplaceOp2, Layout};
use serde_json::json;
use telegrad::prelude::*;
use telegrad::{RpcFuture, ops};

use super::Error;
use super::calls::{nop, times};
use super::payload::MB;
use super::record::{Recorder, percentile, round};
use crate::peer::Workers;

/// Elements of what clients and server exchange.
const ELEMENTS: usize = MB / 4;

/// The parameters of the parameter server.
struct Shard(Tensor);

#[remote]
impl Shard {
    fn push(&mut self, gradient: Tensor) -> Result<()> {
        // The gradient is this call's own, and becomes the parameters. What they were stays as it is for those to whom
        // it is on its way.
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

/// Turns a gradient into the parameters after a step along it.
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

pub(super) fn ps(workers: &Workers, recorder: &mut Recorder, quick: bool) -> Result<(), Error> {
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
        recorder.value(
            "parameter_server",
            json!({ "clients": clients.len(), "mode": mode, "size": "1MB" }),
            "steps/s",
            round(all / seconds, 10.0),
            json!({ "GBps_both_directions": round(2.0 * all * MB as f64 / seconds / 1e9, 1e4) }),
        );
    }
    Ok(())
}

pub(super) fn fanout(workers: &Workers, recorder: &mut Recorder, quick: bool) -> Result<(), Error> {
    let world = &workers.world;
    let names = workers.others();
    for (size, elements, count) in [
        ("tiny", 2, if quick { 100 } else { 1000 }),
        ("1MB", ELEMENTS, if quick { 20 } else { 100 }),
    ] {
        let t = Tensor::ones(elements, DType::F32, &Device::Cpu)?;
        let mut add = |call: &str, times: Vec<Duration>| {
            let params = json!({ "workers": names.len(), "call": call, "size": size });
            rounds(recorder, params, times);
        };
        let calls = times(count, || {
            all(&names, |name| {
                world.rpc_async(name, ops::add, (t.clone(), t.clone()))
            })
        })?;
        add("builtin_add", calls);
        if size == "tiny" {
            let calls = times(count, || all(&names, |name| world.rpc_async(name, nop, (1,))))?;
            add("python_udf", calls);
        }
    }
    Ok(())
}

/// One call to each, and the answers of all.
fn all<T: Wire>(names: &[String], issue: impl Fn(&str) -> Result<RpcFuture<T>>) -> Result<(), Error> {
    let calls: Result<Vec<_>> = names.iter().map(|name| issue(name)).collect();
    for call in calls? {
        call.wait()?;
    }
    Ok(())
}

fn rounds(recorder: &mut Recorder, params: serde_json::Value, mut times: Vec<Duration>) {
    times.sort_unstable();
    let seconds = times.iter().sum::<Duration>().as_secs_f64();
    let micros = |percent| round(percentile(&times, percent).as_secs_f64() * 1e6, 100.0);
    let more = json!({ "round_us_p50": micros(50), "round_us_p99": micros(99), "n": times.len() });
    let rate = round(times.len() as f64 / seconds, 10.0);
    recorder.value("fanout", params, "rounds/s", rate, more);
}
