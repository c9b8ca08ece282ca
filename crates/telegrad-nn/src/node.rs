//! Operations with a backward pass of their own, as nodes of candle's graph.

use candle_core::{CpuStorage, CustomOp1, CustomOp2, CustomOp3, Device, Layout, Result, Shape, Tensor, bail};
use parking_lot::Mutex;

use crate::real::Real;

/// What a backward pass is given. All tensors are detached: what it returns must not be part of a graph.
pub(crate) struct Pass {
    /// The inputs.
    pub(crate) args: Vec<Tensor>,
    /// Which inputs want a gradient. Each of them must get one: candle takes a missing one for a bug of
    /// its own and panics.
    pub(crate) wanted: Vec<bool>,
    /// The output.
    pub(crate) result: Tensor,
    /// The gradient of the output.
    pub(crate) grad: Tensor,
}

/// One gradient for every input, `None` where it is not wanted.
pub(crate) type Gradients = Result<Vec<Option<Tensor>>>;

/// Makes a computed value the result of an operation on up to three inputs, so that a backward pass
/// goes through `backward`.
pub(crate) fn node<T: Real>(
    name: &'static str,
    args: &[&Tensor],
    value: Vec<T>,
    shape: impl Into<Shape>,
    backward: impl Fn(Pass) -> Gradients + Send + Sync + 'static,
) -> Result<Tensor> {
    let shape = shape.into();
    if value.len() != shape.elem_count() {
        bail!("{name}: {} numbers for the shape {:?}", value.len(), shape.dims());
    }
    if !args.iter().any(|arg| arg.track_op()) {
        return Tensor::from_vec(value, shape, &Device::Cpu);
    }
    let node = Node {
        name,
        value: Mutex::new(Some((T::to_cpu_storage_owned(value), shape))),
        backward,
    };
    match *args {
        [a] => a.apply_op1(node),
        [a, b] => a.apply_op2(b, node),
        [a, b, c] => a.apply_op3(b, c, node),
        _ => bail!("{name}: an operation has one to three inputs"),
    }
}

struct Node<F> {
    name: &'static str,
    /// Until candle fetches it, which is at once.
    value: Mutex<Option<(CpuStorage, Shape)>>,
    backward: F,
}

impl<F: Fn(Pass) -> Gradients> Node<F> {
    fn take(&self) -> Result<(CpuStorage, Shape)> {
        match self.value.lock().take() {
            Some(value) => Ok(value),
            None => bail!("{}: the value was fetched twice", self.name),
        }
    }

    fn gradients(&self, args: &[&Tensor], result: &Tensor, grad: &Tensor) -> Gradients {
        (self.backward)(Pass {
            args: args.iter().map(|arg| arg.detach()).collect(),
            wanted: args.iter().map(|arg| arg.track_op()).collect(),
            result: result.detach(),
            grad: grad.detach().contiguous()?,
        })
    }
}

impl<F: Fn(Pass) -> Gradients> CustomOp1 for Node<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        self.take()
    }

    fn bwd(&self, arg: &Tensor, result: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        let mut all = self.gradients(&[arg], result, grad)?.into_iter();
        Ok(all.next().flatten())
    }
}

impl<F: Fn(Pass) -> Gradients> CustomOp2 for Node<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        self.take()
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        result: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let mut all = self.gradients(&[a, b], result, grad)?.into_iter();
        Ok((all.next().flatten(), all.next().flatten()))
    }
}

impl<F: Fn(Pass) -> Gradients> CustomOp3 for Node<F> {
    fn name(&self) -> &'static str {
        self.name
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
        self.take()
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        c: &Tensor,
        result: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let mut all = self.gradients(&[a, b, c], result, grad)?.into_iter();
        Ok((all.next().flatten(), all.next().flatten(), all.next().flatten()))
    }
}
