//! Inputs that gradients do not reach.

use candle_core::Tensor;
use rustc_hash::FxHashSet;

use super::stack::on_large_stack;

/// Lists the positions of the inputs that no gradient reaches from any output.
///
/// Some of candle's operations have no backward pass. An input whose every path to the outputs leads through one gets
/// neither a gradient nor an error.
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
    on_large_stack(|| {
        let nodes = outputs.iter().flat_map(|output| output.sorted_nodes());
        let reached: FxHashSet<_> = nodes.map(|node| node.id()).collect();
        let positions = inputs.iter().enumerate();
        positions
            .filter(|(_, input)| !reached.contains(&input.id()))
            .map(|(position, _)| position)
            .collect()
    })
}
