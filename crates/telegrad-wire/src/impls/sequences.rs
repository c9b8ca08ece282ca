//! Vectors, queues, arrays and options.

use std::collections::VecDeque;

use crate::{Decoder, Encoder, Layout, Layouts, TypeNumber, Wire, WireError};

impl<T: Wire> Wire for Vec<T> {
    #[inline]
    fn encode(&self, encoder: &mut Encoder) {
        T::encode_slice(self, encoder);
    }

    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        T::decode_vec(decoder)
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        let layout = Layout::List(T::layout(layouts));
        layouts.add(layout)
    }
}

/// Encoded as an array, also for bytes: a queue's content consists of two slices.
impl<T: Wire> Wire for VecDeque<T> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.array_len(self.len());
        for item in self {
            item.encode(encoder);
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        T::decode_vec(decoder).map(Self::from)
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        let layout = Layout::List(T::layout(layouts));
        layouts.add(layout)
    }
}

impl<T: Wire, const N: usize> Wire for [T; N] {
    #[inline]
    fn encode(&self, encoder: &mut Encoder) {
        T::encode_slice(self, encoder);
    }

    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        T::decode_array(decoder)
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        let layout = Layout::Array(T::layout(layouts), N as u64);
        layouts.add(layout)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            None => encoder.nil(),
            Some(value) => encoder.some(|encoder| value.encode(encoder)),
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        decoder.option(T::decode)
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        let layout = Layout::Option(T::layout(layouts));
        layouts.add(layout)
    }
}
