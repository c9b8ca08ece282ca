//! The LSTM cell.

use candle_core::Tensor;
use telegrad_autograd::Param;
use telegrad_autograd::candle::traced;
use telegrad_wire::Wire;

use super::recurrence::recurrence;
use crate::error::{wrong_input, wrong_shape};
use crate::real::with_type;
use crate::{Module, Result, Rng, init, linear};

/// The names of a cell's parameters.
pub(super) const NAMES: [&str; 4] = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"];

/// A cell with long short-term memory. Names, layouts, initialisation and the order of the gates (input, forget, cell,
/// output) are torch's.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use telegrad_nn::{LstmCell, Rng};
///
/// let cell = LstmCell::new(8, 16, &mut Rng::new(0))?;
/// let x = Tensor::zeros((3, 8), DType::F32, &Device::Cpu)?;
/// let mut state = cell.zero_state(3)?;
/// for _ in 0..5 {
///     state = cell.step(&x, &state)?;
/// }
/// assert_eq!(state.hidden.dims(), [3, 16]);
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LstmCell {
    /// In the order of [`NAMES`].
    params: [Param; 4],
}

/// The state of a cell.
#[derive(Clone, Debug, Wire)]
pub struct LstmState {
    /// The output, `[n, hidden]`.
    pub hidden: Tensor,
    /// The memory, `[n, hidden]`.
    pub cell: Tensor,
}

impl LstmState {
    /// Returns the state detached from its graph: later gradients end here.
    pub fn detach(&self) -> Self {
        Self {
            hidden: self.hidden.detach(),
            cell: self.cell.detach(),
        }
    }
}

impl LstmCell {
    /// Makes a cell with parameters uniform within ±1/√hidden.
    ///
    /// # Errors
    /// When candle cannot make the parameters.
    pub fn new(inputs: usize, hidden: usize, rng: &mut Rng) -> Result<Self> {
        let weight_ih = init::default_bias((4 * hidden, inputs), hidden, rng)?;
        let weight_hh = init::default_bias((4 * hidden, hidden), hidden, rng)?;
        let bias_ih = init::default_bias(4 * hidden, hidden, rng)?;
        let bias_hh = init::default_bias(4 * hidden, hidden, rng)?;
        Self::from_tensors(&weight_ih, &weight_hh, &bias_ih, &bias_hh)
    }

    /// Makes a cell with these values.
    ///
    /// # Errors
    /// When the shapes are not `[4·hidden, in]`, `[4·hidden, hidden]`, `[4·hidden]` and `[4·hidden]`.
    pub fn from_tensors(
        weight_ih: &Tensor,
        weight_hh: &Tensor,
        bias_ih: &Tensor,
        bias_hh: &Tensor,
    ) -> Result<Self> {
        let [gates, hidden] = *weight_hh.dims() else {
            let expected = "a weight_hh [4·hidden, hidden]";
            return Err(wrong_shape("LstmCell", expected, weight_hh.shape()));
        };
        if gates != 4 * hidden || hidden == 0 {
            let expected = "a weight_hh [4·hidden, hidden]";
            return Err(wrong_shape("LstmCell", expected, weight_hh.shape()));
        }
        if weight_ih.rank() != 2 || weight_ih.dim(0)? != gates {
            let expected = format!("a weight_ih [{gates}, in]");
            return Err(wrong_shape("LstmCell", expected, weight_ih.shape()));
        }
        for bias in [bias_ih, bias_hh] {
            if bias.dims() != [gates] {
                return Err(wrong_shape("LstmCell", format!("a bias [{gates}]"), bias.shape()));
            }
        }
        Ok(Self {
            params: [
                Param::named(NAMES[0], weight_ih)?,
                Param::named(NAMES[1], weight_hh)?,
                Param::named(NAMES[2], bias_ih)?,
                Param::named(NAMES[3], bias_hh)?,
            ],
        })
    }

    /// The input size.
    pub fn inputs(&self) -> usize {
        self.params[0].shape().dims()[1]
    }

    /// The size of output and memory.
    pub fn hidden(&self) -> usize {
        self.params[1].shape().dims()[1]
    }

    /// A state of zeros for `n` samples.
    ///
    /// # Errors
    /// When candle cannot make the tensors.
    pub fn zero_state(&self, n: usize) -> Result<LstmState> {
        let weight = self.params[1].tensor();
        let zeros = Tensor::zeros((n, self.hidden()), weight.dtype(), weight.device())?;
        Ok(LstmState {
            hidden: zeros.clone(),
            cell: zeros,
        })
    }

    /// Returns the state after an input `[n, in]`.
    ///
    /// # Errors
    /// When the shapes do not match.
    pub fn step(&self, x: &Tensor, state: &LstmState) -> Result<LstmState> {
        let [_, _] = *x.dims() else {
            return Err(wrong_shape("LstmCell", "an input [n, in]", x.shape()));
        };
        Ok(self.run(&x.unsqueeze(0)?, Some(state))?.1)
    }

    /// Returns the outputs `[time, n, hidden]` for inputs `[time, n, in]`, and the final state.
    pub(super) fn run(&self, x: &Tensor, state: Option<&LstmState>) -> Result<(Tensor, LstmState)> {
        let weight_hh = self.params[1].tensor();
        let all = traced("lstm", &[x, &weight_hh], || self.all(x, state))?;
        let time = x.dim(0)?;
        let end = LstmState {
            hidden: all.narrow(0, time - 1, 1)?.squeeze(0)?,
            cell: all.narrow(0, time, 1)?.squeeze(0)?,
        };
        Ok((all.narrow(0, 0, time)?, end))
    }

    /// Returns the outputs, followed by the final memory.
    fn all(&self, x: &Tensor, state: Option<&LstmState>) -> Result<Tensor> {
        let (inputs, hidden) = (self.inputs(), self.hidden());
        let n = match *x.dims() {
            [time, n, width] if width == inputs && time > 0 => n,
            _ => {
                let expected = format!("a sequence [time, n, {inputs}]");
                return Err(wrong_shape("LSTM", expected, x.shape()));
            }
        };
        let state = match state {
            Some(state) => state.clone(),
            None => self.zero_state(n)?,
        };
        for part in [&state.hidden, &state.cell] {
            if part.dims() != [n, hidden] || part.dtype() != x.dtype() {
                let expected = format!("a state [{n}, {hidden}] of {:?}", x.dtype());
                let found = format!("{:?} of {:?}", part.dims(), part.dtype());
                return Err(wrong_input("LSTM", expected, found));
            }
        }
        let [weight_ih, weight_hh, bias_ih, bias_hh] = self.params.each_ref().map(Param::tensor);
        let gates = linear(x, &weight_ih, Some(&(bias_ih + bias_hh)?))?;
        let start = Tensor::stack(&[&state.hidden, &state.cell], 0)?;
        Ok(with_type!("LSTM", x, T => recurrence::<T>(&gates, &weight_hh, &start)?))
    }
}

impl Module for LstmCell {
    /// Returns the output after one input, from a state of zeros.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let n = x.dims().first().copied().unwrap_or_default();
        Ok(self.step(x, &self.zero_state(n)?)?.hidden)
    }

    fn own_parameters(&self) -> Vec<(&str, &Param)> {
        NAMES.into_iter().zip(&self.params).collect()
    }
}
