//! The part of a distributed optimiser on an owner of parameters.

use std::path::Path;

use candle_core::{Device, Tensor};
use telegrad_autograd::{Context, Param};
use telegrad_rpc::{Error, RRef, Result, remote};
use telegrad_wire::Wire;

use crate::checkpoint::Loaded;
use crate::{Algorithm, AnyAlgorithm, Optimizer, squared_norm};

/// An optimiser of this worker's parameters, called by other workers.
pub(crate) struct LocalOptimizer(Box<dyn ErasedOptimizer>);

/// An optimiser without its algorithm's type, which a remote method cannot name.
pub(crate) trait ErasedOptimizer: Send + Sync {
    fn step(&mut self, lrs: &[f64], scale: f64, context: &Context) -> Result<()>;
    fn params(&self) -> Vec<Param>;
    fn to_bytes(&self, values: bool) -> Result<Vec<u8>>;
    fn stage(&mut self, path: &Path, bytes: &[u8], values: bool) -> Result<()>;
    fn commit(&mut self) -> Result<()>;
    fn unstage(&mut self);
}

/// An optimiser, with a state that was read but not loaded yet.
pub(crate) struct Staging<A> {
    pub(crate) optimizer: Optimizer<A>,
    pub(crate) staged: Option<Loaded<A>>,
}

impl<A: Algorithm> ErasedOptimizer for Staging<A> {
    fn step(&mut self, lrs: &[f64], scale: f64, context: &Context) -> Result<()> {
        let gradients = context.gradients()?;
        for (group, lr) in lrs.iter().enumerate() {
            self.optimizer.set_lr(group, *lr)?;
        }
        self.optimizer.step_scaled(scale, |param| {
            let gradient = gradients.get(param)?;
            if gradient.is_some() {
                context.check_update(param)?;
            }
            Ok(gradient)
        })
    }

    fn params(&self) -> Vec<Param> {
        self.optimizer.params().cloned().collect()
    }

    fn to_bytes(&self, values: bool) -> Result<Vec<u8>> {
        self.optimizer.to_bytes(values)
    }

    fn stage(&mut self, path: &Path, bytes: &[u8], values: bool) -> Result<()> {
        self.staged = Some(self.optimizer.read_bytes(path, bytes, values)?);
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        let staged = self.staged.take();
        let staged = staged.ok_or_else(|| {
            Error::other("there is no staged state to load: a concurrent `load` replaced it")
        })?;
        self.optimizer.take(staged)
    }

    fn unstage(&mut self) {
        self.staged = None;
    }
}

/// The parameters of one group on one worker.
#[derive(Wire)]
pub(crate) struct LocalGroup {
    pub(crate) params: Vec<RRef<Param>>,
    pub(crate) algorithm: AnyAlgorithm,
}

#[remote(name = "telegrad::optim::Local")]
impl LocalOptimizer {
    pub(crate) fn new(groups: Vec<LocalGroup>) -> Result<Self> {
        let mut found = Vec::with_capacity(groups.len());
        for LocalGroup { params, algorithm } in groups {
            let params = params.iter().map(|param| Ok(param.local_value()?.clone()));
            found.push((params.collect::<Result<Vec<_>>>()?, algorithm));
        }
        AnyAlgorithm::optimizer(found).map(Self)
    }

    /// Returns once the optimiser has been made.
    pub(crate) fn ready(&self) {}

    /// Makes a step by the gradients of the call's context.
    pub(crate) fn step(&mut self, lrs: Vec<f64>, scale: f64) -> Result<()> {
        self.step_in(&Context::current()?, &lrs, scale)
    }

    /// The squared norm of the gradients of the call's context.
    pub(crate) fn squared_norm(&self) -> Result<f64> {
        self.squared_norm_in(&Context::current()?)
    }

    /// Returns the state as the bytes of a file.
    pub(crate) fn save(&self, values: bool) -> Result<Tensor> {
        let bytes = self.0.to_bytes(values)?;
        let length = bytes.len();
        Ok(Tensor::from_vec(bytes, length, &Device::Cpu)?)
    }

    /// Validates a state to load, and stages it. The path is for errors.
    pub(crate) fn stage(&mut self, path: String, bytes: Tensor, values: bool) -> Result<()> {
        self.0.stage(Path::new(&path), &bytes.to_vec1()?, values)
    }

    /// Loads the staged state.
    pub(crate) fn commit(&mut self) -> Result<()> {
        self.0.commit()
    }

    /// Drops the staged state.
    pub(crate) fn unstage(&mut self) {
        self.0.unstage();
    }
}

/// For callers on the same worker.
impl LocalOptimizer {
    /// Makes a step by the gradients of a context.
    pub(crate) fn step_in(&mut self, context: &Context, lrs: &[f64], scale: f64) -> Result<()> {
        self.0.step(lrs, scale, context)
    }

    /// The squared norm of the gradients of a context.
    pub(crate) fn squared_norm_in(&self, context: &Context) -> Result<f64> {
        let gradients = context.gradients()?;
        let mut sum = 0.0;
        for param in self.0.params() {
            sum += squared_norm(&gradients.get(&param)?)?;
        }
        Ok(sum)
    }
}
