//! The optimiser of parameters on many workers.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use telegrad_autograd::{Context, Param};
use telegrad_rpc::{Error, RRef, Result, WorkerInfo, World};
use telegrad_trace::Kind;

use crate::check::Check;
use crate::local::{LocalGroup, LocalOptimizer};
use crate::{OptimError, RemoteAlgorithm, Schedule, clip_factor};

mod checkpoint;
mod owners;

use owners::Owners;

/// References to parameters with the same options.
#[derive(Clone, Debug)]
pub struct RemoteGroup<A> {
    /// The parameters, on any workers.
    pub params: Vec<RRef<Param>>,
    /// The algorithm's options.
    pub options: A,
}

/// An optimiser of parameters on many workers, by the gradients of a context.
///
/// Each owner of parameters keeps their state and makes their steps. A step is one message to each owner, all sent at the
/// same time. Concurrent steps, also those of other optimisers of the same parameters, are serialised on each owner, and
/// none is lost.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use telegrad_autograd::{AutogradWorld, Param};
/// use telegrad_optim::{DistributedOptimizer, Sgd};
/// use telegrad_rpc::{Options, RRef, Result, World, init_with, remote};
///
/// struct Model(Param);
///
/// #[remote]
/// impl Model {
///     fn new() -> Result<Self> {
///         Ok(Self(Param::new(&Tensor::new(&[4f32, -2.0], &Device::Cpu)?)?))
///     }
///
///     fn loss(&self) -> Result<Tensor> {
///         Ok(self.0.tensor().sqr()?.sum_all()?)
///     }
///
///     fn params(&self) -> Result<Vec<RRef<Param>>> {
///         Ok(vec![RRef::hold(&World::current()?, self.0.clone())?])
///     }
/// }
///
/// # let options = Options {
/// #     init_method: "mem://docs-distributed-optimizer?rank=0&world_size=1".into(),
/// #     layer: Some(telegrad_autograd::layer::<telegrad_autograd::candle::Candle>),
/// #     ..Options::default()
/// # };
/// # let world = init_with("ps", options)?;
/// let model = world.remote("ps", Model::new, ())?;
/// let params = model.rpc_sync(Model::params, ())?;
/// let optimizer = DistributedOptimizer::new(&world, params, Sgd { lr: 0.25, ..Sgd::default() })?;
/// for _ in 0..3 {
///     world.context(|context| {
///         context.backward(&model.rpc_sync(Model::loss, ())?)?;
///         optimizer.step(context)
///     })?;
/// }
/// assert_eq!(model.rpc_sync(Model::loss, ())?.to_scalar::<f32>()?, 0.3125);
/// # drop((optimizer, model));
/// # world.shutdown()?;
/// # Ok::<(), telegrad_rpc::Error>(())
/// ```
pub struct DistributedOptimizer<A> {
    owners: Owners,
    progress: Mutex<Progress>,
    schedule: Option<Box<dyn Schedule + Send + Sync>>,
    max_norm: Option<f64>,
    of: PhantomData<fn() -> A>,
}

/// The number of steps, and the learning rate of each group.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Progress {
    step: u64,
    lrs: Vec<f64>,
}

impl<A: RemoteAlgorithm> DistributedOptimizer<A> {
    /// Makes an optimiser with one group.
    ///
    /// # Errors
    /// As [`with_groups`](Self::with_groups).
    pub fn new(world: &World, params: Vec<RRef<Param>>, options: A) -> Result<Self> {
        Self::with_groups(world, vec![RemoteGroup { params, options }])
    }

    /// Makes an optimiser with several groups, each with its own options.
    ///
    /// # Errors
    /// When there are no parameters, or options are invalid. [`OptimError::Owners`] with every owner whose call fails, or
    /// whose parameters cannot be optimised, for instance because one is given twice.
    pub fn with_groups(world: &World, groups: Vec<RemoteGroup<A>>) -> Result<Self> {
        let mut by_owner: BTreeMap<u32, WorkerInfo> = BTreeMap::new();
        for group in &groups {
            group.options.check()?;
            for param in &group.params {
                let owner = param.owner();
                by_owner.insert(owner.rank, owner);
            }
        }
        if by_owner.is_empty() {
            return Err(OptimError::NoParameters.into());
        }
        let create = |owner: &WorkerInfo| {
            // Every owner has every group, so that the group numbers agree.
            let here = groups.iter().map(|group| {
                let here = group
                    .params
                    .iter()
                    .filter(|param| param.owner().rank == owner.rank);
                LocalGroup {
                    params: here.cloned().collect(),
                    algorithm: group.options.clone().into(),
                }
            });
            let local = world.remote(owner.rank, LocalOptimizer::new, (here.collect(),))?;
            // Errors are reported now, not at the first step.
            let ready = local.rpc_async(LocalOptimizer::ready, ())?;
            Ok((local, ready))
        };
        let created: Vec<_> = by_owner.values().map(create).collect();
        let (mut owners, mut failed) = (Vec::with_capacity(created.len()), Vec::new());
        for (owner, created) in by_owner.into_values().zip(created) {
            match created.and_then(|(local, ready)| ready.wait().map(|()| local)) {
                Ok(local) => owners.push(local),
                Err(error) => failed.push((owner.name, error)),
            }
        }
        if !failed.is_empty() {
            return Err(OptimError::Owners(failed).into());
        }
        let lrs = groups.iter().map(|group| group.options.lr()).collect();
        Ok(Self {
            owners: Owners(owners),
            progress: Mutex::new(Progress { step: 0, lrs }),
            schedule: None,
            max_norm: None,
            of: PhantomData,
        })
    }

