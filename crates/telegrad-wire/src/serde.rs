//! `Wire` for types of serde.

use rmp_serde::Deserializer;
use rmp_serde::decode::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Decoder, Encoder, MAX_DEPTH, Wire, WireError};

/// Adapter that sends a type with serde's traits.
///
/// The value is one MessagePack value in the body, with structs as maps from field names. Use it for types of other crates;
/// for your own types `#[derive(Wire)]` also supports tensors and references.
///
/// Serde does not describe types, so the signatures of two programs compare `Serde<T>` by the name of `T` alone.
///
/// ```
/// use telegrad_wire::{Decoder, Encoder, Serde, Wire};
///
/// let mut encoder = Encoder::new();
/// Serde(vec![Some(1), None]).encode(&mut encoder);
/// let payload = encoder.finish()?;
/// let Serde(back) = Serde::<Vec<Option<u8>>>::decode(&mut Decoder::new(&payload.body))?;
/// assert_eq!(back, [Some(1), None]);
/// # Ok::<(), telegrad_wire::WireError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serde<T>(pub T);

impl<T: Serialize + DeserializeOwned + 'static> Wire for Serde<T> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.serialized(|body| {
            rmp_serde::encode::write_named(body, &self.0).map_err(|error| WireError::Unencodable {
                what: std::any::type_name::<T>().into(),
                why: error.to_string(),
            })
        });
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        // Skipping the whole value first validates every length in it before serde relies on one, and fixes where the rest
        // of the body starts.
        let value = decoder.skip_value()?;
        let mut deserializer = Deserializer::from_read_ref(value);
        deserializer.set_max_depth(MAX_DEPTH);
        T::deserialize(&mut deserializer)
            .map(Self)
            .map_err(|error| match error {
                Error::DepthLimitExceeded => WireError::TooDeep {
                    path: Vec::new(),
                    limit: MAX_DEPTH,
                },
                error => WireError::mismatch(format!("`{}`", std::any::type_name::<T>()), error.to_string()),
            })
    }
}
