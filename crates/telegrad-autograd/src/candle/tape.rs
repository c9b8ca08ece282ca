//! Passes through registered operations, without candle.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use candle_core::{Result, Tensor, TensorId, bail};
use rustc_hash::{FxHashMap, FxHashSet};

use super::backend::Candle;
use super::operation::{Operation, REGISTERED};
use crate::backend::Root;

/// The result of a pass through registered operations.
#[derive(Default)]
pub(super) struct Traversed {
    /// The gradients of leaves.
    pub(super) leaves: FxHashMap<TensorId, Tensor>,
    /// The results of candle's own operations that the pass has reached, with their gradients.
    pub(super) foreign: Vec<(Tensor, Tensor)>,
}

/// Traverses the registered operations from the roots. Gradients are linear, so those that candle finds for the same
/// leaf can be added.
pub(super) fn run(roots: &[Root<Candle>]) -> Result<Traversed> {
    let mut sums = GradientSums::default();
    for (root, gradient) in roots {
        let gradient = match gradient {
            Some(gradient) => gradient.detach(),
            None => root.ones_like()?,
        };
        sums.add(root, gradient)?;
    }
    for Applied { result, operation } in topological_order(roots) {
        let Some((_, gradient)) = sums.0.remove(&result.id()) else {
            continue;
        };
        let found = operation.gradients(&result, &gradient)?;
        for (operand, gradient) in operation.args.iter().zip(found) {
            if let Some(gradient) = gradient.filter(|_| operand.track_op()) {
                sums.add(operand, gradient)?;
            }
        }
    }
    let mut found = Traversed::default();
    for (id, (tensor, gradient)) in sums.0 {
        if tensor.is_variable() {
            found.leaves.insert(id, gradient);
        } else {
            found.foreign.push((tensor, gradient));
        }
    }
    Ok(found)
}

/// Tensors, each with the sum of its gradients so far.
#[derive(Default)]
struct GradientSums(FxHashMap<TensorId, (Tensor, Tensor)>);

impl GradientSums {
    fn add(&mut self, tensor: &Tensor, gradient: Tensor) -> Result<()> {
        if gradient.shape() != tensor.shape() || gradient.dtype() != tensor.dtype() {
            bail!(
                "a gradient of {:?} {:?} was found for a tensor of {:?} {:?}",
                gradient.dtype(),
                gradient.shape(),
                tensor.dtype(),
                tensor.shape()
            );
        }
        match self.0.entry(tensor.id()) {
            Entry::Vacant(entry) => {
                entry.insert((tensor.clone(), gradient));
            }
            Entry::Occupied(mut entry) => {
                let (_, sum) = entry.get_mut();
                *sum = (&*sum + gradient)?;
            }
        }
        Ok(())
    }
}

/// A registered operation and its result.
struct Applied {
    result: Tensor,
    operation: Arc<Operation>,
}

/// Lists the registered operations behind the roots, each before those of its operands.
fn topological_order(roots: &[Root<Candle>]) -> Vec<Applied> {
    let registered = REGISTERED.lock();
    let mut seen = FxHashSet::default();
    let mut enter = |result: &Tensor| {
        let operation = registered.get(&result.id())?;
        seen.insert(result.id()).then(|| Applied {
            result: result.clone(),
            operation: operation.clone(),
        })
    };
    let mut order = Vec::new();
    // The path to the present operation, with the next operand of each. No recursion: graphs are deep.
    let mut path: Vec<(Applied, usize)> = Vec::new();
    for (root, _) in roots {
        path.extend(enter(root).map(|applied| (applied, 0)));
        while let Some((applied, next)) = path.last_mut() {
            if let Some(operand) = applied.operation.args.get(*next) {
                *next += 1;
                let entered = enter(operand);
                path.extend(entered.map(|applied| (applied, 0)));
            } else if let Some((applied, _)) = path.pop() {
                order.push(applied);
            }
        }
    }
    order.reverse();
    order
}
