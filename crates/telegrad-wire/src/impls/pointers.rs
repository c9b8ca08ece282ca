//! Pointers, `PhantomData` and raw tensors.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::{Decoder, Encoder, Layouts, RawTensor, TypeNumber, Wire, WireError};

macro_rules! pointers {
    ($($pointer:ident)*) => {$(
        impl<T: Wire> Wire for $pointer<T> {
            fn encode(&self, encoder: &mut Encoder) {
                T::encode(self, encoder);
            }

            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
                T::decode(decoder).map($pointer::new)
            }

            fn layout(layouts: &mut Layouts) -> TypeNumber {
                T::layout(layouts)
            }
        }
    )*};
}

pointers!(Box Arc);

impl<T: ?Sized + 'static> Wire for PhantomData<T> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.nil();
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        decoder.nil().map(|()| PhantomData)
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        layouts.named("PhantomData")
    }
}

impl Wire for RawTensor {
    fn is_quick_to_encode(&self) -> bool {
        true
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.tensor(self.clone());
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        decoder.tensor()
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        layouts.named("Tensor")
    }
}
