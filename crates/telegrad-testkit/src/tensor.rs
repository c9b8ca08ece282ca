//! Tensors to send in tests.

use telegrad_wire::{Buffer, DType, RawTensor, TensorMeta};

/// Returns a tensor of bytes, of one dimension.
pub fn byte_tensor(bytes: Vec<u8>) -> RawTensor {
    tensor(DType::U8, &[bytes.len()], Buffer::from_vec(bytes))
}

/// Returns a tensor of floats.
///
/// # Panics
/// When the shape does not have as many elements as there are values.
pub fn float_tensor(shape: &[usize], values: Vec<f32>) -> RawTensor {
    tensor(DType::F32, shape, Buffer::from_vec(values))
}

fn tensor(dtype: DType, shape: &[usize], data: Buffer) -> RawTensor {
    let shape = shape.to_vec();
    RawTensor::new(TensorMeta { dtype, shape }, data).expect("as many values as the shape has elements")
}
