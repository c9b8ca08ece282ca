//! All time steps of a layer as one operation.

use candle_core::{Result, Tensor};

use crate::activation::sigmoid_of;
use crate::matrix::{product, product_transposed, transposed};
use crate::node::{Derivatives, Pass, node};
use crate::real::{Real, read};

/// The gates i, f, g and o in every step, and the memory after it.
struct Steps<T> {
    /// `[time, n, 4·hidden]`, after their nonlinearities.
    gates: Vec<T>,
    /// `[time, n, hidden]`.
    cells: Vec<T>,
}

#[derive(Clone, Copy)]
struct Sizes {
    time: usize,
    n: usize,
    hidden: usize,
}

impl Sizes {
    /// Elements of a state.
    fn state(&self) -> usize {
        self.n * self.hidden
    }
}

/// Returns the hidden states followed by the final memory, `[time + 1, n, hidden]`.
///
/// `gates` is `[time, n, 4·hidden]`, without the contribution of the previous hidden state. `start` is `[2, n, hidden]`:
/// hidden state and memory.
pub(super) fn recurrence<T: Real>(gates: &Tensor, weight: &Tensor, start: &Tensor) -> Result<Tensor> {
    let (time, n, _) = gates.dims3()?;
    let sizes = Sizes {
        time,
        n,
        hidden: weight.dim(1)?,
    };
    let (steps, value) = forward::<T>(&sizes, gates, weight, start)?;
    let shape = (time + 1, n, sizes.hidden);
    node::<T>("lstm", &[gates, weight, start], value, shape, move |pass| {
        backward(&sizes, &steps, pass)
    })
}

fn forward<T: Real>(
    sizes: &Sizes,
    gates: &Tensor,
    weight: &Tensor,
    start: &Tensor,
) -> Result<(Steps<T>, Vec<T>)> {
    let (state, hidden) = (sizes.state(), sizes.hidden);
    // A transposed copy pays off from the second step.
    let from_hidden = match sizes.time {
        1 => None,
        _ => Some(transposed::<T>(weight)?),
    };
    let (mut value, mut cell) = read([start], |[start]: [&[T]; 1]| {
        (start[..state].to_vec(), start[state..].to_vec())
    })?;
    let mut steps = Steps {
        gates: read([gates], |[gates]: [&[T]; 1]| gates.to_vec())?,
        cells: Vec::with_capacity(sizes.time * state),
    };
    // `value` starts with the initial hidden state, which is removed at the end.
    for step in 0..sizes.time {
        let before = value[step * state..].to_vec();
        let before = Tensor::from_vec(before, (sizes.n, hidden), gates.device())?;
        let recurrent = match &from_hidden {
            Some(from_hidden) => product::<T>(&before, from_hidden)?,
            None => product_transposed::<T>(&before, weight)?,
        };
        let gates = &mut steps.gates[step * 4 * state..][..4 * state];
        gates
            .iter_mut()
            .zip(&recurrent)
            .for_each(|(gate, &value)| *gate += value);
        for (gates, cell) in gates
            .chunks_exact_mut(4 * hidden)
            .zip(cell.chunks_exact_mut(hidden))
        {
            for (position, cell) in cell.iter_mut().enumerate() {
                let [i, f, g, o] = [0, 1, 2, 3].map(|gate| gate * hidden + position);
                gates[i] = sigmoid_of(gates[i]);
                gates[f] = sigmoid_of(gates[f]);
                gates[g] = gates[g].tanh();
                gates[o] = sigmoid_of(gates[o]);
                *cell = gates[f] * *cell + gates[i] * gates[g];
                value.push(gates[o] * cell.tanh());
            }
        }
        steps.cells.extend_from_slice(&cell);
    }
    value.drain(..state);
    value.extend_from_slice(&cell);
    Ok((steps, value))
}

fn backward<T: Real>(sizes: &Sizes, steps: &Steps<T>, pass: Pass) -> Derivatives {
    let (state, hidden, device) = (sizes.state(), sizes.hidden, pass.grad.device());
    let (weight, start) = (&pass.args[1], &pass.args[2]);
    let grads = read([&pass.grad], |[grad]: [&[T]; 1]| grad.to_vec())?;
    let first_cell = read([start], |[start]: [&[T]; 1]| start[state..].to_vec())?;
    let mut gates_grad = vec![T::ZERO; sizes.time * 4 * state];
    // Gradients from the step after. For the last step: zeros for the hidden state, and for the memory the gradient of
    // the final memory, which follows the hidden states.
    let mut hidden_grad = vec![T::ZERO; state];
    let mut cell_grad = grads[sizes.time * state..].to_vec();
    for step in (0..sizes.time).rev() {
        let cells = &steps.cells[step * state..][..state];
        let cells_before = match step {
            0 => &first_cell[..],
            _ => &steps.cells[(step - 1) * state..][..state],
        };
        let gates = &steps.gates[step * 4 * state..][..4 * state];
        let out = &mut gates_grad[step * 4 * state..][..4 * state];
        for index in 0..state {
            let (sample, position) = (index / hidden, index % hidden);
            let at = |gate: usize| (4 * sample + gate) * hidden + position;
            let [i, f, g, o] = [0, 1, 2, 3].map(|gate| gates[at(gate)]);
            let tanh = cells[index].tanh();
            let h = grads[step * state + index] + hidden_grad[index];
            let c = cell_grad[index] + h * o * (T::ONE - tanh * tanh);
            out[at(0)] = c * g * i * (T::ONE - i);
            out[at(1)] = c * cells_before[index] * f * (T::ONE - f);
            out[at(2)] = c * i * (T::ONE - g * g);
            out[at(3)] = h * tanh * o * (T::ONE - o);
            cell_grad[index] = c * f;
        }
        let out = Tensor::from_slice(out, (sizes.n, 4 * hidden), device)?;
        hidden_grad = product(&out, weight)?;
    }
    let gates_grad = Tensor::from_vec(gates_grad, (sizes.time * sizes.n, 4 * hidden), device)?;
    let weight_grad = if pass.wanted[1] {
        // The hidden state before each step: the initial one, then all but the last.
        let first = start.narrow(0, 0, 1)?;
        let before = Tensor::cat(&[first, pass.result.narrow(0, 0, sizes.time - 1)?], 0)?;
        let before = before.reshape((sizes.time * sizes.n, hidden))?;
        Some(gates_grad.t()?.matmul(&before)?)
    } else {
        None
    };
    hidden_grad.extend(cell_grad);
    Ok(vec![
        Some(gates_grad.reshape((sizes.time, sizes.n, 4 * hidden))?),
        weight_grad,
        Some(Tensor::from_vec(hidden_grad, (2, sizes.n, hidden), device)?),
    ])
}
