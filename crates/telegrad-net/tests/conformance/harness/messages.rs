//! Messages with checkable content.

use telegrad_net::Outgoing;
use telegrad_wire::{Buffer, CallId, DType, FrameKind, Payload, RawTensor, TensorMeta};

/// A message with a body and no tensors.
pub(crate) fn frame(kind: FrameKind, call: u64, body: &[u8]) -> Outgoing {
    let payload = Payload {
        body: body.to_vec(),
        ..Payload::default()
    };
    Outgoing::new(kind, CallId(call), payload)
}

/// A message with tensors.
pub(crate) fn tensors(kind: FrameKind, call: u64, tensors: &[RawTensor]) -> Outgoing {
    let mut message = frame(kind, call, b"tensors");
    message.payload.tensors = tensors
        .iter()
        .map(|tensor| Box::new(tensor.clone()) as _)
        .collect();
    message
}

/// A tensor whose content differs everywhere, so that a lost or misplaced byte shows.
pub(crate) fn tensor(dtype: DType, shape: &[usize], seed: usize) -> RawTensor {
    let meta = TensorMeta {
        dtype,
        shape: shape.to_vec(),
    };
    let bytes = pattern(meta.bytes().unwrap(), seed);
    RawTensor::new(meta, Buffer::copy_from(dtype, &bytes)).unwrap()
}

/// Bytes with a period of 65,521, which no power of two divides.
pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    let period: Vec<u8> = (0..65_521.min(len))
        .map(|i| ((i + seed).wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let step = period.len().min(len - bytes.len());
        bytes.extend_from_slice(&period[..step]);
    }
    bytes
}
