//! Tensors that gradients do not reach.

use candle_core::Tensor;
use rustc_hash::FxHashSet;

use super::stack::with_room;

/// The positions of the inputs that no gradient reaches from any of the outputs.
///
/// candle has operations without a backward pass. An input whose every way to the outputs leads through one gets no
/// gradient, and no error either.
///
/// ```
/// use candle_core::{Device, Var};
/// use telegrad_autograd::candle::unreached;
///
/// let (a, b) = (Var::new(1f32, &Device::Cpu)?, Var::new(2f32, &Device::Cpu)?);
/// let y = (a.as_tensor() + b.detach())?;
/// assert_eq!(unreached(&[&y], &[&a, &b]), [1]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn unreached(outputs: &[&Tensor], inputs: &[&Tensor]) -> Vec<usize> {
    with_room(|| {
        let nodes = outputs.iter().flat_map(|output| output.sorted_nodes());
        let reached: FxHashSet<_> = nodes.map(|node| node.id()).collect();
        let positions = inputs.iter().enumerate();
        positions
            .filter(|(_, input)| !reached.contains(&input.id()))
            .map(|(position, _)| position)
            .collect()
    })
}
