//! Encoding and decoding return the same value.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use half::{bf16, f16};
use proptest::collection::{btree_map, btree_set, hash_map, hash_set, vec, vec_deque};
use proptest::option;
use proptest::prelude::*;
use telegrad_wire::{Buffer, DType, Decoder, Encoder, Payload, RawTensor, TensorMeta, TensorTable, Wire};

/// Transfers tensors as a link does: their bytes beside the body, described by the table.
fn transport(payload: &Payload) -> Vec<RawTensor> {
    let (mut table, mut data) = (Vec::new(), Vec::new());
    for tensor in &payload.tensors {
        TensorTable::push(&mut table, tensor.dtype(), tensor.shape()).unwrap();
        tensor.with_bytes(&mut |bytes| data.extend_from_slice(bytes));
    }
    let count = payload.tensors.len() as u16;
    let metas = TensorTable::read(&table, count, data.len() as u64).unwrap();
    let mut rest = &data[..];
    let tensors = metas.into_iter().map(|meta| {
        let (bytes, after) = rest.split_at(meta.bytes().unwrap());
        rest = after;
        let buffer = Buffer::copy_from(meta.dtype, bytes);
        RawTensor::new(meta, buffer).unwrap()
    });
    tensors.collect()
}

fn sent<T: Wire>(value: &T) -> T {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    let payload = encoder.finish().unwrap();
    let mut decoder = Decoder::with_tensors(&payload.body, transport(&payload));
    let back = T::decode(&mut decoder).unwrap();
    decoder.finish().unwrap();
    back
}

fn returns<T: Wire + PartialEq + Debug>(value: T) -> Result<(), TestCaseError> {
    prop_assert_eq!(sent(&value), value);
    Ok(())
}

#[derive(Wire, Debug, PartialEq, Clone)]
enum Tree<T> {
    Leaf(T),
    Nothing,
    Branch {
        left: Box<Tree<T>>,
        right: Option<Box<Tree<T>>>,
    },
    Many(Vec<Tree<T>>, u8),
}

fn tree() -> impl Strategy<Value = Tree<Option<i32>>> {
    let leaf = prop_oneof![any::<Option<i32>>().prop_map(Tree::Leaf), Just(Tree::Nothing)];
    leaf.prop_recursive(5, 32, 4, |inner| {
        prop_oneof![
            (inner.clone(), option::of(inner.clone())).prop_map(|(l, r)| Tree::Branch {
                left: Box::new(l),
                right: r.map(Box::new)
            }),
            (vec(inner, 0..4), any::<u8>()).prop_map(|(many, n)| Tree::Many(many, n)),
        ]
    })
}

const DTYPES: [DType; 10] = [
    DType::U8,
    DType::U32,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::BF16,
    DType::F16,
    DType::F32,
    DType::F64,
    DType::F8E4M3,
];

