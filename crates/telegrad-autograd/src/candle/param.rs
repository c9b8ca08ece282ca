//! Parameters.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, LazyLock};

use candle_core::backprop::GradStore;
use candle_core::{DType, Shape, Tensor, TensorId, Var};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use telegrad_rpc::Result;

use crate::join_time::{self, JoinTime};

/// The number of former leaves that a parameter remembers beyond those that open contexts may have read. Candle's own
/// passes, outside of contexts, use them.
const REMEMBERED: usize = 16;

/// A parameter of a model: a tensor that is learnt.
///
/// Reads return a snapshot, and an update replaces the whole value. A pass in flight keeps the value that it has read,
/// so many trainers can share a model without a lock around their steps. Clones are the same parameter.
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
    /// Serialises updates. Readers do not take it.
    updating: Mutex<()>,
    current: RwLock<Current>,
    /// The variable of a candle model, which is changed in place.
    variable: Option<Var>,
}

struct Current {
    /// A variable, with respect to which gradients are taken.
    leaf: Tensor,
    version: u64,
    /// Former leaves with the times of their replacement, latest first.
    former: VecDeque<(TensorId, u64)>,
}

/// The variables that are changed in place: parameter name and time of the last change.
static CHANGED: LazyLock<RwLock<FxHashMap<TensorId, (String, u64)>>> = LazyLock::new(RwLock::default);

impl Param {
    /// Makes a parameter with this value.
    ///
    /// # Errors
    /// When candle cannot copy the value.
    pub fn new(value: &Tensor) -> Result<Self> {
        Self::named("", value)
    }

    /// Makes a parameter with a name, for errors and files.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn named(name: impl Into<String>, value: &Tensor) -> Result<Self> {
        Ok(Self::with_leaf(name.into(), copy_of(value)?.into_inner(), None))
    }

    /// Makes a parameter of a variable of a candle model, of a `VarMap` for instance.
    ///
    /// Updates change such a variable in place, which is an error while a pass that has read it is under way: an error of
    /// the update if it finds the pass, otherwise of the pass.
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

    /// The name; empty when there is none.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The present value as a variable, to compute with.
    pub fn tensor(&self) -> Tensor {
        self.0.current.read().leaf.clone()
    }

    /// The present value, detached.
    pub fn value(&self) -> Tensor {
        self.0.current.read().leaf.detach()
    }

    /// A detached copy of the present value, unaffected by later updates.
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

    /// The gradient from candle's own `backward`; `None` when the loss does not depend on the parameter.
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

    /// Replaces the value by a copy of this one; returns the new version.
    ///
    /// # Errors
    /// When shape or element type differ from the present value's.
    pub fn set(&self, value: &Tensor) -> Result<u64> {
        let copy = copy_of(value)?;
        self.update(|_| Ok(copy))
    }

    /// Replaces the value by the variable that `f` makes of it; returns the new version.
    ///
    /// The variable is not copied, so it must not be shared. Updates are serialised, so none is lost; readers do not wait.
    ///
    /// # Errors
    /// The error of `f`; when shape or element type differ from the present value's.
    pub fn update(&self, f: impl FnOnce(&Tensor) -> Result<Var>) -> Result<u64> {
        let _serialised = self.0.updating.lock();
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

    /// The number of updates so far.
    pub fn version(&self) -> u64 {
        self.0.current.read().version
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.0.current.read().leaf.shape().clone()
    }

    /// The element type.
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

    /// The leaf of a variable that is changed in place.
    pub(crate) fn in_place(&self) -> Option<TensorId> {
        self.0.variable.as_ref().map(|variable| variable.id())
    }

    /// Sums the gradients of the present leaf and of former ones.
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

    /// The present leaf, then the former ones.
    fn leaves(&self) -> Vec<TensorId> {
        let current = self.0.current.read();
        let former = current.former.iter().map(|(leaf, _)| *leaf);
        std::iter::once(current.leaf.id()).chain(former).collect()
    }
}

/// Copies a value into a new variable. Detached first: candle returns a variable as it is.
fn copy_of(value: &Tensor) -> Result<Var> {
    Ok(Var::from_tensor(&value.detach())?)
}

impl Current {
    fn replace(&mut self, leaf: Tensor) {
        let former = std::mem::replace(&mut self.leaf, leaf).id();
        self.former.push_front((former, join_time::tick()));
        // Contexts that open from now on read the new leaf.
        let needed = join_time::oldest().unwrap_or(u64::MAX);
        while self.former.len() > REMEMBERED && self.former.back().is_some_and(|(_, when)| *when < needed) {
            self.former.pop_back();
        }
    }
}

/// Changes a variable in place, under the lock of [`CHANGED`]: a concurrent pass that checks for changes waits, and so
/// detects this one.
fn change(variable: &Var, value: &Tensor, name: &str) -> Result<()> {
    /// The number of entries above which those older than every open context are removed.
    const MANY: usize = 1024;
    let mut changed = CHANGED.write();
    variable.set(value)?;
    changed.insert(variable.id(), (name.into(), join_time::tick()));
    if changed.len() > MANY {
        let needed = join_time::oldest().unwrap_or(u64::MAX);
        changed.retain(|_, (_, when)| *when >= needed);
    }
    Ok(())
}

/// Returns the name of a parameter that was changed in place after this time.
pub(super) fn changed_since(leaf: TensorId, joined: &JoinTime) -> Option<String> {
    let changed = CHANGED.read();
    let (name, when) = changed.get(&leaf)?;
    joined.is_before(*when).then(|| name.clone())
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
