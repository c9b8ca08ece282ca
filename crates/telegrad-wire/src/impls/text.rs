//! Text.

use std::borrow::Cow;

use crate::{Decoder, Encoder, Layouts, TypeNumber, Wire, WireError};

impl Wire for String {
    #[inline]
    fn encode(&self, encoder: &mut Encoder) {
        encoder.str(self);
    }

    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        decoder.str().map(str::to_owned)
    }
}

/// Encoded as a string. Decodes to an owned one.
impl Wire for Cow<'static, str> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.str(self);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        String::decode(decoder).map(Cow::Owned)
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        String::layout(layouts)
    }
}

/// A string of one character.
impl Wire for char {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.str(self.encode_utf8(&mut [0; 4]));
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        let text = decoder.str()?;
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(WireError::mismatch(
                "a string of one character",
                format!("one of {} bytes", text.len()),
            )),
        }
    }
}
