//! Operations with a derivative of their own, as nodes of candle's graph.
//!
//! candle keeps to itself what a tensor was computed from, takes the gradients of all operands whether they are
//! wanted or not, and adds each to zeros. Operations that were made here are known by their results, so that a
//! pass can go through them without candle (`tape`). For candle they are operations like any other.

use std::sync::{Arc, LazyLock, OnceLock};

use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, InplaceOp1, Layout, Result, Shape, Tensor, TensorId, bail,
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telegrad_trace::Kind;

use super::recorded::taken;

use super::uniform;

/// What a derivative is given. All tensors are detached: what it returns must not be part of a graph.
#[derive(Debug)]
pub struct Pass {
    /// The operands.
    pub args: Vec<Tensor>,
    /// Which operands want a gradient. Each of them must get one: candle takes a missing one for a bug of its own
    /// and panics.
    pub wanted: Vec<bool>,
    /// The result.
    pub result: Tensor,
    /// The gradient of the result: in row-major order, except for a [`strided_operation`].
    pub grad: Tensor,
}

impl Pass {
    /// The same, with a gradient in row-major order.
    ///
    /// # Errors
    /// When candle cannot bring it there.
    pub fn row_major(self) -> Result<Self> {
        let grad = uniform::written_out(&self.grad)?;
        Ok(Self { grad, ..self })
    }
}

/// One gradient for every operand, `None` where it is not wanted.
pub type Derivatives = Result<Vec<Option<Tensor>>>;

/// Makes a computed value the result of an operation on up to three operands, whose gradients `backward` finds.
///
/// The value must be a tensor that was made for this and that shares its memory with no other: the memory becomes
/// the result's. It has to be in main memory.
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

/// As [`operation`], for a `backward` that takes the gradient of the result in any layout: it may show one element
/// everywhere, and is not written out then.
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
        value: Mutex::new(Some(taken_from(value)?)),
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
    KNOWN.lock().insert(result.id(), operation);
    Ok(result)
}

/// The operations by their results, as long as these are there.
pub(super) static KNOWN: LazyLock<Mutex<FxHashMap<TensorId, Arc<Operation>>>> = LazyLock::new(Mutex::default);

/// An operation that was applied.
pub(super) struct Operation {
    name: &'static str,
    pub(super) args: Vec<Tensor>,
    /// Until candle fetches it, which is at once.
    value: Mutex<Option<(CpuStorage, Shape)>>,
    backward: Box<dyn Fn(Pass) -> Derivatives + Send + Sync>,
    result: OnceLock<TensorId>,
}

impl Operation {
    /// The gradients of the operands that are part of a graph.
    pub(super) fn gradients(&self, result: &Tensor, grad: &Tensor) -> Derivatives {
        let recorded = telegrad_trace::scope(Kind::Autograd, || format!("{} backward", self.name).into());
        let gradients = (self.backward)(Pass {
            args: self.args.iter().map(Tensor::detach).collect(),
            wanted: self.args.iter().map(Tensor::track_op).collect(),
            result: result.detach(),
            grad: grad.detach(),
        });
        match &gradients {
            Ok(gradients) => recorded.add_tensor_bytes(|| {
                let others: Vec<_> = self.args.iter().chain([result, grad]).collect();
                let made = gradients.iter().flatten();
                made.map(|made| taken(made, &others)).sum()
            }),
            Err(error) => recorded.fail(|| error.to_string()),
        }
        gradients
    }
}

/// What candle has of it. With its result it goes, and the operation is not known any more.
struct Node(Arc<Operation>);

impl Node {
    fn value(&self) -> Result<(CpuStorage, Shape)> {
        match self.0.value.lock().take() {
            Some(value) => Ok(value),
            None => bail!("{}: the value was fetched twice", self.0.name),
        }
    }

    fn gradients<const N: usize>(&self, result: &Tensor, grad: &Tensor) -> Result<[Option<Tensor>; N]> {
        let mut all = self.0.gradients(result, grad)?.into_iter();
        Ok(std::array::from_fn(|_| all.next().flatten()))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Its operands may go with it, and with them other operations: not under the lock.
        let known = self.0.result.get().and_then(|result| KNOWN.lock().remove(result));
        drop(known);
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

/// The memory of a tensor that nobody else has, and its shape.
fn taken_from(value: Tensor) -> Result<(CpuStorage, Shape)> {
    // What candle computes of no elements may be the operand itself, which has to keep its memory.
    let value = match value.elem_count() {
        0 => value.copy()?,
        _ => value,
    };
    let taking = Taking(Mutex::new(None));
    value.inplace_op1(&taking)?;
    match taking.0.into_inner() {
        Some(storage) => Ok((storage, value.shape().clone())),
        None => bail!("there was no memory to take"),
    }
}

/// Takes the memory out of a tensor.
struct Taking(Mutex<Option<CpuStorage>>);

impl InplaceOp1 for Taking {
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

    fn is_known(id: TensorId) -> bool {
        KNOWN.lock().contains_key(&id)
    }

    #[test]
    fn an_operation_is_known_as_long_as_its_result_is_there() {
        let x = Var::new(1f32, &Device::Cpu).unwrap();
        let y = doubled(&x);
        let z = doubled(&y);
        let (y_id, z_id) = (y.id(), z.id());
        assert!(is_known(y_id) && is_known(z_id));
        drop(y);
        assert!(is_known(y_id), "another result is computed from it");
        drop(z);
        assert!(!is_known(y_id) && !is_known(z_id));
    }

    #[test]
    fn an_operation_on_what_is_not_tracked_is_its_value() {
        let x = Tensor::new(1f32, &Device::Cpu).unwrap();
        let y = doubled(&x);
        assert!(!y.track_op() && !is_known(y.id()));
        assert_eq!(y.to_scalar::<f32>().unwrap(), 2.0);
    }

    #[test]
    fn an_operation_has_its_value_in_the_memory_that_it_was_computed_in() {
        let x = Var::new(&[1f32, 2.0], &Device::Cpu).unwrap();
        let value = vec![2f32, 4.0];
        let place = value.as_ptr();
        let value = Tensor::from_vec(value, 2, &Device::Cpu).unwrap();
        let y = operation("double", &[&x], value, |pass| Ok(vec![Some((pass.grad * 2.0)?)])).unwrap();
        let (storage, _) = y.storage_and_layout();
        let candle_core::Storage::Cpu(storage) = &*storage else {
            panic!("it is elsewhere");
        };
        assert_eq!(storage.as_slice::<f32>().unwrap().as_ptr(), place);
    }

    #[test]
    fn a_value_that_is_part_of_another_is_refused() {
        let x = Var::new(&[1f32, 2.0], &Device::Cpu).unwrap();
        let part = x.as_detached_tensor().narrow(0, 1, 1).unwrap();
        let error = operation("part", &[&x], part, |_| Ok(vec![None])).unwrap_err();
        assert!(error.to_string().contains("all of its memory"), "{error}");
        assert_eq!(x.to_vec1::<f32>().unwrap(), [1.0, 2.0]);
    }
}
