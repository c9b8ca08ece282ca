//! The wire format byte by byte, on which other versions and other languages rely.
//!
//! A failure here means that the format changed, not that the expectation is outdated.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use half::{bf16, f16};
use telegrad_wire::{
    Buffer, CallId, DType, Decoder, Encoder, FrameHeader, FrameKind, RawTensor, TensorMeta, TensorTable, Wire,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Asserts that the value encodes to these bytes and decodes from them; spaces are ignored.
#[track_caller]
fn golden<T: Wire + PartialEq + Debug>(value: T, bytes: &str) {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    let body = encoder.finish().unwrap().body;
    assert_eq!(hex(&body), bytes.replace(' ', ""), "encoding of {value:?}");
    let mut decoder = Decoder::new(&body);
    assert_eq!(T::decode(&mut decoder).unwrap(), value);
    decoder.finish().unwrap();
}

/// Asserts that the value also decodes from these bytes, another form.
#[track_caller]
fn also<T: Wire + PartialEq + Debug>(bytes: &[u8], value: T) {
    let mut decoder = Decoder::new(bytes);
    assert_eq!(T::decode(&mut decoder).unwrap(), value);
    decoder.finish().unwrap();
}

#[test]
fn integers_take_their_shortest_form() {
    golden(0_u8, "00");
    golden(127_u64, "7f");
    golden(128_u8, "cc80");
    golden(256_u16, "cd0100");
    golden(65_536_u32, "ce00010000");
    golden(u64::MAX, "cfffffffffffffffff");
    golden(usize::MAX, "cfffffffffffffffff");
    golden(5_i8, "05");
    golden(-1_i8, "ff");
    golden(-32_i64, "e0");
    golden(-33_i16, "d0df");
    golden(-129_i32, "d1ff7f");
    golden(-32_769_i64, "d2ffff7fff");
    golden(i64::MIN, "d38000000000000000");
    golden(isize::MIN, "d38000000000000000");
}

#[test]
fn integers_beyond_64_bits_are_16_bytes_big_endian() {
    golden(1_u128, "c410 00000000000000000000000000000001");
    golden(-2_i128, "c410 fffffffffffffffffffffffffffffffe");
    also(&[0x07], 7_u128);
    also(&[0xff], -1_i128);
}

#[test]
fn floats_keep_their_width() {
    golden(1.5_f32, "ca3fc00000");
    golden(-0.1_f64, "cbbfb999999999999a");
    golden(f32::INFINITY, "ca7f800000");
    golden(f16::from_f32(1.5), "ca3fc00000");
    golden(bf16::from_f32(-2.0), "cac0000000");
}

#[test]
fn floats_are_read_from_what_other_languages_write() {
    also(&[0x02], 2.0_f32);
    also(&[0xff], -1.0_f64);
    also(&[0xca, 0x3f, 0xc0, 0, 0], 1.5_f64);
    also(&[0xcb, 0x3f, 0xb9, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9a], 0.1_f32);
    also(&[0xcb, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0], f32::INFINITY);
    also(&[0x03], f16::from_f32(3.0));
}

#[test]
fn text_booleans_and_nil() {
    golden(false, "c2");
    golden(true, "c3");
    golden((), "c0");
    golden(PhantomData::<str>, "c0");
    golden(String::new(), "a0");
    golden("grad".to_owned(), "a4 67726164");
    golden("x".repeat(32), &format!("d920{}", "78".repeat(32)));
    golden('é', "a2c3a9");
    golden("127.0.0.1".parse::<IpAddr>().unwrap(), "a9 3132372e302e302e31");
    golden("[::1]:80".parse::<SocketAddr>().unwrap(), "a8 5b3a3a315d3a3830");
}

#[test]
fn bytes_are_one_piece() {
    golden(vec![1_u8, 2, 255], "c403 0102ff");
    golden([7_u8; 2], "c402 0707");
    golden(Vec::<u8>::new(), "c400");
    golden(vec![vec![1_u8], vec![]], "92 c40101 c400");
    also(&[0x92, 0x01, 0xcc, 0xff], vec![1_u8, 255]);
    also(&[0x92, 0x01, 0xcc, 0xff], [1_u8, 255]);
    also(&[0xc4, 0x02, 0x01, 0xff], VecDeque::from([1_u8, 255]));
}

#[test]
fn sequences_are_arrays() {
    golden(vec![1_u16, 300], "92 01 cd012c");
    golden(vec![true; 16], &format!("dc0010{}", "c3".repeat(16)));
    golden(VecDeque::from([1_u8, 2]), "92 01 02");
    golden([1_i8, -1, 0], "93 01 ff 00");
    golden([(); 0], "90");
    golden(BTreeSet::from([3_u8, 1]), "92 01 03");
    golden(HashSet::<u8>::from([9]), "91 09");
    golden(Duration::new(3, 500), "92 03 cd01f4");
}

#[test]
fn tuples_are_arrays_of_their_elements() {
    golden((7_u8,), "91 07");
    golden((1_u8, "a".to_owned()), "92 01 a161");
    let twelve = (
        1_u8, 2_u8, 3_u8, 4_u8, 5_u8, 6_u8, 7_u8, 8_u8, 9_u8, 10_u8, 11_u8, false,
    );
    golden(twelve, "9c 01 02 03 04 05 06 07 08 09 0a 0b c2");
}

#[test]
fn maps_are_maps() {
    golden(
        BTreeMap::from([("a".to_owned(), 1_u8), ("b".to_owned(), 2)]),
        "82 a161 01 a162 02",
    );
    golden(HashMap::<u8, bool>::from([(1, true)]), "81 01 c3");
    golden(BTreeMap::<u8, u8>::new(), "80");
}

#[test]
fn pointers_are_encoded_as_their_content() {
    golden(Box::new(5_u8), "05");
    golden(Arc::new(Box::new("a".to_owned())), "a161");
}

#[test]
fn options_are_nil_or_the_value_and_can_be_nested() {
    golden(None::<u8>, "c0");
    golden(Some(5_u8), "05");
    golden(Some(None::<u8>), "81c0 c0");
    golden(Some(Some(5_u8)), "05");
    golden(Some(Some(None::<u8>)), "81c0 81c0 c0");
    golden(Some(()), "81c0 c0");
    golden(Some(BTreeMap::from([((), 1_u8)])), "81c0 81 c0 01");
    golden(vec![None, Some(Some(1_u8)), Some(None)], "93 c0 01 81c0c0");
}

#[derive(Wire, Debug, PartialEq)]
struct Unit;

#[derive(Wire, Debug, PartialEq)]
struct NewType(u32);

#[derive(Wire, Debug, PartialEq)]
struct Pair(u8, String);

#[derive(Wire, Debug, PartialEq)]
struct NoFields();

#[derive(Wire, Debug, PartialEq)]
struct NoNamedFields {}

#[derive(Wire, Debug, PartialEq)]
struct Point<T, const N: usize>
where
    T: PartialEq,
{
    at: [T; N],
    r#type: Option<Box<Self>>,
}

#[derive(Wire, Debug, PartialEq)]
enum Shape {
    Empty,
    Circle(f32),
    Segment(u8, u8),
    Named { left: u8, right: Vec<Shape> },
    Tuple(),
    Alone { value: u8 },
}

#[test]
fn derived_structs_are_arrays_and_newtypes_are_their_field() {
    golden(Unit, "c0");
    golden(NewType(5), "05");
    golden(Pair(1, "a".into()), "92 01 a161");
    golden(NoFields(), "90");
    golden(NoNamedFields {}, "90");
    let inner = Point {
        at: [3_u8, 4],
        r#type: None,
    };
    golden(
        Point {
            at: [1_u8, 2],
            r#type: Some(Box::new(inner)),
        },
        "92 c4020102 92 c4020304 c0",
    );
}

#[test]
fn derived_enums_are_a_name_or_a_map_of_one() {
    golden(Shape::Empty, "a5 456d707479");
    golden(Shape::Circle(1.5), "81 a6436972636c65 ca3fc00000");
    golden(Shape::Segment(1, 2), "81 a75365676d656e74 92 01 02");
    golden(
        Shape::Named {
            left: 1,
            right: vec![Shape::Empty],
        },
        "81 a54e616d6564 92 01 91 a5456d707479",
    );
    golden(Shape::Tuple(), "81 a55475706c65 90");
    golden(Shape::Alone { value: 7 }, "81 a5416c6f6e65 91 07");
    // The same map of one in a longer form, as another encoder may write it.
    also(b"\xde\x00\x01\xa5Alone\x91\x07", Shape::Alone { value: 7 });
}

#[test]
fn tensors_are_an_extension_that_counts_them() {
    let meta = TensorMeta {
        dtype: DType::I16,
        shape: vec![2],
    };
    let tensor = RawTensor::new(meta, Buffer::from_vec(vec![1_i16, -1])).unwrap();
    let mut encoder = Encoder::new();
    (tensor.clone(), 3_u8, vec![tensor.clone()]).encode(&mut encoder);
    let payload = encoder.finish().unwrap();
    assert_eq!(
        hex(&payload.body),
        "93d60100000000 03 91d60100000001".replace(' ', "")
    );
    assert_eq!(payload.tensors.len(), 2);
    payload.tensors[1].with_bytes(&mut |bytes| assert_eq!(hex(bytes), "0100ffff"));
    let tensors = vec![tensor.clone(), tensor.clone()];
    let mut decoder = Decoder::with_tensors(&payload.body, tensors);
    let back = <(RawTensor, u8, Vec<RawTensor>)>::decode(&mut decoder).unwrap();
    assert_eq!(back, (tensor.clone(), 3, vec![tensor]));
    decoder.finish().unwrap();
}

#[test]
fn the_tensor_table_is_code_rank_and_dimensions() {
    let metas = [
        TensorMeta {
            dtype: DType::F32,
            shape: vec![2, 258],
        },
        TensorMeta {
            dtype: DType::U8,
            shape: vec![],
        },
        TensorMeta {
            dtype: DType::F8E4M3,
            shape: vec![0],
        },
    ];
    let mut table = Vec::new();
    for meta in &metas {
        TensorTable::push(&mut table, meta.dtype, &meta.shape).unwrap();
    }
    let expected = "08 02 0200000000000000 0201000000000000 | 01 00 | 0a 01 0000000000000000";
    assert_eq!(hex(&table), expected.replace([' ', '|'], ""));
    assert_eq!(TensorTable::read(&table, 3, 2 * 258 * 4 + 1).unwrap(), metas);
}

#[test]
fn element_types_keep_their_codes() {
    let types = [
        (1, DType::U8, 1, "u8"),
        (2, DType::U32, 4, "u32"),
        (3, DType::I16, 2, "i16"),
        (4, DType::I32, 4, "i32"),
        (5, DType::I64, 8, "i64"),
        (6, DType::BF16, 2, "bf16"),
        (7, DType::F16, 2, "f16"),
        (8, DType::F32, 4, "f32"),
        (9, DType::F64, 8, "f64"),
        (10, DType::F8E4M3, 1, "f8e4m3"),
    ];
    for (code, dtype, size, name) in types {
        assert_eq!(dtype as u8, code);
        assert_eq!(DType::from_code(code).unwrap(), dtype);
        assert_eq!(dtype.size(), size);
        assert_eq!(dtype.to_string(), name);
    }
    assert!(DType::from_code(0).is_err());
}

#[test]
fn a_header_is_64_bytes_in_their_places() {
    let header = FrameHeader {
        length: 0x0807_0605_0403_0201,
        body_len: 0x1413_1211,
        table_len: 0x2423_2221,
        call: CallId(0x3837_3635_3433_3231),
        time_left: 0x4847_4645_4443_4241,
        context: 0x5857_5655_5453_5251,
        trace: 0x6867_6665_6463_6261,
        span: 0x7877_7675_7473_7271,
        credit: 0x8483_8281,
        kind: FrameKind::Reply,
        flags: 0x91,
        tensors: 0xa2a1,
    };
    let expected = "0102030405060708 11121314 21222324 3132333435363738 4142434445464748 5152535455565758 \
                    6162636465666768 7172737475767778 81828384 05 91 a1a2";
    assert_eq!(hex(&header.to_bytes()), expected.replace(' ', ""));
    assert_eq!(
        FrameHeader::from_bytes(&header.to_bytes(), u64::MAX).unwrap(),
        header
    );
}

#[test]
fn frame_kinds_keep_their_numbers() {
    use FrameKind::*;
    let kinds = [
        Hello, Welcome, Reject, Request, Reply, Failure, Cancel, Credit, Goodbye, Descriptor, Chunk,
    ];
    for (number, kind) in (1..).zip(kinds) {
        let bytes = FrameHeader::new(kind, CallId(0)).to_bytes();
        assert_eq!(bytes[60], number);
        assert_eq!(FrameHeader::from_bytes(&bytes, 0).unwrap().kind, kind);
    }
}