fn tensor() -> impl Strategy<Value = RawTensor> {
    (prop::sample::select(&DTYPES[..]), vec(0_usize..5, 0..4)).prop_flat_map(|(dtype, shape)| {
        let meta = TensorMeta { dtype, shape };
        let len = meta.bytes().unwrap();
        vec(any::<u8>(), len)
            .prop_map(move |bytes| RawTensor::new(meta.clone(), Buffer::copy_from(dtype, &bytes)).unwrap())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn integers_return(value: (u8, u16, u32, u64, usize, u128), signed: (i8, i16, i32, i64, isize, i128)) {
        returns(value)?;
        returns(signed)?;
    }

    #[test]
    fn floats_return_bit_by_bit(a: u32, b: u64, c: u16) {
        prop_assert_eq!(sent(&f32::from_bits(a)).to_bits(), a);
        prop_assert_eq!(sent(&f64::from_bits(b)).to_bits(), b);
        // Widening makes a signalling NaN quiet, so these are compared as numbers.
        let (half, brain) = (f16::from_bits(c), bf16::from_bits(c));
        prop_assert!(sent(&half) == half || (half.is_nan() && sent(&half).is_nan()));
        prop_assert!(sent(&brain) == brain || (brain.is_nan() && sent(&brain).is_nan()));
    }

    #[test]
    fn text_returns(value: (String, char, bool)) {
        returns(value)?;
    }

    #[test]
    fn addresses_and_durations_return(ip: IpAddr, port: u16, seconds: u64, nanos in 0_u32..1_000_000_000) {
        returns((ip, SocketAddr::new(ip, port)))?;
        returns(Duration::new(seconds, nanos))?;
    }

    #[test]
    fn sequences_return(
        bytes: Vec<u8>,
        numbers in vec(any::<i64>(), 0..40),
        queue in vec_deque(any::<u8>(), 0..20),
        array: [Option<u16>; 3],
        digest: [u8; 20],
    ) {
        returns((bytes, numbers, queue, array, digest))?;
    }

    #[test]
    fn a_queue_that_wraps_returns(front: Vec<u8>, back: Vec<u8>) {
        let mut queue: VecDeque<u8> = back.into();
        for byte in front {
            queue.push_front(byte);
        }
        returns(queue)?;
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn maps_and_sets_return(
        hashed in hash_map(any::<String>(), any::<Option<u8>>(), 0..20),
        sorted in btree_map(any::<(i8, bool)>(), vec(any::<f32>(), 0..3), 0..20),
        hashed_set in hash_set(any::<i32>(), 0..20),
        sorted_set in btree_set(any::<Option<String>>(), 0..20),
    ) {
        returns::<HashMap<_, _>>(hashed)?;
        returns::<BTreeMap<_, _>>(sorted)?;
        returns::<HashSet<_>>(hashed_set)?;
        returns::<BTreeSet<_>>(sorted_set)?;
    }

    #[test]
    fn nested_options_return(
        two: Option<Option<u8>>,
        three: Option<Option<Option<()>>>,
        inside: Vec<Option<Option<bool>>>,
        map in option::of(btree_map(any::<Option<()>>(), any::<u8>(), 0..2)),
    ) {
        returns(two)?;
        returns(three)?;
        returns(inside)?;
        returns(map)?;
    }

    #[test]
    fn derived_types_return(value in tree(), shared in tree()) {
        returns(value)?;
        returns(Some(Arc::new(shared)))?;
    }

    #[test]
    fn tensors_of_every_type_and_shape_return(tensors in vec(tensor(), 0..6), between: u8) {
        returns((tensors.first().cloned(), between, tensors))?;
    }
}

#[test]
fn a_tensor_is_sent_without_copying_its_bytes() {
    let meta = TensorMeta {
        dtype: DType::F32,
        shape: vec![2],
    };
    let tensor = RawTensor::new(meta, Buffer::from_vec(vec![1.0_f32, 2.0])).unwrap();
    let mut encoder = Encoder::new();
    tensor.encode(&mut encoder);
    let payload = encoder.finish().unwrap();
    payload.tensors[0].with_bytes(&mut |bytes| assert_eq!(bytes.as_ptr(), tensor.bytes().as_ptr()));
}

#[test]
fn a_sole_owner_splits_a_tensor_without_a_copy() {
    for dtype in DTYPES {
        let meta = TensorMeta {
            dtype,
            shape: vec![3],
        };
        let bytes: Vec<u8> = (0..meta.bytes().unwrap() as u8).collect();
        let tensor = RawTensor::new(meta, Buffer::copy_from(dtype, &bytes)).unwrap();
        let at = tensor.bytes().as_ptr();
        let (meta, buffer) = tensor.into_parts();
        assert_eq!(buffer.as_bytes().as_ptr(), at);
        match meta.dtype.size() {
            1 => assert_eq!(address(&buffer.into_vec::<u8>()), at),
            2 => assert_eq!(address(&buffer.into_vec::<i16>()), at),
            4 => assert_eq!(address(&buffer.into_vec::<f32>()), at),
            _ => assert_eq!(address(&buffer.into_vec::<f64>()), at),
        }
    }
}

fn address<T>(elements: &[T]) -> *const u8 {
    elements.as_ptr().cast()
}
