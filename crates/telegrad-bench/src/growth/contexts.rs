//! Growth with the number of open autograd contexts.

use std::time::{Duration, Instant};

use serde_json::json;
use telegrad::ops;
use telegrad::prelude::*;
use telegrad_cli::Workers;

use super::Curves;
use crate::Error;
use crate::calls::{nop, times};
use crate::measurement::{Measurements, median};

/// Stack for ten thousand contexts opened by recursion; the system commits only the pages in use.
const STACK: usize = 1 << 30;

pub(super) fn growth(workers: &Workers, measurements: &mut Measurements, quick: bool) -> Result<(), Error> {
    let sizes: &[usize] = if quick {
        &[1, 10, 100]
    } else {
        &[1, 10, 100, 1000, 10_000]
    };
    let mut curves = Curves::new("contexts");
    for &live in sizes {
        let world = workers.world.clone();
        let thread = std::thread::Builder::new().stack_size(STACK);
        let costs = thread.spawn(move || costs(&world, live).map_err(|error| error.to_string()))?;
        let costs = costs
            .join()
            .map_err(|_| "the thread of the contexts panicked")??;
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        for (operation, cost) in [
            ("call", micros(costs.call)),
            ("step", micros(costs.step)),
            ("open all, each", micros(costs.opened) / live as f64),
            ("close all, each", micros(costs.closed) / live as f64),
        ] {
            curves.add(
                measurements,
                live,
                "growth_contexts",
                json!({ "cost_of": operation }),
                (cost, "us"),
            );
        }
    }
    curves.end(measurements);
    Ok(())
}

struct Costs {
    call: Duration,
    step: Duration,
    opened: Duration,
    closed: Duration,
}

fn costs(world: &World, live: usize) -> Result<Costs, Error> {
    /// Enough for a median.
    const STEPS: usize = 200;
    let x = Param::new(&Tensor::ones(2, DType::F32, &Device::Cpu)?)?;
    let start = Instant::now();
    let mut measured = None;
    open(world, live, &x, &mut || {
        let opened = start.elapsed();
        let failed = |error: Error| telegrad::Error::other(error.to_string());
        let call = times(STEPS, || Ok(world.rpc_sync("w1", nop, (7,)).map(drop)?)).map_err(failed)?;
        let step = times(STEPS, || Ok(step(world, &x)?)).map_err(failed)?;
        measured = Some((opened, median(call), median(step), Instant::now()));
        Ok(())
    })?;
    let (opened, call, step, closing) = measured.ok_or("no context was measured")?;
    let closed = closing.elapsed();
    Ok(Costs {
        call,
        step,
        opened,
        closed,
    })
}

/// Opens `live` contexts that both workers take part in, and runs `f` while all of them are open.
fn open(world: &World, live: usize, x: &Param, f: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    if live == 0 {
        return f();
    }
    world.context(|_| {
        world.rpc_sync("w1", ops::add, (x.tensor(), x.tensor()))?;
        // The next context is open at the same time, without being nested in this one.
        world.in_context(None, || open(world, live - 1, x, f))
    })
}

fn step(world: &World, x: &Param) -> Result<()> {
    world.context(|context| {
        let y = world.rpc_sync("w1", ops::add, (x.tensor(), x.tensor()))?;
        context.backward(&y.sum_all()?)
    })
}
