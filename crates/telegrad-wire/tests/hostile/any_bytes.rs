//! Decodes arbitrary bytes as every type.
//!
//! The tests run this on chosen input, the fuzzer on generated input.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use half::{bf16, f16};
use telegrad_wire::{
    Buffer, Catalogue, DType, Decoder, Encoder, FrameHeader, HEADER_LEN, RawTensor, TensorMeta, TensorTable,
    TypeLayout, Wire, WireError,
};

/// A recursive type with a field of every kind.
#[derive(Wire)]
pub(crate) enum Anything {
    Nothing,
    Flag(bool),
    Numbers(u8, i16, u32, i64, f32, f64, u128),
    Text {
        text: String,
        letter: char,
    },
    Bytes(Vec<u8>),
    List(Vec<Anything>),
    Options(Option<Option<Box<Anything>>>, Option<()>),
    Maps(BTreeMap<String, Anything>, HashMap<i8, Vec<u16>>),
    Tensors {
        first: RawTensor,
        rest: Vec<Option<RawTensor>>,
    },
    Deep(Arc<Anything>),
}

/// Decodes the bytes as every type. Values and errors are both fine; only a panic fails.
pub(crate) fn into_everything(data: &[u8]) {
    header(data);
    table(data);
    value::<bool>(data);
    value::<(u8, u16, u32, u64, usize)>(data);
    value::<(i8, i16, i32, i64, isize)>(data);
    value::<(u128, i128)>(data);
    value::<(f32, f64, f16, bf16)>(data);
    value::<(String, char)>(data);
    value::<Vec<u8>>(data);
    value::<Vec<()>>(data);
    value::<Vec<Vec<Vec<u64>>>>(data);
    value::<VecDeque<f32>>(data);
    value::<([u8; 4], [u16; 3])>(data);
    value::<Option<Option<Option<u8>>>>(data);
    value::<BTreeMap<Option<String>, Vec<u8>>>(data);
    value::<HashMap<String, HashMap<u64, u64>>>(data);
    value::<(BTreeSet<i32>, HashSet<String>)>(data);
    value::<(Duration, IpAddr, SocketAddr)>(data);
    value::<Vec<RawTensor>>(data);
    value::<Anything>(data);
    layouts(data);
    #[cfg(feature = "candle")]
    value::<Vec<candle_core::Tensor>>(data);
    #[cfg(feature = "serde")]
    value::<telegrad_wire::Serde<BTreeMap<String, Vec<Option<(f64, String)>>>>>(data);
}

fn header(data: &[u8]) {
    if let Some(bytes) = data.first_chunk::<HEADER_LEN>()
        && let Ok(header) = FrameHeader::from_bytes(bytes, 1 << 20)
    {
        assert_eq!(
            header.to_bytes(),
            *bytes,
            "a header that was accepted is written as it was read"
        );
    }
}

/// Compares every accepted layout.
fn layouts(data: &[u8]) {
    value::<TypeLayout>(data);
    value::<Catalogue>(data);
    if let Ok(layout) = decode::<TypeLayout>(data) {
        let ours = TypeLayout::of::<Anything>();
        assert_eq!(
            ours.difference(&layout).is_some(),
            layout.difference(&ours).is_some()
        );
        assert_eq!(layout.difference(&layout), None);
    }
    if let Ok(catalogue) = decode::<Catalogue>(data) {
        assert_eq!(catalogue.differences(&catalogue, |_| &[]), []);
    }
}

fn table(data: &[u8]) {
    // The first bytes stand for the fields of the header around the table.
    let [count, size, rest @ ..] = data else { return };
    if let Ok(metas) = TensorTable::read(rest, u16::from(*count), u64::from(*size)) {
        let mut again = Vec::new();
        for meta in &metas {
            TensorTable::push(&mut again, meta.dtype, &meta.shape).expect("what was read can be written");
        }
        assert_eq!(again, rest, "an accepted table is encoded as it was read");
    }
}

/// Checks that an accepted value encodes and decodes to itself.
fn value<T: Wire>(data: &[u8]) {
    let Ok(value) = decode::<T>(data) else { return };
    let first = encode(&value);
    // Encoding renumbers the tensors, so decoding gets all of them again.
    let again = decode::<T>(&first).unwrap_or_else(|error| {
        panic!(
            "{} does not read what it wrote: {error}: {first:02x?}",
            std::any::type_name::<T>()
        )
    });
    // The order within a hash map may differ, the length may not.
    assert_eq!(
        encode(&again).len(),
        first.len(),
        "{}",
        std::any::type_name::<T>()
    );
}

fn decode<T: Wire>(data: &[u8]) -> Result<T, WireError> {
    let shapes: [&[usize]; 4] = [&[2], &[], &[0, 3], &[1, 2]];
    let tensors = shapes.map(|shape| {
        let meta = TensorMeta {
            dtype: DType::F32,
            shape: shape.to_vec(),
        };
        let content = Buffer::from_vec(vec![1_f32; meta.elements().expect("a small shape")]);
        RawTensor::new(meta, content).expect("content made for the shape")
    });
    let mut decoder = Decoder::with_tensors(data, Vec::from(tensors));
    let value = T::decode(&mut decoder)?;
    decoder.finish()?;
    Ok(value)
}

fn encode<T: Wire>(value: &T) -> Vec<u8> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder.finish().expect("what was decoded can be encoded").body
}