    /// Sets the schedule of the learning rate; that of each group is the base.
    ///
    /// # Errors
    /// When the options of the schedule are invalid.
    pub fn with_schedule(mut self, schedule: impl Schedule + Send + Sync + 'static) -> Result<Self> {
        schedule.check()?;
        self.schedule = Some(Box::new(schedule));
        Ok(self)
    }

    /// Clips the gradients of each step to a norm of `max_norm`, taken over all gradients on all workers. A step then takes
    /// a second message to each owner.
    ///
    /// # Errors
    /// When `max_norm` is not positive.
    pub fn with_max_norm(mut self, max_norm: f64) -> Result<Self> {
        Check("clipping").holds(max_norm > 0.0, "max_norm", max_norm, "must be positive")?;
        self.max_norm = Some(max_norm);
        Ok(self)
    }

    /// Makes a step by the gradients of this context. Parameters without a gradient are unchanged.
    ///
    /// # Errors
    /// [`OptimError::Owners`] with the error of each owner that made no step. The other owners have made it, but the step
    /// counts only when all have.
    ///
    /// With clipping, [`OptimError::Norm`] or [`OptimError::NotFinite`] when there is no norm to clip to. No owner has made
    /// the step then.
    pub fn step(&self, context: &Context) -> Result<()> {
        let scope = telegrad_trace::scope(Kind::Optimizer, || "DistributedOptimizer::step".into());
        let lrs = self.lrs();
        let made = context.enter(|| {
            let scale = match self.max_norm {
                Some(max_norm) => clip_factor(self.norm(context)?, max_norm),
                None => 1.0,
            };
            let there =
                |owner: &RRef<LocalOptimizer>| owner.rpc_async(LocalOptimizer::step, (lrs.clone(), scale));
            let here = |owner: &RRef<LocalOptimizer>| owner.local_value_mut()?.step_in(context, &lrs, scale);
            self.owners
                .call_or_run(there, here)
                .map_err(|failed| Error::from(OptimError::Owners(failed)))
        });
        match &made {
            Ok(_) => self.progress.lock().step += 1,
            Err(error) => scope.fail(|| error.to_string()),
        }
        made.map(drop)
    }

    /// Computes the norm over the gradients of all owners, in the thread's context.
    fn norm(&self, context: &Context) -> Result<f64> {
        let there = |owner: &RRef<LocalOptimizer>| owner.rpc_async(LocalOptimizer::squared_norm, ());
        let here = |owner: &RRef<LocalOptimizer>| owner.local_value()?.squared_norm_in(context);
        let squares = self.owners.call_or_run(there, here);
        let squares = squares.map_err(OptimError::Norm)?;
        let not_finite = self.owners().into_iter().zip(&squares);
        let not_finite = not_finite.filter(|(_, squares)| !squares.is_finite());
        let not_finite: Vec<_> = not_finite.map(|(owner, _)| owner).collect();
        if not_finite.is_empty() {
            Ok(squares.iter().sum::<f64>().sqrt())
        } else {
            Err(OptimError::NotFinite(not_finite).into())
        }
    }

    /// The learning rate of the next step, for each group.
    pub fn lrs(&self) -> Vec<f64> {
        let progress = self.progress.lock();
        let lr = |base: &f64| {
            self.schedule
                .as_ref()
                .map_or(*base, |s| s.lr(*base, progress.step))
        };
        progress.lrs.iter().map(lr).collect()
    }

    /// Replaces the learning rate of a group, which is the base of a schedule.
    ///
    /// # Errors
    /// When there is no such group, or the learning rate is invalid.
    pub fn set_lr(&self, group: usize, lr: f64) -> Result<()> {
        Check(A::NAME).not_negative([("lr", lr)])?;
        let mut progress = self.progress.lock();
        let groups = progress.lrs.len();
        let slot = progress.lrs.get_mut(group);
        *slot.ok_or(OptimError::NoGroup { group, groups })? = lr;
        Ok(())
    }

    /// The number of steps made.
    pub fn steps(&self) -> u64 {
        self.progress.lock().step
    }

    /// The names of the workers that own the parameters.
    pub fn owners(&self) -> Vec<String> {
        self.owners.names()
    }
}

impl<A: RemoteAlgorithm> std::fmt::Debug for DistributedOptimizer<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DistributedOptimizer")
            .field("algorithm", &A::NAME)
            .field("owners", &self.owners())
            .finish_non_exhaustive()
    }
}
