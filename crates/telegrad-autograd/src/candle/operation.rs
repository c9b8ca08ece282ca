//! Operations with their own derivative, as nodes of candle's graph.
//!
//! candle hides the operands of a tensor, computes the gradients of all operands whether they are wanted or not, and
//! adds each to zeros. The operations made here are registered by their results, so that a pass can traverse them
//! without candle (`tape`). To candle they are ordinary operations.

use std::sync::{Arc, LazyLock, OnceLock};

use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, InplaceOp1, Layout, Result, Shape, Tensor, TensorId, bail,
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telegrad_trace::Kind;

use super::traced::own_memory;
use super::uniform;

/// The input of a derivative. All tensors are detached: the gradients must not be part of a graph.
#[derive(Debug)]
pub struct Pass {
    /// The operands.
    pub args: Vec<Tensor>,
    /// Whether each operand wants a gradient. One that does must get it: candle panics otherwise.
    pub wanted: Vec<bool>,
    /// The result.
    pub result: Tensor,
    /// The gradient of the result: in row-major order, except for a [`strided_operation`].
    pub grad: Tensor,
}

impl Pass {
    /// Brings the gradient into row-major order.
    ///
    /// # Errors
    /// When candle cannot copy the gradient.
    pub fn row_major(self) -> Result<Self> {
        let grad = uniform::materialized(&self.grad)?;
        Ok(Self { grad, ..self })
    }
}

/// One gradient for every operand, `None` where it is not wanted.
pub type Derivatives = Result<Vec<Option<Tensor>>>;

/// Makes a computed value the result of an operation on up to three operands. `backward` computes their gradients.
///
/// The result takes over the memory of the value, which must be in main memory and not shared with another tensor.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use telegrad_autograd::candle::operation;
///
/// let x = Var::new(&[1f32, 2.0], &Device::Cpu)?;
/// let cube = x.as_detached_tensor().powf(3.0)?;
/// let y = operation("cube", &[&x], cube, |pass| {
///     Ok(vec![Some((pass.args[0].sqr()? * 3.0)?.mul(&pass.grad)?)])
/// })?;
/// let gradients = y.backward()?;
/// assert_eq!(gradients.get(&x).unwrap().to_vec1::<f32>()?, [3.0, 12.0]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// When there are no operands or more than three, or candle cannot hold the value.
pub fn operation(
    name: &'static str,
    args: &[&Tensor],
    value: Tensor,
    backward: impl Fn(Pass) -> Derivatives + Send + Sync + 'static,
) -> Result<Tensor> {
    strided_operation(name, args, value, move |pass| backward(pass.row_major()?))
}

/// As [`operation`], for a `backward` that accepts the gradient of the result in any layout. A uniform gradient is then
/// not materialized.
///
/// # Errors
/// As [`operation`].
pub fn strided_operation(
    name: &'static str,
    args: &[&Tensor],
    value: Tensor,
    backward: impl Fn(Pass) -> Derivatives + Send + Sync + 'static,
) -> Result<Tensor> {
    if !args.iter().any(|arg| arg.track_op()) {
        return Ok(value);
    }
    let operation = Arc::new(Operation {
        name,
        args: args.iter().map(|&arg| arg.clone()).collect(),
        value: Mutex::new(Some(take_storage(value)?)),
        backward: Box::new(backward),
        result: OnceLock::new(),
    });
    let node = Node(operation.clone());
    let result = match *args {
        [a] => a.apply_op1(node)?,
        [a, b] => a.apply_op2(b, node)?,
        [a, b, c] => a.apply_op3(b, c, node)?,
        _ => bail!("{name}: an operation has one to three operands"),
    };
    operation.result.get_or_init(|| result.id());
    REGISTERED.lock().insert(result.id(), operation);
    Ok(result)
}

/// The operations by their results, while these exist.
pub(super) static REGISTERED: LazyLock<Mutex<FxHashMap<TensorId, Arc<Operation>>>> =
    LazyLock::new(Mutex::default);

/// An operation that was applied.
pub(super) struct Operation {
    name: &'static str,
    pub(super) args: Vec<Tensor>,
    /// Taken by candle's forward pass, which runs at once.
    value: Mutex<Option<(CpuStorage, Shape)>>,
    backward: Box<dyn Fn(Pass) -> Derivatives + Send + Sync>,
    result: OnceLock<TensorId>,
}

impl Operation {
    /// Computes the gradients of the operands that are part of a graph.
    pub(super) fn gradients(&self, result: &Tensor, grad: &Tensor) -> Derivatives {
        let scope = telegrad_trace::scope(Kind::Autograd, || format!("{} backward", self.name).into());
        let gradients = (self.backward)(Pass {
            args: self.args.iter().map(Tensor::detach).collect(),
            wanted: self.args.iter().map(Tensor::track_op).collect(),
            result: result.detach(),
            grad: grad.detach(),
        });
        match &gradients {
            Ok(gradients) => scope.add_tensor_bytes(|| {
                let others: Vec<_> = self.args.iter().chain([result, grad]).collect();
                let made = gradients.iter().flatten();
                made.map(|made| own_memory(made, &others)).sum()
            }),
            Err(error) => scope.fail(|| error.to_string()),
        }
        gradients
    }
}

