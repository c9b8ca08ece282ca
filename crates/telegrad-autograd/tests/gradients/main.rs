//! Gradients across workers are those of the same model in one process.

mod shapes;

use std::collections::BTreeMap;

use candle_core::{Device, Tensor};
use telegrad_autograd::candle::Candle;
use telegrad_autograd::{AutogradInfo, AutogradWorld, Context, Param};
use telegrad_rpc::{RRef, Result, World, remote};
use telegrad_testkit::Cluster;

/// `tanh(x · w)`, with a parameter that lives where the layer does.
struct Layer {
    weight: Param,
}

#[remote]
impl Layer {
    fn new(size: usize, seed: u64) -> Result<Self> {
        let weight = Param::new(&numbers((size, size), seed)?)?;
        Ok(Self { weight })
    }

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        apply(&x, &self.weight.tensor())
    }

    /// On this worker, then on the others.
    fn forward_through(&self, x: Tensor, rest: Vec<RRef<Layer>>) -> Result<Tensor> {
        let x = apply(&x, &self.weight.tensor())?;
        match rest.split_first() {
            Some((next, rest)) => next.rpc_sync(Layer::forward_through, (x, rest.to_vec())),
            None => Ok(x),
        }
    }

    fn forward_named(&self, xs: BTreeMap<String, (Tensor, Option<Tensor>)>) -> Result<Vec<Tensor>> {
        let mut out = Vec::new();
        for (a, b) in xs.values() {
            out.push(apply(a, &self.weight.tensor())?);
            if let Some(b) = b {
                out.push((b * 2.0)?);
            }
        }
        Ok(out)
    }

    /// What the context that this is called in has found.
    fn gradient(&self) -> Result<Option<Tensor>> {
        Context::<Candle>::current()?.gradients()?.get(&self.weight)
    }

    fn weight(&self) -> Tensor {
        self.weight.value()
    }
}

/// The layer's function, here and there.
fn apply(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    Ok(x.matmul(weight)?.tanh()?)
}

/// Numbers that look random, the same everywhere.
fn numbers(shape: (usize, usize), seed: u64) -> Result<Tensor> {
    let mut random = fastrand::Rng::with_seed(seed);
    let count = shape.0 * shape.1;
    let values: Vec<f32> = (0..count).map(|_| random.f32() * 2.0 - 1.0).collect();
    Ok(Tensor::from_vec(values, shape, &Device::Cpu)?)
}

#[remote]
fn info() -> Result<AutogradInfo> {
    World::current()?.autograd_info()
}

/// With autograd.
fn with_autograd(cluster: Cluster) -> Cluster {
    cluster.options(|options| options.layer = Some(telegrad_autograd::layer::<Candle>))
}

/// Equal to 1e-6 of the largest element.
#[track_caller]
fn assert_close(found: &Tensor, expected: &Tensor) {
    assert_eq!(found.shape(), expected.shape());
    let flat = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let (found, expected) = (flat(found), flat(expected));
    let largest = expected.iter().fold(0f32, |max, x| max.max(x.abs()));
    for (a, b) in found.iter().zip(&expected) {
        assert!((a - b).abs() <= 1e-6 * largest, "{a} is not {b} of {largest}");
    }
}

/// Nothing of autograd is left on any worker.
#[track_caller]
fn assert_nothing_left(world: &World) {
    for rank in 0..world.size() as u32 {
        let info = world.rpc_sync(rank, info, ()).unwrap();
        let left = (
            info.contexts,
            info.sent,
            info.received,
            info.gradients,
            info.passes,
        );
        assert_eq!(left, (0, 0, 0, 0, 0), "on worker {rank}");
    }
}
