//! The part of a distributed optimiser on one owner of parameters.

use std::path::Path;

use candle_core::{Device, Tensor};
use telegrad_autograd::{Context, Param};
use telegrad_rpc::{Error, RRef, Result, remote};
use telegrad_wire::Wire;

use crate::checkpoint::Loaded;
use crate::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Algorithm, OptimError, Optimizer, ParamGroup, RMSprop, Rprop,
    Sgd, squared_norm,
};

/// An optimiser of this worker's parameters that others use.
pub(crate) struct Local(Box<dyn Any>);

/// An optimiser, whatever its algorithm.
trait Any: Send + Sync {
    fn step(&mut self, lrs: &[f64], scale: f64, context: &Context) -> Result<()>;
    fn params(&self) -> Vec<Param>;
    fn to_bytes(&self, values: bool) -> Result<Vec<u8>>;
    fn read_bytes(&mut self, path: &Path, bytes: &[u8], values: bool) -> Result<()>;
    fn take(&mut self) -> Result<()>;
    fn forget(&mut self);
}

/// An optimiser, and what it is about to load.
struct Owned<A> {
    optimizer: Optimizer<A>,
    coming: Option<Loaded<A>>,
}

impl<A: Algorithm> Any for Owned<A> {
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

    fn read_bytes(&mut self, path: &Path, bytes: &[u8], values: bool) -> Result<()> {
        self.coming = Some(self.optimizer.read_bytes(path, bytes, values)?);
        Ok(())
    }

    fn take(&mut self) -> Result<()> {
        let coming = self.coming.take();
        let coming =
            coming.ok_or_else(|| Error::other("there is nothing to load: something else was loaded"))?;
        self.optimizer.take(coming)
    }

    fn forget(&mut self) {
        self.coming = None;
    }
}

/// The parameters of one group that are on one worker.
#[derive(Wire)]
pub(crate) struct LocalGroup {
    pub(crate) params: Vec<RRef<Param>>,
    pub(crate) method: Method,
}

#[remote(name = "telegrad::optim::Local")]
impl Local {
    pub(crate) fn new(groups: Vec<LocalGroup>) -> Result<Self> {
        let mut found = Vec::with_capacity(groups.len());
        for LocalGroup { params, method } in groups {
            let params = params.iter().map(|param| Ok(param.local_value()?.clone()));
            found.push((params.collect::<Result<Vec<_>>>()?, method));
        }
        Method::optimizer(found).map(Self)
    }

    /// Answers when it is there.
    pub(crate) fn ready(&self) {}

    /// Moves the parameters by the gradients of the context that this is called in.
    pub(crate) fn step(&mut self, lrs: Vec<f64>, scale: f64) -> Result<()> {
        self.step_in(&Context::current()?, &lrs, scale)
    }

    /// The squared norm of the gradients of the context that this is called in.
    pub(crate) fn squared_norm(&self) -> Result<f64> {
        self.squared_norm_in(&Context::current()?)
    }

    /// Everything that is needed to go on from here.
    pub(crate) fn save(&self, values: bool) -> Result<Tensor> {
        let bytes = self.0.to_bytes(values)?;
        let length = bytes.len();
        Ok(Tensor::from_vec(bytes, length, &Device::Cpu)?)
    }

    /// Looks at what is to be loaded, and keeps it. The path is for errors.
    pub(crate) fn read(&mut self, path: String, bytes: Tensor, values: bool) -> Result<()> {
        self.0.read_bytes(Path::new(&path), &bytes.to_vec1()?, values)
    }

    /// Goes on from what was read.
    pub(crate) fn take(&mut self) -> Result<()> {
        self.0.take()
    }

    /// Lets go of what was read.
    pub(crate) fn forget(&mut self) {
        self.0.forget();
    }
}

/// For whoever is on the same worker.
impl Local {
    /// Moves the parameters by the gradients of a context.
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

/// An algorithm on its way to an owner of parameters.
pub trait Travels: Algorithm + Into<Method> {}

impl<A: Algorithm + Into<Method>> Travels for A {}

macro_rules! methods {
    ($($algorithm:ident),* $(,)?) => {
        /// Any of the algorithms, with its options.
        #[derive(Clone, Debug, PartialEq, Wire)]
        #[non_exhaustive]
        pub enum Method {
            $(
                #[doc = concat!("[`", stringify!($algorithm), "`].")]
                $algorithm($algorithm),
            )*
        }

        $(
            impl From<$algorithm> for Method {
                fn from(options: $algorithm) -> Self {
                    Self::$algorithm(options)
                }
            }
        )*

        impl Method {
            fn name(&self) -> &'static str {
                match self {
                    $(Self::$algorithm(_) => $algorithm::NAME,)*
                }
            }

            /// An optimiser of these groups.
            fn optimizer(groups: Vec<(Vec<Param>, Self)>) -> Result<Box<dyn Any>> {
                match groups.first() {
                    $(
                        Some((_, Self::$algorithm(_))) => {
                            let mut same = Vec::with_capacity(groups.len());
                            for (params, method) in groups {
                                match method {
                                    Self::$algorithm(options) => same.push(ParamGroup { params, options }),
                                    other => return Err(OptimError::Mixed($algorithm::NAME, other.name()).into()),
                                }
                            }
                            let optimizer = Optimizer::with_groups(same)?;
                            Ok(Box::new(Owned { optimizer, coming: None }))
                        }
                    )*
                    None => Err(OptimError::NoParameters.into()),
                }
            }
        }
    };
}

methods!(Sgd, Adam, AdamW, Adagrad, Adadelta, RMSprop, Rprop, Adamax);
