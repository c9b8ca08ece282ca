//! Operators on received operands whose result is only sent back.
//!
//! Most calls are small, and creating candle's tensors takes longer than the computation. If both operands are raw and of
//! equal shape, the result overwrites the first one.

use bytemuck::Pod;
use candle_core::Tensor;
use telegrad_rpc::{Error, Result};
use telegrad_trace::{Kind, Scope, is_recorded};
use telegrad_wire::{
    Buffer, DType, Decoder, Encoder, Layouts, RawTensor, ReceivedTensor, TypeNumber, Wire, WireError,
};

/// A tensor with the same encoding as candle's.
pub(super) enum Operand {
    /// As received.
    Raw(RawTensor),
    /// A tensor of candle's.
    Tensor(Tensor),
}

impl Wire for Operand {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Raw(raw) => raw.encode(encoder),
            Self::Tensor(tensor) => tensor.encode(encoder),
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        match decoder.received_tensor()? {
            ReceivedTensor::Raw(raw) => Ok(Self::Raw(raw)),
            tensor @ ReceivedTensor::Tracked(_) => Ok(Self::Tensor(tensor.try_into()?)),
        }
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        RawTensor::layout(layouts)
    }
}

impl Operand {
    fn into_tensor(self) -> Result<Tensor> {
        match self {
            Self::Raw(raw) => raw.try_into().map_err(Error::other),
            Self::Tensor(tensor) => Ok(tensor),
        }
    }
}

macro_rules! answers {
    ($($name:ident: $operator:tt;)*) => {$(
        pub(super) fn $name(a: Operand, b: Operand) -> Result<Operand> {
            match (a, b) {
                (Operand::Raw(a), Operand::Raw(b)) if a.meta() == b.meta() && is_float(a.dtype()) => {
                    let _span = is_recorded().then(|| span(stringify!($name), [&a, &b]));
                    let (meta, a) = a.into_parts();
                    let (_, b) = b.into_parts();
                    let result = match meta.dtype {
                        DType::F64 => in_place(a, b, |x: f64, y| x $operator y),
                        _ => in_place(a, b, |x: f32, y| x $operator y),
                    };
                    RawTensor::new(meta, result).map(Operand::Raw).map_err(Error::other)
                }
                (a, b) => super::$name(a.into_tensor()?, b.into_tensor()?).map(Operand::Tensor),
            }
        }
    )*};
}

answers! {
    add: +;
    sub: -;
    mul: *;
    div: /;
}

/// Opens a span for an operator whose result has the size of its operands.
fn span(name: &'static str, operands: [&RawTensor; 2]) -> Scope {
    let shapes = || {
        operands
            .iter()
            .map(|operand| operand.meta().to_string())
            .collect()
    };
    let scope = telegrad_trace::scope_with(Kind::Operator, || name.into(), shapes);
    scope.add_tensor_bytes(|| operands[0].bytes().len() as u64);
    scope
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}

/// Applies `f` to the elements of `a` and `b` pairwise, into the memory of `a`.
fn in_place<T: Pod>(a: Buffer, b: Buffer, f: impl Fn(T, T) -> T) -> Buffer {
    let mut result = a.into_vec::<T>();
    for (x, y) in result.iter_mut().zip(b.into_vec()) {
        *x = f(*x, y);
    }
    Buffer::from_vec(result)
}
