//! What an optimiser keeps for a parameter.

use candle_core::{Device, Shape, Tensor};
use telegrad_rpc::Result;

use crate::{Algorithm, Element};

/// What an optimiser keeps for a parameter: how many steps it has had, and the algorithm's slots.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    step: u64,
    names: &'static [&'static str],
    slots: Slots,
}

/// One vector per slot. Parameters of 16 bits have slots of 32.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq)]
pub enum Slots {
    F32(Vec<Vec<f32>>),
    F64(Vec<Vec<f64>>),
}

impl State {
    /// The state before the first step of a parameter with `count` elements.
    pub(crate) fn new<T: Element>(options: &impl Algorithm, count: usize) -> Self {
        let names = options.slots();
        let slot = |name: &&str| vec![T::of(options.initial(name)); count];
        Self::of_slots(0, names, T::wrap(names.iter().map(slot).collect()))
    }

    pub(crate) fn of_slots(step: u64, names: &'static [&'static str], slots: Slots) -> Self {
        Self { step, names, slots }
    }

    /// How many steps the parameter has had.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The names of the slots.
    pub fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// A copy of a slot, without a shape; nothing if there is none of this name.
    ///
    /// # Errors
    /// When candle cannot make a tensor of it.
    pub fn slot(&self, name: &str) -> Result<Option<Tensor>> {
        let Some(index) = self.names.iter().position(|known| *known == name) else {
            return Ok(None);
        };
        let tensor = match &self.slots {
            Slots::F32(slots) => tensor(&slots[index]),
            Slots::F64(slots) => tensor(&slots[index]),
        };
        Ok(Some(tensor?))
    }

    /// The slots by name, as the bytes of `f32` or `f64`.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let slot = |index: usize| match &self.slots {
            Slots::F32(slots) => bytemuck::cast_slice(slots[index].as_slice()),
            Slots::F64(slots) => bytemuck::cast_slice(slots[index].as_slice()),
        };
        let names = self.names.iter().enumerate();
        names.map(move |(index, name)| (*name, slot(index)))
    }

    /// Counts a step; its number and the slots. A parameter keeps its element type, so its slots do too.
    pub(crate) fn next<T: Element>(&mut self) -> Option<(u64, &mut Vec<Vec<T>>)> {
        let slots = T::unwrap(&mut self.slots)?;
        // A damaged file may say anything.
        self.step = self.step.saturating_add(1);
        Some((self.step, slots))
    }
}

fn tensor<T: candle_core::WithDType>(elements: &[T]) -> candle_core::Result<Tensor> {
    Tensor::from_slice(elements, Shape::from(elements.len()), &Device::Cpu)
}
