//! Random programs that run over many workers, or on one.
//!
//! The seed and the number of inputs determine a program, so it computes the same on every worker.

use std::collections::BTreeMap;

use fastrand::Rng;
use parking_lot::Mutex;
use telegrad_rpc::{RRef, Result, RpcFuture, World, remote};
use telegrad_wire::Wire;

use crate::scalar::Scalar;

/// The number of workers.
pub(crate) const WORKERS: u32 = 4;

/// The number of parameters of each worker.
pub(crate) const PARAMETERS: usize = 3;

/// The name of a parameter: its worker and its number there.
pub(crate) type Name = (u32, usize);

/// A random program.
#[derive(Clone, Copy, Debug, Wire)]
pub(crate) struct Program {
    pub(crate) seed: u64,
    /// The depth to which calls may nest.
    pub(crate) depth: u8,
    /// Every computed value contributes to an output.
    pub(crate) tidy: bool,
}

/// A call made by a program.
pub(crate) struct Call {
    how: How,
    to: u32,
    program: Program,
    inputs: Vec<Scalar>,
}

#[derive(Clone, Copy)]
enum How {
    Sync,
    Async,
    /// The result stays on the callee; this worker fetches it.
    Remote,
    /// The result stays on the callee; another worker fetches it for another program.
    HandedOn(u32, Program),
    Method,
    AsyncFunction,
}

/// The site of a program: one worker, or all of them.
pub(crate) trait Site {
    fn parameter(&self, nth: usize) -> Scalar;

    /// Makes all calls at once.
    fn call(&self, calls: Vec<Call>) -> Result<Vec<Vec<Scalar>>>;
}

impl Program {
    pub(crate) fn run(self, site: &impl Site, inputs: Vec<Scalar>) -> Result<Vec<Scalar>> {
        let mut random = Rng::with_seed(self.seed);
        let mut values = inputs;
        values.push(site.parameter(random.usize(..PARAMETERS)));
        for _ in 0..random.usize(1..=4) {
            if self.depth > 0 && random.u8(..2) == 0 {
                let calls = (0..random.usize(1..=2)).map(|_| self.call(&mut random, &values));
                let calls = calls.collect();
                values.extend(site.call(calls)?.into_iter().flatten());
            } else {
                values.push(step(site, &mut random, &values));
            }
        }
        let mut outputs: Vec<_> = (0..random.usize(1..=2))
            .map(|_| pick(&mut random, &values))
            .collect();
        if self.tidy {
            outputs.push(sum(&values).sine());
        }
        Ok(outputs)
    }

    fn call(self, random: &mut Rng, values: &[Scalar]) -> Call {
        let inner = |random: &mut Rng| Program {
            seed: random.u64(..),
            depth: self.depth - 1,
            ..self
        };
        let program = inner(random);
        let how = match random.u8(..6) {
            0 => How::Sync,
            1 => How::Async,
            2 => How::Remote,
            3 => How::HandedOn(random.u32(..WORKERS), inner(random)),
            4 => How::Method,
            _ => How::AsyncFunction,
        };
        Call {
            how,
            to: random.u32(..WORKERS),
            program,
            inputs: (0..random.usize(..=3)).map(|_| pick(random, values)).collect(),
        }
    }
}

fn pick(random: &mut Rng, values: &[Scalar]) -> Scalar {
    values[random.usize(..values.len())].clone()
}

/// Computes a small number, so that the values of a large graph stay in range.
fn step(site: &impl Site, random: &mut Rng, values: &[Scalar]) -> Scalar {
    let (a, b) = (pick(random, values), pick(random, values));
    match random.u8(..6) {
        0 => a.plus(&b).sine(),
        1 => a.times(&b).sine(),
        2 => a.times(&site.parameter(random.usize(..PARAMETERS))).sine(),
        3 => a.times(&Scalar::constant(random.f64() - 0.5)),
        4 => a.sine(),
        _ => Scalar::constant(random.f64()),
    }
}

