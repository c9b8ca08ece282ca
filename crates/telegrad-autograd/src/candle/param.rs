//! Parameters.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, LazyLock};

use candle_core::backprop::GradStore;
use candle_core::{DType, Shape, Tensor, TensorId, Var};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use telegrad_rpc::Result;

use crate::births::{self, Birth};

/// How many former leaves a parameter remembers that no open context can have read, for passes over what was
/// read outside of one.
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
    /// Held by whoever makes a new value of the old one. Readers do not wait for it.
    updating: Mutex<()>,
    current: RwLock<Current>,
    /// The variable of a model that was made elsewhere, which is changed in place.
    variable: Option<Var>,
}

struct Current {
    /// A variable: what gradients are taken with respect to.
    leaf: Tensor,
    version: u64,
    /// Former leaves and when they were replaced, the latest first.
    former: VecDeque<(TensorId, u64)>,
}

/// The variables that are changed in place: the names of their parameters, and when they were changed last.
static CHANGED: LazyLock<RwLock<FxHashMap<TensorId, (String, u64)>>> = LazyLock::new(RwLock::default);

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
        Ok(Self::with_leaf(name.into(), copy_of(value)?.into_inner(), None))
    }

    /// A variable of a model that was made with candle's own means, of a `VarMap` for instance.
    ///
    /// Such a variable is changed in place, so it must not be while a pass that has read it is under way: that
    /// is an error, of the change where the pass is known, else of the pass.
    pub fn from_var(name: impl Into<String>, variable: Var) -> Self {
        let leaf = variable.as_tensor().clone();
        Self::with_leaf(name.into(), leaf, Some(variable))
    }

    fn with_leaf(name: String, leaf: Tensor, variable: Option<Var>) -> Self {
        let updating = Mutex::new(());
        let current = RwLock::new(Current {
            leaf,
            version: 0,
            former: VecDeque::new(),
        });
        Self(Arc::new(Inner {
            name,
            updating,
            current,
            variable,
        }))
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

    /// A copy of the present value that later updates leave alone, without gradients.
    ///
    /// [`value`](Self::value) is such a copy already, except for a variable that is changed in place.
    ///
    /// # Errors
    /// When candle cannot copy the value.
    pub fn snapshot(&self) -> Result<Tensor> {
        match &self.0.variable {
            // candle locks the memory, so the copy is of one version.
            Some(variable) => Ok(variable.as_detached_tensor().copy()?),
            None => Ok(self.value()),
        }
    }

    /// The gradient among those of candle's own `backward`; nothing when the loss did not use the parameter.
    ///
    /// ```
    /// use candle_core::{Device, Tensor};
    /// use telegrad_autograd::Param;
    ///
    /// let weight = Param::new(&Tensor::new(&[1f32, 2.0], &Device::Cpu)?)?;
    /// let gradients = weight.tensor().sqr()?.sum_all()?.backward()?;
    /// let gradient = weight.gradient_in(&gradients)?.unwrap();
    /// assert_eq!(gradient.to_vec1::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), telegrad_rpc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When candle cannot add the gradients of several versions.
    pub fn gradient_in(&self, gradients: &GradStore) -> Result<Option<Tensor>> {
        self.sum_over_leaves(|leaf| gradients.get_id(leaf))
    }

    /// Replaces the value by a copy of this one; the new version.
    ///
    /// # Errors
    /// When shape or element type differ from the present value's.
    pub fn set(&self, value: &Tensor) -> Result<u64> {
        let copy = copy_of(value)?;
        self.update(|_| Ok(copy))
    }

    /// Replaces the value by what `f` makes of it: a variable that nobody else has, which is taken as it is. The new
    /// version. One update follows the other, so none is lost; readers do not wait.
    ///
    /// # Errors
    /// Whatever `f` fails with; when shape or element type differ from the present value's.
    pub fn update(&self, f: impl FnOnce(&Tensor) -> Result<Var>) -> Result<u64> {
        let _one_at_a_time = self.0.updating.lock();
        let value = f(&self.value())?;
        let mut current = self.0.current.write();
        if value.shape() != current.leaf.shape() || value.dtype() != current.leaf.dtype() {
            return Err(candle_core::Error::Msg(format!(
                "parameter `{}` is a {:?} of shape {:?}, its new value a {:?} of shape {:?}",
                self.name(),
                current.leaf.dtype(),
                current.leaf.shape(),
                value.dtype(),
                value.shape(),
            ))
            .into());
        }
        match &self.0.variable {
            Some(variable) => change(variable, &value, &self.0.name)?,
            None => current.replace(value.into_inner()),
        }
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
        match (&self.0.variable, &other.0.variable) {
            (Some(ours), Some(theirs)) => ours.id() == theirs.id(),
            _ => Arc::ptr_eq(&self.0, &other.0),
        }
    }

    /// Whether it is changed in place: the leaf, then.
    pub(crate) fn in_place(&self) -> Option<TensorId> {
        self.0.variable.as_ref().map(|variable| variable.id())
    }

    /// The sum of the gradients of the present leaf and of former ones.
    pub(crate) fn sum_over_leaves<'a>(
        &self,
        gradient_of: impl Fn(TensorId) -> Option<&'a Tensor>,
    ) -> Result<Option<Tensor>> {
        let mut found = self.leaves().into_iter().filter_map(gradient_of);
        let Some(first) = found.next() else {
            return Ok(None);
        };
        found
            .try_fold(first.clone(), |sum, more| Ok((sum + more)?))
            .map(Some)
    }

    /// The leaves that it is known by: the present one, and former ones.
    fn leaves(&self) -> Vec<TensorId> {
        let current = self.0.current.read();
        let former = current.former.iter().map(|(leaf, _)| *leaf);
        std::iter::once(current.leaf.id()).chain(former).collect()
    }
}

/// A variable of its own: candle would give the same one for what is one already.
fn copy_of(value: &Tensor) -> Result<Var> {
    Ok(Var::from_tensor(&value.detach())?)
}

impl Current {
    fn replace(&mut self, leaf: Tensor) {
        let former = std::mem::replace(&mut self.leaf, leaf).id();
        self.former.push_front((former, births::tick()));
        // Whoever reads it from now on reads the new one.
        let needed = births::oldest().unwrap_or(u64::MAX);
        while self.former.len() > REMEMBERED && self.former.back().is_some_and(|(_, when)| *when < needed) {
            self.former.pop_back();
        }
    }
}

/// Changes a variable in place. Whoever asks meanwhile whether it was changed waits: a pass that ran into the
/// change would else not hear of it.
fn change(variable: &Var, value: &Tensor, name: &str) -> Result<()> {
    /// With more entries than this, those that concern nobody go.
    const MANY: usize = 1024;
    let mut changed = CHANGED.write();
    variable.set(value)?;
    changed.insert(variable.id(), (name.into(), births::tick()));
    if changed.len() > MANY {
        let needed = births::oldest().unwrap_or(u64::MAX);
        changed.retain(|_, (_, when)| *when >= needed);
    }
    Ok(())
}

/// The name of the parameter that this leaf is, if it is changed in place and was after this birth.
pub(super) fn changed_since(leaf: TensorId, birth: &Birth) -> Option<String> {
    let changed = CHANGED.read();
    let (name, when) = changed.get(&leaf)?;
    birth.is_before(*when).then(|| name.clone())
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
