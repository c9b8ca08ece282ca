//! Every shape of type that can derive `Wire`.

use std::marker::PhantomData;

use telegrad::prelude::*;
use telegrad::{Decoder, Encoder};

#[derive(Wire, Debug, PartialEq)]
struct Unit;

#[derive(Wire, Debug, PartialEq)]
struct Newtype(u64);

#[derive(Wire, Debug, PartialEq)]
struct Pair(u8, String);

#[derive(Wire, Debug, PartialEq)]
struct Empty {}

#[derive(Wire, Debug, PartialEq)]
struct Generic<T, const N: usize> {
    r#type: T,
    list: [T; N],
    nothing: PhantomData<u8>,
}

#[derive(Wire, Debug, PartialEq)]
enum Everything {
    Nothing,
    One(Newtype),
    Two(Pair, Unit),
    Named { inner: Box<Everything>, empty: Empty },
}

#[derive(Wire)]
struct WithTensor {
    weights: Vec<Option<Tensor>>,
}

#[derive(Wire)]
enum Never {}

#[test]
fn every_shape_of_type_round_trips() {
    fn is_wire<T: Wire>() {}
    is_wire::<Never>();
    is_wire::<WithTensor>();
    let weights = vec![Some(Tensor::new(1f32, &Device::Cpu).unwrap()), None];
    assert_eq!(WithTensor { weights }.weights.len(), 2);
    let inner = Box::new(Everything::Two(Pair(1, "x".into()), Unit));
    let value = (
        Everything::Named {
            inner,
            empty: Empty {},
        },
        vec![Everything::Nothing, Everything::One(Newtype(7))],
        Generic {
            r#type: 1_u8,
            list: [2, 3],
            nothing: PhantomData,
        },
    );
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    let payload = encoder.finish().unwrap();
    let back = Wire::decode(&mut Decoder::new(&payload.body)).unwrap();
    assert_eq!(value, back);
}
