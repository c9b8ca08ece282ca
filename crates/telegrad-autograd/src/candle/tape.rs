//! Passes through operations that are known, without candle.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use candle_core::{Result, Tensor, TensorId, bail};
use rustc_hash::{FxHashMap, FxHashSet};

use super::backend::Candle;
use super::operation::{KNOWN, Operation};
use crate::backend::Root;

/// Where a pass through known operations ends.
#[derive(Default)]
pub(super) struct Found {
    /// The gradients of leaves.
    pub(super) leaves: FxHashMap<TensorId, Tensor>,
    /// Results of operations that only candle knows, with what has come for each.
    pub(super) foreign: Vec<(Tensor, Tensor)>,
}

/// Goes from the roots through whatever is known. Gradients are linear in each other, so what is found for a leaf on other
/// ways can be added.
pub(super) fn run(roots: &[Root<Candle>]) -> Result<Found> {
    let mut open = Open::default();
    for (root, gradient) in roots {
        let gradient = match gradient {
            Some(gradient) => gradient.detach(),
            None => root.ones_like()?,
        };
        open.add(root, gradient)?;
    }
    for Step { result, operation } in in_order(roots) {
        let Some((_, gradient)) = open.0.remove(&result.id()) else {
            continue;
        };
        let found = operation.gradients(&result, &gradient)?;
        for (operand, gradient) in operation.args.iter().zip(found) {
            if let Some(gradient) = gradient.filter(|_| operand.track_op()) {
                open.add(operand, gradient)?;
            }
        }
    }
    let mut found = Found::default();
    for (id, (tensor, gradient)) in open.0 {
        if tensor.is_variable() {
            found.leaves.insert(id, gradient);
        } else {
            found.foreign.push((tensor, gradient));
        }
    }
    Ok(found)
}

/// Tensors with the sum of the gradients that have come for each.
#[derive(Default)]
struct Open(FxHashMap<TensorId, (Tensor, Tensor)>);

impl Open {
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

/// A known operation, and its result.
struct Step {
    result: Tensor,
    operation: Arc<Operation>,
}

/// The known operations on the way from the roots, each before those of its operands.
fn in_order(roots: &[Root<Candle>]) -> Vec<Step> {
    let known = KNOWN.lock();
    let mut seen = FxHashSet::default();
    let mut enter = |result: &Tensor| {
        let operation = known.get(&result.id())?;
        seen.insert(result.id()).then(|| Step {
            result: result.clone(),
            operation: operation.clone(),
        })
    };
    let mut order = Vec::new();
    // The way to where we are, with the next operand to look at. Not by recursion: graphs are long.
    let mut way: Vec<(Step, usize)> = Vec::new();
    for (root, _) in roots {
        way.extend(enter(root).map(|step| (step, 0)));
        while let Some((step, next)) = way.last_mut() {
            if let Some(operand) = step.operation.args.get(*next) {
                *next += 1;
                let entered = enter(operand);
                way.extend(entered.map(|step| (step, 0)));
            } else if let Some((step, _)) = way.pop() {
                order.push(step);
            }
        }
    }
    order.reverse();
    order
}
