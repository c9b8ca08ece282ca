//! The closed set of algorithms that can be sent to other workers.

use telegrad_autograd::Param;
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use crate::local::{ErasedOptimizer, Staging};
use crate::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Algorithm, OptimError, Optimizer, ParamGroup, RMSprop, Rprop, Sgd,
};

/// An algorithm that can be sent to the owners of parameters: one of [`AnyAlgorithm`].
pub trait RemoteAlgorithm: Algorithm + Into<AnyAlgorithm> {}

impl<A: Algorithm + Into<AnyAlgorithm>> RemoteAlgorithm for A {}

macro_rules! algorithms {
    ($($algorithm:ident),* $(,)?) => {
        /// One of the algorithms, with its options.
        #[derive(Clone, Debug, PartialEq, Wire)]
        #[non_exhaustive]
        pub enum AnyAlgorithm {
            $(
                #[doc = concat!("[`", stringify!($algorithm), "`].")]
                $algorithm($algorithm),
            )*
        }

        $(
            impl From<$algorithm> for AnyAlgorithm {
                fn from(options: $algorithm) -> Self {
                    Self::$algorithm(options)
                }
            }
        )*

        impl AnyAlgorithm {
            fn name(&self) -> &'static str {
                match self {
                    $(Self::$algorithm(_) => $algorithm::NAME,)*
                }
            }

            /// Makes an optimiser of groups with the same algorithm.
            pub(crate) fn optimizer(groups: Vec<(Vec<Param>, Self)>) -> Result<Box<dyn ErasedOptimizer>> {
                match groups.first() {
                    $(
                        Some((_, Self::$algorithm(_))) => {
                            let mut same = Vec::with_capacity(groups.len());
                            for (params, algorithm) in groups {
                                match algorithm {
                                    Self::$algorithm(options) => same.push(ParamGroup { params, options }),
                                    other => return Err(OptimError::Mixed($algorithm::NAME, other.name()).into()),
                                }
                            }
                            let optimizer = Optimizer::with_groups(same)?;
                            Ok(Box::new(Staging { optimizer, staged: None }))
                        }
                    )*
                    None => Err(OptimError::NoParameters.into()),
                }
            }
        }
    };
}

algorithms!(Sgd, Adam, AdamW, Adagrad, Adadelta, RMSprop, Rprop, Adamax);
