//! Parameters.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use candle_core::{DType, Shape, Tensor, TensorId, Var};
use parking_lot::RwLock;
use telegrad_rpc::Result;

/// How many former leaves a parameter remembers, to know gradients of passes that read them outside
/// of a context.
const REMEMBERED: usize = 16;

/// A parameter of a model: a tensor that is learnt.
///
/// It is read as a snapshot and replaced as a whole. A pass in flight keeps what it has read, whatever
/// an optimiser does meanwhile, so many trainers can share a model without a lock around their steps.
/// Clones are the same parameter.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use telegrad_autograd::Param;
///
/// let weight = Param::new(&Tensor::new(&[1f32, 2.0], &Device::Cpu)?)?;
/// let before = weight.tensor();
/// weight.set(&Tensor::new(&[3f32, 4.0], &Device::Cpu)?)?;
/// assert_eq!(before.to_vec1::<f32>()?, [1.0, 2.0]);
/// assert_eq!(weight.tensor().to_vec1::<f32>()?, [3.0, 4.0]);
/// assert_eq!(weight.version(), 1);
/// # Ok::<(), telegrad_rpc::Error>(())
/// ```
#[derive(Clone)]
pub struct Param(Arc<Inner>);

struct Inner {
    name: String,
    current: RwLock<Current>,
}

struct Current {
    /// A variable: what gradients are taken with respect to.
    leaf: Tensor,
    version: u64,
    /// Former leaves, the latest first.
    former: VecDeque<TensorId>,
}

impl Param {
    /// A parameter that starts with this value.
    ///
    /// # Errors
    /// When candle cannot copy the value.
    pub fn new(value: &Tensor) -> Result<Self> {
        Self::named("", value)
    }

    /// A parameter with a name, for people and for files.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn named(name: impl Into<String>, value: &Tensor) -> Result<Self> {
        let current = Current {
            leaf: Var::from_tensor(value)?.into_inner(),
            version: 0,
            former: VecDeque::new(),
        };
        Ok(Self(Arc::new(Inner {
            name: name.into(),
            current: RwLock::new(current),
        })))
    }

    /// Its name; empty when it has none.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The present value, to compute with: gradients are taken with respect to it.
    pub fn tensor(&self) -> Tensor {
        self.0.current.read().leaf.clone()
    }

    /// The present value, without gradients.
    pub fn value(&self) -> Tensor {
        self.0.current.read().leaf.detach()
    }

    /// Replaces the value; the new version. A variable made for this purpose is taken as it is,
    /// anything else is copied.
    ///
    /// # Errors
    /// When shape or element type differ from the present value's.
    pub fn set(&self, value: &Tensor) -> Result<u64> {
        let leaf = Var::from_tensor(value)?.into_inner();
        let mut current = self.0.current.write();
        if leaf.shape() != current.leaf.shape() || leaf.dtype() != current.leaf.dtype() {
            return Err(candle_core::Error::Msg(format!(
                "parameter `{}` is a {:?} of shape {:?}, its new value a {:?} of shape {:?}",
                self.name(),
                current.leaf.dtype(),
                current.leaf.shape(),
                leaf.dtype(),
                leaf.shape(),
            ))
            .into());
        }
        let former = std::mem::replace(&mut current.leaf, leaf).id();
        current.former.push_front(former);
        current.former.truncate(REMEMBERED);
        current.version += 1;
        Ok(current.version)
    }

    /// How often the value has been replaced.
    pub fn version(&self) -> u64 {
        self.0.current.read().version
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.0.current.read().leaf.shape().clone()
    }

    /// Its element type.
    pub fn dtype(&self) -> DType {
        self.0.current.read().leaf.dtype()
    }

    /// Whether both are the same parameter.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = self.0.current.read();
        write!(
            f,
            "Param({:?} {:?} {:?}, version {})",
            self.0.name,
            current.leaf.dtype(),
            current.leaf.shape(),
            current.version
        )
    }
}