/// The operation in candle's graph. Dropped with the result, it unregisters the operation.
struct Node(Arc<Operation>);

impl Node {
    fn value(&self) -> Result<(CpuStorage, Shape)> {
        match self.0.value.lock().take() {
            Some(value) => Ok(value),
            None => bail!("{}: the value was taken twice", self.0.name),
        }
    }

    fn gradients<const N: usize>(&self, result: &Tensor, grad: &Tensor) -> Result<[Option<Tensor>; N]> {
        let mut all = self.0.gradients(result, grad)?.into_iter();
        Ok(std::array::from_fn(|_| all.next().flatten()))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Dropping it may drop its operands, and with them other operations: release the lock first.
        let operation = self
            .0
            .result
            .get()
            .and_then(|result| REGISTERED.lock().remove(result));
        drop(operation);
    }
}

impl CustomOp1 for Node {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        self.value()
    }

    fn bwd(&self, _: &Tensor, result: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        let [a] = self.gradients(result, grad)?;
        Ok(a)
    }
}

impl CustomOp2 for Node {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        self.value()
    }

    fn bwd(
        &self,
        _: &Tensor,
        _: &Tensor,
        result: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let [a, b] = self.gradients(result, grad)?;
        Ok((a, b))
    }
}

impl CustomOp3 for Node {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.value()
    }

    fn bwd(
        &self,
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
        result: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let [a, b, c] = self.gradients(result, grad)?;
        Ok((a, b, c))
    }
}

/// Takes the memory out of a tensor that does not share it; also returns the shape.
fn take_storage(value: Tensor) -> Result<(CpuStorage, Shape)> {
    // An empty result may be candle's operand itself, which must keep its memory.
    let value = match value.elem_count() {
        0 => value.copy()?,
        _ => value,
    };
    let taking = TakeStorage(Mutex::new(None));
    value.inplace_op1(&taking)?;
    match taking.0.into_inner() {
        Some(storage) => Ok((storage, value.shape().clone())),
        None => bail!("the value has no memory to take"),
    }
}

/// Candle's in-place operation that takes the memory out of a tensor.
struct TakeStorage(Mutex<Option<CpuStorage>>);

impl InplaceOp1 for TakeStorage {
    fn name(&self) -> &'static str {
        "take"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        if !matches!(layout.contiguous_offsets(), Some((0, _))) {
            bail!("a value must be all of its memory, in row-major order");
        }
        *self.0.lock() = Some(std::mem::replace(storage, CpuStorage::U8(Vec::new())));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    fn doubled(x: &Tensor) -> Tensor {
        let value = (x.detach() * 2.0).unwrap();
        operation("double", &[x], value, |pass| Ok(vec![Some((pass.grad * 2.0)?)])).unwrap()
    }

    fn is_registered(id: TensorId) -> bool {
        REGISTERED.lock().contains_key(&id)
    }

    #[test]
    fn an_operation_is_registered_while_its_result_exists() {
        let x = Var::new(1f32, &Device::Cpu).unwrap();
        let y = doubled(&x);
        let z = doubled(&y);
        let (y_id, z_id) = (y.id(), z.id());
        assert!(is_registered(y_id) && is_registered(z_id));
        drop(y);
        assert!(is_registered(y_id), "another result is computed from it");
        drop(z);
        assert!(!is_registered(y_id) && !is_registered(z_id));
    }

    #[test]
    fn an_operation_on_untracked_operands_is_its_value() {
        let x = Tensor::new(1f32, &Device::Cpu).unwrap();
        let y = doubled(&x);
        assert!(!y.track_op() && !is_registered(y.id()));
        assert_eq!(y.to_scalar::<f32>().unwrap(), 2.0);
    }

    #[test]
    fn the_result_takes_over_the_memory_of_the_value() {
        let x = Var::new(&[1f32, 2.0], &Device::Cpu).unwrap();
        let value = vec![2f32, 4.0];
        let address = value.as_ptr();
        let value = Tensor::from_vec(value, 2, &Device::Cpu).unwrap();
        let y = operation("double", &[&x], value, |pass| Ok(vec![Some((pass.grad * 2.0)?)])).unwrap();
        let (storage, _) = y.storage_and_layout();
        let candle_core::Storage::Cpu(storage) = &*storage else {
            panic!("the storage is not on the CPU");
        };
        assert_eq!(storage.as_slice::<f32>().unwrap().as_ptr(), address);
    }

    #[test]
    fn a_value_that_is_a_view_is_refused() {
        let x = Var::new(&[1f32, 2.0], &Device::Cpu).unwrap();
        let part = x.as_detached_tensor().narrow(0, 1, 1).unwrap();
        let error = operation("part", &[&x], part, |_| Ok(vec![None])).unwrap_err();
        assert!(error.to_string().contains("all of its memory"), "{error}");
        assert_eq!(x.to_vec1::<f32>().unwrap(), [1.0, 2.0]);
    }
}