/// The sum of the values.
pub(crate) fn sum(values: &[Scalar]) -> Scalar {
    let zero = Scalar::constant(0.0);
    values.iter().fold(zero, |sum, value| sum.plus(value))
}

/// Runs a program on one worker.
pub(crate) struct Single<'a> {
    pub(crate) here: u32,
    pub(crate) parameters: &'a BTreeMap<Name, Scalar>,
}

impl Site for Single<'_> {
    fn parameter(&self, nth: usize) -> Scalar {
        self.parameters[&(self.here, nth)].clone()
    }

    fn call(&self, calls: Vec<Call>) -> Result<Vec<Vec<Scalar>>> {
        let on = |here| Self { here, ..*self };
        let run = |call: Call| {
            let outputs = call.program.run(&on(call.to), call.inputs)?;
            match call.how {
                How::HandedOn(third, program) => program.run(&on(third), outputs),
                _ => Ok(outputs),
            }
        };
        calls.into_iter().map(run).collect()
    }
}

/// Runs a program over all workers.
struct Distributed(World);

/// The parameters of all workers of this process.
pub(crate) static HELD: Mutex<BTreeMap<Name, Scalar>> = Mutex::new(BTreeMap::new());

impl Site for Distributed {
    fn parameter(&self, nth: usize) -> Scalar {
        HELD.lock()[&(self.0.rank(), nth)].clone()
    }

    fn call(&self, calls: Vec<Call>) -> Result<Vec<Vec<Scalar>>> {
        enum Started {
            Done(Vec<Scalar>),
            Future(RpcFuture<Vec<Scalar>>),
            Reference(RRef<Vec<Scalar>>),
        }
        let world = &self.0;
        let start = |call: Call| {
            let Call {
                how,
                to,
                program,
                inputs,
            } = call;
            Ok(match how {
                How::Sync => Started::Done(world.rpc_sync(to, run, (program, inputs))?),
                How::Async => Started::Future(world.rpc_async(to, run, (program, inputs))?),
                How::AsyncFunction => Started::Future(world.rpc_async(to, run_async, (program, inputs))?),
                How::Remote => Started::Reference(world.remote(to, run, (program, inputs))?),
                How::HandedOn(third, next) => {
                    let made = world.remote(to, run, (program, inputs))?;
                    Started::Future(world.rpc_async(third, fetch_and_run, (made, next))?)
                }
                How::Method => {
                    let runner = world.remote(to, Runner::new, (program,))?;
                    Started::Done(runner.rpc_sync(Runner::run, (inputs,))?)
                }
            })
        };
        let started = calls.into_iter().map(start).collect::<Result<Vec<_>>>()?;
        let finish = |started| match started {
            Started::Done(values) => Ok(values),
            Started::Future(future) => future.wait(),
            Started::Reference(reference) => reference.to_here(),
        };
        started.into_iter().map(finish).collect()
    }
}

/// Runs a program on the callee.
#[remote]
pub(crate) fn run(program: Program, inputs: Vec<Scalar>) -> Result<Vec<Scalar>> {
    program.run(&Distributed(World::current()?), inputs)
}

#[remote]
async fn run_async(program: Program, inputs: Vec<Scalar>) -> Result<Vec<Scalar>> {
    run_here(program, inputs)
}

#[remote]
fn fetch_and_run(inputs: RRef<Vec<Scalar>>, program: Program) -> Result<Vec<Scalar>> {
    run_here(program, inputs.to_here()?)
}

fn run_here(program: Program, inputs: Vec<Scalar>) -> Result<Vec<Scalar>> {
    program.run(&Distributed(World::current()?), inputs)
}

/// Runs a program on this worker, with calls to the others.
pub(crate) fn run_distributed(world: &World, program: Program, inputs: Vec<Scalar>) -> Result<Vec<Scalar>> {
    program.run(&Distributed(world.clone()), inputs)
}

struct Runner(Program);

#[remote]
impl Runner {
    fn new(program: Program) -> Result<Self> {
        Ok(Self(program))
    }

    fn run(&self, inputs: Vec<Scalar>) -> Result<Vec<Scalar>> {
        run_here(self.0, inputs)
    }
}
