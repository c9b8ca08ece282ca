//! Numbers and booleans.

use half::{bf16, f16};

use crate::{Decoder, Encoder, Wire, WireError};

impl Wire for bool {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.bool(*self);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        decoder.bool()
    }
}

/// Reads an integer of any width that fits `T`. `name`, `min` and `max` are for the error.
#[inline]
fn integer<T>(decoder: &mut Decoder<'_>, name: &str, min: T, max: T) -> Result<T, WireError>
where
    T: TryFrom<i128> + std::fmt::Display,
{
    let value = decoder.integer(name)?;
    T::try_from(value).map_err(|_| WireError::mismatch(format!("{name} in {min}..={max}"), value.to_string()))
}

macro_rules! integers {
    ($($ty:ident as $wide:ident by $write:ident,)*) => {$(
        impl Wire for $ty {
            #[inline]
            fn encode(&self, encoder: &mut Encoder) {
                encoder.$write(*self as $wide);
            }

            #[inline]
            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
                integer(decoder, concat!("`", stringify!($ty), "`"), $ty::MIN, $ty::MAX)
            }
        }
    )*};
}

integers! {
    u16 as u64 by uint,
    u32 as u64 by uint,
    u64 as u64 by uint,
    usize as u64 by uint,
    i8 as i64 by int,
    i16 as i64 by int,
    i32 as i64 by int,
    i64 as i64 by int,
    isize as i64 by int,
}

/// A sequence of bytes is encoded as MessagePack bytes, not as an array.
impl Wire for u8 {
    #[inline]
    fn encode(&self, encoder: &mut Encoder) {
        encoder.uint(u64::from(*self));
    }

    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        integer(decoder, "`u8`", u8::MIN, u8::MAX)
    }

    fn encode_slice(items: &[Self], encoder: &mut Encoder) {
        encoder.bytes(items);
    }

    fn decode_vec(decoder: &mut Decoder<'_>) -> Result<Vec<Self>, WireError> {
        match decoder.next_is_array() {
            true => decoder.sequence(),
            false => decoder.bytes().map(<[u8]>::to_vec),
        }
    }

    fn decode_array<const N: usize>(decoder: &mut Decoder<'_>) -> Result<[Self; N], WireError> {
        if decoder.next_is_array() {
            return decoder.array();
        }
        let bytes = decoder.bytes()?;
        bytes
            .try_into()
            .map_err(|_| WireError::mismatch(format!("{N} bytes"), format!("{} bytes", bytes.len())))
    }
}

/// MessagePack has integers of up to 64 bits, so these are 16 bytes, big-endian. Decoding also accepts integers, which other
/// languages write.
macro_rules! wide_integers {
    ($($ty:ident)*) => {$(
        impl Wire for $ty {
            fn encode(&self, encoder: &mut Encoder) {
                encoder.bytes(&self.to_be_bytes());
            }

            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
                const NAME: &str = concat!("`", stringify!($ty), "`");
                if !decoder.next_is_bytes() {
                    return integer(decoder, NAME, $ty::MIN, $ty::MAX);
                }
                let bytes = decoder.bytes()?;
                bytes.try_into().map($ty::from_be_bytes).map_err(|_| {
                    WireError::mismatch(format!("{NAME} of 16 bytes"), format!("{} bytes", bytes.len()))
                })
            }
        }
    )*};
}

wide_integers!(u128 i128);

impl Wire for f32 {
    #[inline]
    fn encode(&self, encoder: &mut Encoder) {
        encoder.f32(*self);
    }

    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        decoder.f32()
    }
}

impl Wire for f64 {
    #[inline]
    fn encode(&self, encoder: &mut Encoder) {
        encoder.f64(*self);
    }

    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        decoder.f64()
    }
}

/// MessagePack has floats of 32 and 64 bits, so these are widened without loss.
macro_rules! half_floats {
    ($($ty:ident)*) => {$(
        impl Wire for $ty {
            fn encode(&self, encoder: &mut Encoder) {
                encoder.f32(self.to_f32());
            }

            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
                let wide = decoder.f32()?;
                let value = $ty::from_f32(wide);
                if wide.is_finite() && !value.is_finite() {
                    let range = format!("`{}` in {}..={}", stringify!($ty), $ty::MIN, $ty::MAX);
                    return Err(WireError::mismatch(range, wide.to_string()));
                }
                Ok(value)
            }
        }
    )*};
}

half_floats!(f16 bf16);
