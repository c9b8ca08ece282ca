//! Element types of tensors.

use std::fmt;

use crate::WireError;

/// The element type of a tensor. The discriminant is the code on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum DType {
    /// Unsigned, 8 bits.
    U8 = 1,
    /// Unsigned, 32 bits.
    U32 = 2,
    /// Signed, 16 bits.
    I16 = 3,
    /// Signed, 32 bits.
    I32 = 4,
    /// Signed, 64 bits.
    I64 = 5,
    /// Brain float, 16 bits.
    BF16 = 6,
    /// IEEE float, 16 bits.
    F16 = 7,
    /// IEEE float, 32 bits.
    F32 = 8,
    /// IEEE float, 64 bits.
    F64 = 9,
    /// Float of 8 bits: 4 of exponent, 3 of mantissa.
    F8E4M3 = 10,
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::U8 | Self::F8E4M3 => 1,
            Self::I16 | Self::BF16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }

    /// The type with this code.
    ///
    /// # Errors
    /// When the code is unknown.
    pub fn from_code(code: u8) -> Result<Self, WireError> {
        Ok(match code {
            1 => Self::U8,
            2 => Self::U32,
            3 => Self::I16,
            4 => Self::I32,
            5 => Self::I64,
            6 => Self::BF16,
            7 => Self::F16,
            8 => Self::F32,
            9 => Self::F64,
            10 => Self::F8E4M3,
            _ => {
                return Err(WireError::TensorTable {
                    what: format!("unknown dtype code {code}"),
                });
            }
        })
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::U32 => "u32",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::BF16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F8E4M3 => "f8e4m3",
        })
    }
}
