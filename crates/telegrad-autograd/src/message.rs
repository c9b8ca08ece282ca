//! What workers tell each other during a backward pass.

use std::sync::Arc;

use telegrad_wire::{Decoder, Encoder, Layouts, Rank, RawTensor, TypeNumber, Wire, WireError};

/// One backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub(crate) struct PassId {
    /// The worker where it started.
    pub(crate) root: Rank,
    pub(crate) number: u64,
}

/// A pass, and what everybody in it has to know.
#[derive(Clone, Copy, Debug, Wire)]
pub(crate) struct PassInfo {
    pub(crate) id: PassId,
    /// Passes of the same worker below this number are over.
    pub(crate) oldest: u64,
    /// The graph is used again.
    pub(crate) retain: bool,
    /// Every result is expected to be used.
    pub(crate) fast: bool,
}

/// Gradients on their way to one worker.
#[derive(Debug, Wire)]
pub(crate) struct Shipment(pub(crate) Vec<Gradients>);

/// The gradients of the tensors of one message.
#[derive(Debug, Wire)]
pub(crate) struct Gradients {
    /// The number that the message has with whoever sent it.
    pub(crate) of: u64,
    /// In the order of the tensors recorded; none where no gradient came.
    pub(crate) gradients: Vec<Option<Cargo>>,
}

/// One gradient: a tensor of some library when it leaves, raw when it arrives.
pub(crate) enum Cargo {
    Leaving(Arc<dyn Leaving>),
    Arrived(RawTensor),
}

/// A tensor of any library.
pub(crate) trait Leaving: Send + Sync {
    fn encode(&self, encoder: &mut Encoder);
}

impl<T: Wire + Send + Sync> Leaving for T {
    fn encode(&self, encoder: &mut Encoder) {
        Wire::encode(self, encoder);
    }
}

impl Wire for Cargo {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Leaving(tensor) => tensor.encode(encoder),
            Self::Arrived(raw) => Wire::encode(raw, encoder),
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        decoder.tensor().map(Self::Arrived)
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        RawTensor::layout(layouts)
    }
}

impl std::fmt::Debug for Cargo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Leaving(_) => f.write_str("Leaving"),
            Self::Arrived(raw) => raw.fmt(f),
        }
    }
}
