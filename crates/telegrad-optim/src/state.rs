//! The state of a parameter.

use candle_core::{Device, Shape, Tensor};
use telegrad_rpc::Result;

use crate::{Algorithm, Element};

/// An optimiser's state for one parameter: its number of steps, and the slots of the algorithm.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    step: u64,
    names: &'static [&'static str],
    slots: Slots,
}

/// One vector per slot. Parameters of 16 bits have slots of 32 bits.
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

    /// The number of steps of the parameter.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The names of the slots.
    pub fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// Copies a slot into a flat tensor; `None` if there is no slot of this name.
    ///
    /// # Errors
    /// When candle cannot make the tensor.
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

    /// The bytes of the slots, by name.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let slot = |index: usize| match &self.slots {
            Slots::F32(slots) => bytemuck::cast_slice(slots[index].as_slice()),
            Slots::F64(slots) => bytemuck::cast_slice(slots[index].as_slice()),
        };
        let names = self.names.iter().enumerate();
        names.map(move |(index, name)| (*name, slot(index)))
    }

    /// Counts a step; returns its number and the slots, which have the element type of the parameter.
    pub(crate) fn next<T: Element>(&mut self) -> Option<(u64, &mut Vec<Vec<T>>)> {
        let slots = T::unwrap(&mut self.slots)?;
        // The count may come from a damaged file.
        self.step = self.step.saturating_add(1);
        Some((self.step, slots))
    }
}

fn tensor<T: candle_core::WithDType>(elements: &[T]) -> candle_core::Result<Tensor> {
    Tensor::from_slice(elements, Shape::from(elements.len()), &Device::Cpu)
}
