//! Long short-term memory.

mod cell;
mod recurrence;

use candle_core::Tensor;
use telegrad_autograd::Param;

pub use self::cell::{LstmCell, LstmState};
use crate::error::{wrong_input, wrong_options};
use crate::{Module, Result, Rng};

/// Layers of [`LstmCell`] over a sequence `[time, n, in]`, with torch's names (`weight_ih_l0`) and first
/// values. The outputs of a layer are the inputs of the next.
///
/// A layer is one operation whatever the length of the sequence, so its graph stays small.
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
    layers: Vec<Layer>,
}

#[derive(Clone, Debug)]
struct Layer {
    cell: LstmCell,
    names: [String; 4],
}

impl Lstm {
    /// Layers with `hidden` numbers each.
    ///
    /// # Errors
    /// When there are to be no layers.
    pub fn new(inputs: usize, hidden: usize, layers: usize, rng: &mut Rng) -> Result<Self> {
        let cells = (0..layers).map(|layer| {
            let inputs = if layer == 0 { inputs } else { hidden };
            LstmCell::new(inputs, hidden, rng)
        });
        Self::from_cells(cells.collect::<Result<_>>()?)
    }

    /// Layers made of these cells.
    ///
    /// # Errors
    /// When there are none, or one does not take what the one before it gives.
    pub fn from_cells(cells: Vec<LstmCell>) -> Result<Self> {
        if cells.is_empty() {
            return Err(wrong_options("Lstm", "at least one layer is needed"));
        }
        if cells.windows(2).any(|pair| pair[0].hidden() != pair[1].inputs()) {
            return Err(wrong_options(
                "Lstm",
                "a layer does not take what the one before it gives",
            ));
        }
        let layers = cells.into_iter().enumerate();
        let layers = layers.map(|(layer, cell)| Layer {
            cell,
            names: cell::NAMES.map(|name| format!("{name}_l{layer}")),
        });
        Ok(Self {
            layers: layers.collect(),
        })
    }

    /// The outputs of the last layer, `[time, n, hidden]`, and the state that each layer ends in. Starts
    /// from zeros unless states are given, one for each layer.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn run(&self, x: &Tensor, states: Option<&[LstmState]>) -> Result<(Tensor, Vec<LstmState>)> {
        if let Some(states) = states.filter(|states| states.len() != self.layers.len()) {
            let expected = format!("{} states", self.layers.len());
            return Err(wrong_input("Lstm", expected, states.len().to_string()));
        }
        let mut x = x.clone();
        let mut ends = Vec::with_capacity(self.layers.len());
        for (index, layer) in self.layers.iter().enumerate() {
            let (outputs, end) = layer.cell.run(&x, states.map(|states| &states[index]))?;
            x = outputs;
            ends.push(end);
        }
        Ok((x, ends))
    }
}

impl Module for Lstm {
    /// The outputs, from zeros.
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
