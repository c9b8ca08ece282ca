//! The messages of a backward pass.

use std::sync::Arc;

use telegrad_wire::{Decoder, Encoder, Layouts, Rank, RawTensor, TypeNumber, Wire, WireError};

/// The name of a backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub(crate) struct PassId {
    /// The worker that started it.
    pub(crate) root: Rank,
    pub(crate) number: u64,
}

/// A pass, with the options that every worker in it needs.
#[derive(Clone, Copy, Debug, Wire)]
pub(crate) struct PassInfo {
    pub(crate) id: PassId,
    /// Passes of the same worker with lower numbers have ended.
    pub(crate) oldest: u64,
    /// The graph is kept for another pass.
    pub(crate) retain: bool,
    /// Every tracked result must receive a gradient.
    pub(crate) fast: bool,
}

/// Gradients for one worker.
#[derive(Debug, Wire)]
pub(crate) struct GradientBatch(pub(crate) Vec<MessageGradients>);

/// The gradients of the tracked tensors of one message.
#[derive(Debug, Wire)]
pub(crate) struct MessageGradients {
    /// The sender's number for the message.
    pub(crate) of: u64,
    /// In the order of the tracked tensors; `None` for a tensor without a gradient.
    pub(crate) gradients: Vec<Option<WireGradient>>,
}

/// One gradient: a tensor of any library when it is sent, raw when it arrives.
pub(crate) enum WireGradient {
    Outgoing(Arc<dyn EncodeTensor>),
    Incoming(RawTensor),
}

/// Encodes a tensor of any library.
pub(crate) trait EncodeTensor: Send + Sync {
    fn encode(&self, encoder: &mut Encoder);
}

impl<T: Wire + Send + Sync> EncodeTensor for T {
    fn encode(&self, encoder: &mut Encoder) {
        Wire::encode(self, encoder);
    }
}

impl Wire for WireGradient {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Outgoing(tensor) => tensor.encode(encoder),
            Self::Incoming(raw) => Wire::encode(raw, encoder),
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        decoder.tensor().map(Self::Incoming)
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        RawTensor::layout(layouts)
    }
}

impl std::fmt::Debug for WireGradient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Outgoing(_) => f.write_str("Outgoing"),
            Self::Incoming(raw) => raw.fmt(f),
        }
    }
}
