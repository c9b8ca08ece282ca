//! The autograd backend over candle.

use candle_core::{Device, Tensor, TensorId, Var};
use telegrad_rpc::{Error, Result};
use telegrad_wire::{RawTensor, TensorMeta, WireError};

use super::seed::Seed;
use super::stack::on_large_stack;
use super::{tape, uniform};
use crate::backend::{AutogradBackend, Root};
use crate::join_time::JoinTime;

/// The backend for candle's tensors.
#[derive(Debug, Default)]
pub struct Candle;

impl AutogradBackend for Candle {
    type Tensor = Tensor;
    type LeafId = TensorId;

    fn requires_grad(&self, tensor: &Tensor) -> bool {
        tensor.track_op() && tensor.dtype().is_float()
    }

    fn make_leaf(&self, raw: RawTensor) -> Result<(TensorId, Tensor)> {
        let (TensorMeta { dtype, shape }, data) = raw.into_parts();
        let cpu = &Device::Cpu;
        use telegrad_wire::DType;
        let no_memory = |error: WireError| Error::other(error);
        // Made as variables here: candle would copy a tensor that becomes one later.
        let leaf = match dtype {
            DType::F32 => Var::from_vec(data.try_into_vec::<f32>().map_err(no_memory)?, shape, cpu)?,
            DType::F64 => Var::from_vec(data.try_into_vec::<f64>().map_err(no_memory)?, shape, cpu)?,
            DType::F16 => Var::from_vec(data.try_into_vec::<half::f16>().map_err(no_memory)?, shape, cpu)?,
            DType::BF16 => Var::from_vec(data.try_into_vec::<half::bf16>().map_err(no_memory)?, shape, cpu)?,
            other => {
                return Err(Error::other(format!(
                    "tensors of element type {other:?} have no gradient"
                )));
            }
        };
        Ok((leaf.id(), leaf.into_inner()))
    }

    fn make_gradient(&self, raw: RawTensor, of: &Tensor) -> Result<Tensor> {
        let gradient = Tensor::try_from(raw).map_err(Error::other)?;
        let gradient = match gradient.rank() {
            0 => gradient.broadcast_as(of.shape())?,
            _ => gradient,
        };
        if gradient.shape() != of.shape() || gradient.dtype() != of.dtype() {
            return Err(Error::other(format!(
                "a gradient of {:?} {:?} came for a tensor of {:?} {:?}",
                gradient.dtype(),
                gradient.shape(),
                of.dtype(),
                of.shape()
            )));
        }
        Ok(gradient.to_device(of.device())?)
    }

    fn compress_gradient(&self, gradient: Tensor) -> Tensor {
        uniform::element(&gradient).unwrap_or(gradient)
    }

    fn check_root(&self, tensor: &Tensor) -> Result<()> {
        if tensor.elem_count() != 1 {
            return Err(Error::other(format!(
                "it has the shape {:?}, and must be a scalar",
                tensor.shape()
            )));
        }
        if !self.requires_grad(tensor) {
            return Err(Error::other(
                "it depends on no parameter and on no tensor received in this context, or an operation without a \
                 gradient lies in between",
            ));
        }
        Ok(())
    }

    fn leaves(&self, roots: &[Tensor]) -> Vec<TensorId> {
        on_large_stack(|| {
            let mut leaves = Vec::new();
            let mut seen = rustc_hash::FxHashSet::default();
            for root in roots {
                let nodes = root.sorted_nodes();
                let variables = nodes
                    .iter()
                    .filter(|node| node.is_variable())
                    .map(|node| node.id());
                leaves.extend(variables.filter(|id| seen.insert(*id)));
            }
            leaves
        })
    }

    fn vjp(&self, roots: &[Root<Self>], leaves: &[TensorId]) -> Result<Vec<(TensorId, Tensor)>> {
        let tape::Traversed {
            leaves: mut found,
            foreign,
        } = tape::run(roots)?;
        for (leaf, gradient) in candle_backward(foreign, leaves)? {
            let sum = match found.remove(&leaf) {
                Some(before) => self.add(&before, &gradient)?,
                None => gradient,
            };
            found.insert(leaf, sum);
        }
        let wanted = leaves.iter();
        Ok(wanted
            .filter_map(|leaf| Some((*leaf, found.remove(leaf)?)))
            .collect())
    }

    fn changed_since(&self, leaf: TensorId, joined: &JoinTime) -> Option<String> {
        super::param::changed_since(leaf, joined)
    }

    fn discard(&self, held: impl Send) {
        on_large_stack(|| drop(held));
    }

    fn add(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        Ok((a + b)?)
    }
}

/// Computes the gradients of leaves with candle's own backward pass, from roots with gradients.
fn candle_backward(roots: Vec<(Tensor, Tensor)>, leaves: &[TensorId]) -> Result<Vec<(TensorId, Tensor)>> {
    let mut start: Option<Tensor> = None;
    for (root, gradient) in roots {
        let gradient = uniform::materialized(&gradient)?;
        let seed = root.apply_op1(Seed { gradient })?;
        start = Some(match start {
            Some(sum) => (sum + seed)?,
            None => seed,
        });
    }
    let Some(start) = start else {
        return Ok(Vec::new());
    };
    let found = on_large_stack(|| start.backward())?;
    let gradient_of = |leaf: &TensorId| {
        // candle's gradients may hold on to its graph.
        let gradient = found.get_id(*leaf)?.detach();
        Some((*leaf, gradient))
    };
    Ok(leaves.iter().filter_map(gradient_of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uniform_gradient_is_sent_as_one_element() {
        let of = Tensor::zeros((2, 3), candle_core::DType::F32, &Device::Cpu).unwrap();
        let scalar = Tensor::new(0.5f32, &Device::Cpu).unwrap();
        let sent = Candle.compress_gradient(scalar.broadcast_as((2, 3)).unwrap());
        assert_eq!(sent.rank(), 0);
        let raw = RawTensor::try_from(&sent).unwrap();
        let gradient = Candle.make_gradient(raw, &of).unwrap();
        assert_eq!(gradient.to_vec2::<f32>().unwrap(), [[0.5; 3]; 2]);

        let full = Tensor::ones((2, 3), candle_core::DType::F32, &Device::Cpu).unwrap();
        assert_eq!(Candle.compress_gradient(full).dims(), [2, 3]);
        let row =
            RawTensor::try_from(&Tensor::ones(3, candle_core::DType::F32, &Device::Cpu).unwrap()).unwrap();
        let error = Candle.make_gradient(row, &of).unwrap_err().to_string();
        assert!(
            error.contains("a gradient of F32 [3] came for a tensor of F32 [2, 3]"),
            "{error}"
        );
    }
}
