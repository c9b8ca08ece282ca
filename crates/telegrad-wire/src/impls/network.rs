//! Addresses, encoded as text: readable in traces and easy to write in other languages.

use std::net::{IpAddr, SocketAddr};

use crate::error::excerpt;
use crate::{Decoder, Encoder, Wire, WireError};

macro_rules! addresses {
    ($($ty:ident $what:literal,)*) => {$(
        impl Wire for $ty {
            fn encode(&self, encoder: &mut Encoder) {
                encoder.str(&self.to_string());
            }

            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
                let text = decoder.str()?;
                text.parse().map_err(|_| WireError::mismatch($what, excerpt(text)))
            }
        }
    )*};
}

addresses! {
    IpAddr "an IP address",
    SocketAddr "an address and port",
}
