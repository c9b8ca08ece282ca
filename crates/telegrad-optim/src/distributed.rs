//! An optimiser of parameters on many workers.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::Path;

use candle_core::{Device, Tensor};
use parking_lot::Mutex;
use safetensors::Dtype;
use serde::{Deserialize, Serialize};
use telegrad_autograd::{Context, Param};
use telegrad_rpc::{Error, RRef, Result, RpcFuture, WorkerInfo, World};
use telegrad_trace::Kind;
use telegrad_wire::Wire;

use crate::check::Check;
use crate::checkpoint::file::{self, Content, Piece, damaged};
use crate::checkpoint::{VERSION, open_with};
use crate::local::{Local, LocalGroup, Travels};
use crate::{OptimError, Schedule, clip_factor};

/// Where a file has what is not an owner's.
const KEY: &str = "telegrad-distributed-optim";

/// References to parameters that are optimised with the same options.
#[derive(Clone, Debug)]
pub struct RemoteGroup<A> {
    /// The parameters, wherever they are.
    pub params: Vec<RRef<Param>>,
    /// The algorithm's options.
    pub options: A,
}

/// Moves parameters on many workers along the gradients of a context.
///
/// Each worker that owns parameters keeps their state and makes their steps; a step is one message to each of
/// them, all at the same time. Steps of several contexts may be made at once: on each owner they follow each
/// other, also those of other optimisers of the same parameters, and none is lost.
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
    owners: Vec<RRef<Local>>,
    progress: Mutex<Progress>,
    schedule: Option<Box<dyn Schedule + Send + Sync>>,
    max_norm: Option<f64>,
    of: PhantomData<fn() -> A>,
}

/// How far it is, and the learning rate of each group.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Progress {
    step: u64,
    lrs: Vec<f64>,
}

/// What a file says besides what the owners do.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u64,
    progress: Progress,
    owners: Vec<String>,
}

impl<A: Travels> DistributedOptimizer<A> {
    /// An optimiser of these parameters.
    ///
    /// # Errors
    /// As [`with_groups`](Self::with_groups).
    pub fn new(world: &World, params: Vec<RRef<Param>>, options: A) -> Result<Self> {
        Self::with_groups(world, vec![RemoteGroup { params, options }])
    }

