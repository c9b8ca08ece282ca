//! A bridge to serde.

use rmp_serde::Deserializer;
use rmp_serde::decode::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Decoder, Encoder, MAX_DEPTH, Wire, WireError};

/// Carries a type that implements serde's traits.
///
/// The value is one MessagePack value in the body, with structs as maps from field names. For types
/// of other crates: your own do better with `#[derive(Wire)]`, which can hold tensors and references.
///
/// Serde does not describe types, so two programs compare `Serde<T>` by the name of `T` alone, not by its fields.
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
        // One whole value is cut out first. So every length in it is known to be true before serde
        // trusts it, and whatever serde reads, the rest of the body starts where it should.
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
