//! Operations with a side effect in the backward pass.

use candle_core::{CpuStorage, CustomOp1, Layout, Shape};

use super::*;

/// The effect of such an operation.
#[derive(Clone, Debug, telegrad_wire::Wire)]
pub(super) enum Effect {
    Fail,
    Panic,
    /// Raises "in backward", and blocks until "go on".
    Wait(Board),
}

/// The identity, with an effect in the backward pass.
struct Special(Effect);

impl CustomOp1 for Special {
    fn name(&self) -> &'static str {
        "special"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let data = storage.as_slice::<f32>()?;
        let (start, end) = layout.contiguous_offsets().expect("contiguous");
        Ok((CpuStorage::F32(data[start..end].to_vec()), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> candle_core::Result<Option<Tensor>> {
        match &self.0 {
            Effect::Fail => candle_core::bail!("this cannot be differentiated"),
            Effect::Panic => panic!("this must not be differentiated"),
            Effect::Wait(board) => {
                board.raise("in backward");
                board.wait("go on");
            }
        }
        Ok(Some(gradient.clone()))
    }
}

#[remote]
pub(super) fn special(x: Tensor, effect: Effect) -> Result<Tensor> {
    Ok(x.apply_op1(Special(effect))?)
}

/// [`special`] on the last of these workers, through the others.
#[remote]
pub(super) fn special_through(x: Tensor, effect: Effect, workers: Vec<u32>) -> Result<Tensor> {
    match workers.split_first() {
        Some((next, rest)) => {
            World::current()?.rpc_sync(*next, special_through, ((x * 1.0)?, effect, rest.to_vec()))
        }
        None => Ok(x.apply_op1(Special(effect))?),
    }
}