    /// An optimiser of groups of parameters with options of their own.
    ///
    /// # Errors
    /// When there are no parameters, or options make no sense. [`OptimError::Owners`] with every owner that cannot be
    /// asked, or whose parameters cannot be optimised: because one of them is given twice, for instance.
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
        let ask = |owner: &WorkerInfo| {
            // Every owner has every group, so that groups have the same number everywhere.
            let here = groups.iter().map(|group| {
                let here = group
                    .params
                    .iter()
                    .filter(|param| param.owner().rank == owner.rank);
                LocalGroup {
                    params: here.cloned().collect(),
                    method: group.options.clone().into(),
                }
            });
            let local = world.remote(owner.rank, Local::new, (here.collect(),))?;
            // What is wrong shows now, not at the first step.
            let ready = local.rpc_async(Local::ready, ())?;
            Ok((local, ready))
        };
        let asked: Vec<_> = by_owner.values().map(ask).collect();
        let (mut owners, mut failed) = (Vec::with_capacity(asked.len()), Vec::new());
        for (owner, asked) in by_owner.into_values().zip(asked) {
            match asked.and_then(|(local, ready)| ready.wait().map(|()| local)) {
                Ok(local) => owners.push(local),
                Err(error) => failed.push((owner.name, error)),
            }
        }
        if !failed.is_empty() {
            return Err(OptimError::Owners(failed).into());
        }
        let lrs = groups.iter().map(|group| group.options.lr()).collect();
        Ok(Self {
            owners,
            progress: Mutex::new(Progress { step: 0, lrs }),
            schedule: None,
            max_norm: None,
            of: PhantomData,
        })
    }

    /// Has the learning rate follow a schedule: that of each group is the base.
    ///
    /// # Errors
    /// When the schedule's options make no sense.
    pub fn with_schedule(mut self, schedule: impl Schedule + Send + Sync + 'static) -> Result<Self> {
        schedule.check()?;
        self.schedule = Some(Box::new(schedule));
        Ok(self)
    }

    /// Scales the gradients of each step so that the norm of all of them together, on all workers, is `max_norm` at
    /// most. It takes a second message to each owner.
    ///
    /// # Errors
    /// When it is not positive.
    pub fn with_max_norm(mut self, max_norm: f64) -> Result<Self> {
        Check("clipping").holds(max_norm > 0.0, "max_norm", max_norm, "must be positive")?;
        self.max_norm = Some(max_norm);
        Ok(self)
    }

    /// Moves every parameter by its gradient in this context. One without is left alone.
    ///
    /// # Errors
    /// [`OptimError::Owners`] with what went wrong on each of them: nothing has been moved there. Those that it does not
    /// name have made the step. It counts when all have made it.
    ///
    /// With clipping, [`OptimError::Norm`] and [`OptimError::NotFinite`] when there is no norm to clip to: nobody has made
    /// the step then.
    pub fn step(&self, context: &Context) -> Result<()> {
        let recorded = telegrad_trace::scope(Kind::Optimizer, || "DistributedOptimizer::step".into());
        let lrs = self.lrs();
        let made = context.enter(|| {
            let scale = match self.max_norm {
                Some(max_norm) => clip_factor(self.norm(context)?, max_norm),
                None => 1.0,
            };
            let there = |owner: &RRef<Local>| owner.rpc_async(Local::step, (lrs.clone(), scale));
            let here = |owner: &RRef<Local>| owner.local_value_mut()?.step_in(context, &lrs, scale);
            self.ask_owners(there, here)
                .map_err(|failed| Error::from(OptimError::Owners(failed)))
        });
        match &made {
            Ok(_) => self.progress.lock().step += 1,
            Err(error) => recorded.fail(|| error.to_string()),
        }
        made.map(drop)
    }

    /// The norm of the gradients of all owners together, in the context that this is called in.
    fn norm(&self, context: &Context) -> Result<f64> {
        let there = |owner: &RRef<Local>| owner.rpc_async(Local::squared_norm, ());
        let here = |owner: &RRef<Local>| owner.local_value()?.squared_norm_in(context);
        let squares = self.ask_owners(there, here);
        let squares = squares.map_err(OptimError::Norm)?;
        let strange = self.owners().into_iter().zip(&squares);
        let strange = strange.filter(|(_, squares)| !squares.is_finite());
        let strange: Vec<_> = strange.map(|(owner, _)| owner).collect();
        if strange.is_empty() {
            Ok(squares.iter().sum::<f64>().sqrt())
        } else {
            Err(OptimError::NotFinite(strange).into())
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

    /// Replaces the learning rate of a group; with a schedule, the base of it.
    ///
    /// # Errors
    /// When there is no such group, or it makes no sense.
    pub fn set_lr(&self, group: usize, lr: f64) -> Result<()> {
        Check(A::NAME).not_negative("lr", lr)?;
        let mut progress = self.progress.lock();
        let groups = progress.lrs.len();
        let slot = progress.lrs.get_mut(group);
        *slot.ok_or(OptimError::NoGroup { group, groups })? = lr;
        Ok(())
    }

    /// How many steps it has made.
    pub fn steps(&self) -> u64 {
        self.progress.lock().step
    }

    /// The workers that own its parameters.
    pub fn owners(&self) -> Vec<String> {
        self.owners
            .iter()
            .map(|owner| owner.owner_name().into())
            .collect()
    }

    /// Writes everything that is needed to go on from here, the parameters' values with it, to a file of this
    /// worker. The file holds either all of it or what it held before. The schedule and the clipping are not in it.
    ///
    /// A step that is made meanwhile may be in it for some owners and not for others.
    ///
    /// # Errors
    /// When an owner cannot be asked, or the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let states = self.on_owners(|owner| owner.rpc_async(Local::save, (true,)))?;
        let header = Header {
            version: VERSION,
            progress: self.progress.lock().clone(),
            owners: self.owners(),
        };
        let header = serde_json::to_string(&header).map_err(Error::other)?;
        let states = states
            .iter()
            .map(Tensor::to_vec1::<u8>)
            .collect::<candle_core::Result<Vec<_>>>()?;
        let pieces = pieces_of(&self.owners(), &states);
        file::write(path.as_ref(), (KEY.into(), header), pieces)
    }

    /// Goes on from what a file holds, with parameters on the same workers in the same order.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or is of other workers, parameters or another algorithm. When an
    /// owner cannot be asked. Nothing has changed then, unless an owner was lost at the last moment.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let bytes = file::read(path)?;
        let (header, tensors): (Header, _) = open_with(path, &bytes, KEY)?;
        let Header { progress, owners, .. } = header;
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        let (expected, found) = (sorted(self.owners()), sorted(owners));
        if found != expected {
            let (path, expected, found) = (path.into(), expected.join(", "), found.join(", "));
            return Err(OptimError::OtherOwners {
                path,
                expected,
                found,
            }
            .into());
        }
        for lr in &progress.lrs {
            let checked = Check(A::NAME).not_negative("lr", *lr);
            checked.map_err(|error| damaged(path, error))?;
        }
        let groups = self.progress.lock().lrs.len();
        if progress.lrs.len() != groups {
            let why = format!(
                "it has the learning rates of {} groups, not {groups}",
                progress.lrs.len()
            );
            return Err(damaged(path, why).into());
        }
        let mut states = Vec::with_capacity(self.owners.len());
        for owner in &self.owners {
            let state = tensors.tensor(owner.owner_name());
            let data = state.map_err(|error| damaged(path, error))?.data().to_vec();
            let length = data.len();
            states.push(Tensor::from_vec(data, length, &Device::Cpu)?);
        }
        let mut states = states.into_iter();
        let read = self.on_owners(|owner| {
            let state = states.next().ok_or(Error::ShutDown)?;
            owner.rpc_async(Local::read, (path.display().to_string(), state, true))
        });
        // All of them can, or none does.
        if let Err(error) = read {
            let _ = self.on_owners(|owner| owner.rpc_async(Local::forget, ()));
            return Err(error);
        }
        self.on_owners(|owner| owner.rpc_async(Local::take, ()))?;
        *self.progress.lock() = progress;
        Ok(())
    }

    /// Asks all owners at the same time; what all of them answer, or what went wrong with any.
    fn on_owners<T: Wire>(&self, ask: impl FnMut(&RRef<Local>) -> Result<RpcFuture<T>>) -> Result<Vec<T>> {
        let mut ask = ask;
        let asked: Vec<_> = self.owners.iter().map(|owner| Some(ask(owner))).collect();
        self.answers(asked, |_| Err(Error::ShutDown))
            .map_err(|failed| OptimError::Owners(failed).into())
    }

    /// The same, without a call for what is on this worker: that is done here, while the others are at it.
    fn ask_owners<T: Wire>(
        &self,
        mut there: impl FnMut(&RRef<Local>) -> Result<RpcFuture<T>>,
        here: impl FnMut(&RRef<Local>) -> Result<T>,
    ) -> Result<Vec<T>, Vec<(String, Error)>> {
        let ask = |owner: &RRef<Local>| (!owner.is_owner()).then(|| there(owner));
        let asked = self.owners.iter().map(ask).collect();
        self.answers(asked, here)
    }

    /// Waits for what was asked; what was not is done here, first of all.
    fn answers<T: Wire>(
        &self,
        asked: Vec<Option<Result<RpcFuture<T>>>>,
        mut here: impl FnMut(&RRef<Local>) -> Result<T>,
    ) -> Result<Vec<T>, Vec<(String, Error)>> {
        let mut done: Vec<_> = (self.owners.iter().zip(&asked))
            .map(|(owner, call)| call.is_none().then(|| here(owner)))
            .collect();
        let (mut answers, mut failed) = (Vec::with_capacity(asked.len()), Vec::new());
        for ((owner, call), done) in self.owners.iter().zip(asked).zip(&mut done) {
            let answer = match call {
                Some(call) => call.and_then(RpcFuture::wait),
                None => done.take().unwrap_or(Err(Error::ShutDown)),
            };
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => failed.push((owner.owner_name().to_owned(), error)),
            }
        }
        if failed.is_empty() {
            Ok(answers)
        } else {
            Err(failed)
        }
    }
}

/// The owners' states as they are written.
fn pieces_of<'a>(owners: &[String], states: &'a [Vec<u8>]) -> Vec<Piece<'a>> {
    let piece = |(owner, state): (&String, &'a Vec<u8>)| {
        Piece::new(owner.clone(), Dtype::U8, &[state.len()], Content::Bytes(state))
    };
    owners.iter().zip(states).map(piece).collect()
}

impl<A: Travels> std::fmt::Debug for DistributedOptimizer<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DistributedOptimizer")
            .field("algorithm", &A::NAME)
            .field("owners", &self.owners())
            .finish_non_exhaustive()
    }
}
