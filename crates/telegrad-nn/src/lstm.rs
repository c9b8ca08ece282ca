//! Long short-term memory.

mod cell;
mod recurrence;

use candle_core::Tensor;
use telegrad_autograd::Param;

pub use self::cell::{LstmCell, LstmState};
use crate::error::{wrong_input, wrong_options};
use crate::{Module, Result, Rng};

/// Stacked [`LstmCell`]s over a sequence `[time, n, in]`, with torch's names (`weight_ih_l0`) and initialisation. The
/// outputs of a layer are the inputs of the next.
///
/// A layer is one operation for a sequence of any length, so its graph stays small.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use telegrad_nn::{Lstm, Rng};
///
/// let lstm = Lstm::new(8, 16, 2, &mut Rng::new(0))?;
/// let x = Tensor::zeros((5, 3, 8), DType::F32, &Device::Cpu)?;
/// let (outputs, states) = lstm.run(&x, None)?;
/// assert_eq!(outputs.dims(), [5, 3, 16]);
/// assert_eq!(states[1].cell.dims(), [3, 16]);
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lstm {
    layers: Vec<LstmLayer>,
}

/// A cell with the names of its parameters in the stack.
#[derive(Clone, Debug)]
struct LstmLayer {
    cell: LstmCell,
    names: [String; 4],
}

impl Lstm {
    /// Makes layers with `hidden` numbers each.
    ///
    /// # Errors
    /// When `layers` is zero.
    pub fn new(inputs: usize, hidden: usize, layers: usize, rng: &mut Rng) -> Result<Self> {
        let cells = (0..layers).map(|layer| {
            let inputs = if layer == 0 { inputs } else { hidden };
            LstmCell::new(inputs, hidden, rng)
        });
        Self::from_cells(cells.collect::<Result<_>>()?)
    }

    /// Stacks these cells.
    ///
    /// # Errors
    /// When there are none, or the input size of one is not the hidden size of the previous.
    pub fn from_cells(cells: Vec<LstmCell>) -> Result<Self> {
        if cells.is_empty() {
            return Err(wrong_options("Lstm", "at least one layer is needed"));
        }
        if cells.windows(2).any(|pair| pair[0].hidden() != pair[1].inputs()) {
            return Err(wrong_options(
                "Lstm",
                "the input size of a layer is not the hidden size of the previous one",
            ));
        }
        let layers = cells.into_iter().enumerate();
        let layers = layers.map(|(layer, cell)| LstmLayer {
            cell,
            names: cell::NAMES.map(|name| format!("{name}_l{layer}")),
        });
        Ok(Self {
            layers: layers.collect(),
        })
    }

    /// Returns the outputs of the last layer, `[time, n, hidden]`, and the final state of each layer. Initial states, one
    /// for each layer, are zeros by default.
    ///
    /// # Errors
    /// When the shapes do not match.
    pub fn run(&self, x: &Tensor, states: Option<&[LstmState]>) -> Result<(Tensor, Vec<LstmState>)> {
        if let Some(states) = states.filter(|states| states.len() != self.layers.len()) {
            let expected = format!("{} states", self.layers.len());
            return Err(wrong_input("Lstm", expected, states.len().to_string()));
        }
        let mut x = x.clone();
        let mut final_states = Vec::with_capacity(self.layers.len());
        for (index, layer) in self.layers.iter().enumerate() {
            let (outputs, end) = layer.cell.run(&x, states.map(|states| &states[index]))?;
            x = outputs;
            final_states.push(end);
        }
        Ok((x, final_states))
    }
}

impl Module for Lstm {
    /// Returns the outputs from a state of zeros.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.run(x, None)?.0)
    }

    fn own_parameters(&self) -> Vec<(&str, &Param)> {
        let layers = self.layers.iter();
        let named = layers.flat_map(|layer| {
            let params = layer.cell.own_parameters().into_iter();
            layer
                .names
                .iter()
                .zip(params)
                .map(|(name, (_, param))| (name.as_str(), param))
        });
        named.collect()
    }
}
