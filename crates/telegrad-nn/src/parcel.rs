//! Inputs and outputs of modules, encoded.

use std::any::type_name;

use candle_core::Tensor;
use telegrad_wire::{Decoder, Encoder, Payload, ReceivedTensor, Reference, Wire, WireError};

/// An encoded value of any `Wire` type, with tables of its tensors and references.
///
/// A remote function has fixed argument types; those of a module depend on its model. So the value is encoded before the
/// call and decoded in the module. Its tensors remain tensors of the message, and are tracked like any other.
pub(crate) struct Parcel {
    body: Vec<u8>,
    pub(crate) tensors: Vec<Tensor>,
    references: Vec<Reference>,
}

impl Parcel {
    /// Encodes a value.
    ///
    /// # Errors
    /// When the value cannot be sent, or contains a tensor of another library.
    pub(crate) fn pack<T: Wire>(value: &T) -> Result<Self, WireError> {
        let mut encoder = Encoder::new();
        value.encode(&mut encoder);
        let Payload {
            body,
            tensors,
            references,
        } = encoder.finish()?;
        let tensors = tensors.iter().map(|tensor| {
            let tensor = tensor.as_any().downcast_ref::<Tensor>().cloned();
            tensor.ok_or_else(|| WireError::mismatch("a tensor of candle", "one of another library"))
        });
        Ok(Self {
            body,
            tensors: tensors.collect::<Result<_, _>>()?,
            references,
        })
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// When the value has another type.
    pub(crate) fn unpack<T: Wire>(self) -> Result<T, WireError> {
        let tensors = self.tensors.into_iter();
        let tensors: Vec<_> = tensors
            .map(|tensor| ReceivedTensor::Tracked(Box::new(tensor)))
            .collect();
        let mut decoder = Decoder::with_tables(&self.body, tensors, self.references);
        let value = T::decode(&mut decoder)?;
        decoder.finish()?;
        Ok(value)
    }
}

impl Wire for Parcel {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.array_len(3);
        encoder.bytes(&self.body);
        self.tensors.encode(encoder);
        encoder.array_len(self.references.len());
        for reference in &self.references {
            encoder.reference(reference.clone());
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        decoder.array_of(3, "a value and what it refers to")?;
        let body = decoder.bytes()?.to_vec();
        let tensors = Wire::decode(decoder)?;
        let references = (0..decoder.array_len("references")?).map(|_| decoder.reference());
        Ok(Self {
            body,
            tensors,
            references: references.collect::<Result<_, _>>()?,
        })
    }
}

/// Returns the name of a type without paths, for errors.
pub(crate) fn name_of<T>() -> String {
    let mut name = String::new();
    for part in type_name::<T>().split_inclusive(|c: char| !(c.is_alphanumeric() || "_:".contains(c))) {
        name.push_str(part.rsplit("::").next().unwrap_or(part));
    }
    name
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};
    use telegrad_wire::RawTensor;

    use super::*;

    fn tensor(value: f32) -> Tensor {
        Tensor::new(value, &Device::Cpu).unwrap()
    }

    #[test]
    fn a_value_keeps_its_tensors_and_its_type() {
        let value = (tensor(1.0), vec![Some(tensor(2.0)), None], 3_u32);
        let parcel = Parcel::pack(&value).unwrap();
        assert_eq!(parcel.tensors.len(), 2);
        assert_eq!(
            parcel.tensors[0].id(),
            value.0.id(),
            "the tensor itself, not a copy"
        );
        let (a, b, c): (Tensor, Vec<Option<Tensor>>, u32) = parcel.unpack().unwrap();
        assert_eq!(a.id(), value.0.id());
        assert_eq!((b.len(), b[1].is_none(), c), (2, true, 3));
    }

    #[test]
    fn another_type_is_an_error() {
        let parcel = || Parcel::pack(&(tensor(1.0), tensor(2.0))).unwrap();
        let error = parcel().unpack::<Tensor>().unwrap_err().to_string();
        assert!(error.contains("expected a tensor"), "{error}");
        assert!(parcel().unpack::<(Tensor, Tensor, Tensor)>().is_err());
        assert!(parcel().unpack::<(Tensor, u32)>().is_err());
        let zeros = Tensor::zeros(2, DType::F32, &Device::Cpu).unwrap();
        let raw = RawTensor::try_from(&zeros).unwrap();
        let error = Parcel::pack(&raw).map(drop).unwrap_err().to_string();
        assert!(error.contains("one of another library"), "{error}");
    }

    #[test]
    fn types_are_named_without_their_paths() {
        assert_eq!(name_of::<(Tensor, Option<Tensor>)>(), "(Tensor, Option<Tensor>)");
        assert_eq!(name_of::<Tensor>(), "Tensor");
    }
}
