//! Lengths of time.

use std::time::Duration;

use crate::{Decoder, Encoder, Wire, WireError};

/// An array of whole seconds and nanoseconds.
impl Wire for Duration {
    fn encode(&self, encoder: &mut Encoder) {
        (self.as_secs(), self.subsec_nanos()).encode(encoder);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        let (seconds, nanos) = <(u64, u32)>::decode(decoder)?;
        // More nanoseconds than a second has would carry, and could overflow.
        if nanos >= 1_000_000_000 {
            return Err(WireError::mismatch(
                "nanoseconds below a second",
                nanos.to_string(),
            ));
        }
        Ok(Duration::new(seconds, nanos))
    }
}
