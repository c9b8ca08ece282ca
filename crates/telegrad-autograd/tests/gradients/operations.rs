//! Operations that do something special in the backward pass.

use candle_core::{CpuStorage, CustomOp1, Layout, Shape};

use super::*;

/// What such an operation does.
#[derive(Clone, Debug, telegrad_wire::Wire)]
pub(super) enum Deed {
    Fail,
    Panic,
    /// Says so, and waits until it is told to go on.
    Wait(Board),
}

/// Gives what it gets, and its gradient once it has done what it does.
struct Special(Deed);

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
            Deed::Fail => candle_core::bail!("this cannot be differentiated"),
            Deed::Panic => panic!("this must not be differentiated"),
            Deed::Wait(board) => {
                board.raise("in backward");
                board.wait("go on");
            }
        }
        Ok(Some(gradient.clone()))
    }
}

#[remote]
pub(super) fn special(x: Tensor, deed: Deed) -> Result<Tensor> {
    Ok(x.apply_op1(Special(deed))?)
}

/// The same on the last of these workers, by way of the others.
#[remote]
pub(super) fn special_through(x: Tensor, deed: Deed, workers: Vec<u32>) -> Result<Tensor> {
    match workers.split_first() {
        Some((next, rest)) => {
            World::current()?.rpc_sync(*next, special_through, ((x * 1.0)?, deed, rest.to_vec()))
        }
        None => Ok(x.apply_op1(Special(deed))?),
    }
}
