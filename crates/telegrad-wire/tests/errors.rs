//! Error texts name the type, the path and both values.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use half::f16;
use telegrad_wire::{
    Buffer, CallId, DType, Decoder, Encoder, FrameHeader, FrameKind, MAX_DEPTH, RawTensor, TensorMeta,
    TensorSource, TensorTable, Wire,
};

#[derive(Wire, Debug)]
struct Point {
    x: u8,
    label: String,
}

#[derive(Wire, Debug)]
struct Pair(u8, Vec<Point>);

#[derive(Wire, Debug)]
struct Marker;

#[derive(Wire, Debug)]
enum Shape {
    Empty,
    Circle(f32),
    Box { width: u8, height: u8 },
}

#[derive(Wire, Debug)]
enum Never {}

#[track_caller]
fn says<T: Wire + std::fmt::Debug>(bytes: &[u8], text: &str) {
    let error = T::decode(&mut Decoder::new(bytes)).unwrap_err();
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_wrong_kind_names_both() {
    says::<bool>(&[0x01], "expected a boolean, found an unsigned integer");
    says::<String>(&[0xc0], "expected a string, found nil");
    says::<u16>(&[0xa1, b'a'], "expected `u16`, found a string");
    says::<Vec<u16>>(&[0xc4, 0], "expected a sequence, found bytes");
    says::<()>(&[0x90], "expected nil, found an array");
    says::<BTreeMap<u8, u8>>(&[0x90], "expected a map, found an array");
    says::<f32>(&[0xc3], "expected a 32-bit float, found a boolean");
    says::<RawTensor>(&[0x01], "expected a tensor, found an unsigned integer");
    says::<String>(&[0xa1, 0xff], "expected a string, found bytes that are not UTF-8");
}

#[test]
fn a_number_out_of_range_names_type_range_and_value() {
    says::<u8>(&[0xcd, 0x01, 0x2c], "expected `u8` in 0..=255, found 300");
    says::<u32>(&[0xff], "expected `u32` in 0..=4294967295, found -1");
    says::<i8>(&[0xcc, 0x80], "expected `i8` in -128..=127, found 128");
    says::<i64>(
        &[0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        "expected `i64` in -9223372036854775808..=9223372036854775807, found 18446744073709551615",
    );
    says::<u128>(
        &[0xff],
        "expected `u128` in 0..=340282366920938463463374607431768211455, found -1",
    );
    says::<u128>(&[0xc4, 1, 7], "expected `u128` of 16 bytes, found 1 bytes");
}

#[test]
fn floats_refuse_what_they_cannot_represent() {
    says::<f32>(
        &[0xce, 0x01, 0x00, 0x00, 0x01],
        "expected a 32-bit float, found the integer 16777217, which it cannot represent exactly",
    );
    says::<f64>(
        &[0xcf, 0x00, 0x20, 0, 0, 0, 0, 0, 0x01],
        "expected a 64-bit float, found the integer 9007199254740993, which it cannot represent exactly",
    );
    says::<f32>(
        &[0xcb, 0x7f, 0xef, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        "expected a 32-bit float, found 1.7976931348623157e308, which is too large for it",
    );
    says::<f16>(
        &[0xca, 0x47, 0x80, 0, 0x01],
        "expected `f16` in -65504..=65504, found 65536.01",
    );
}

#[test]
fn the_path_is_named_from_the_outside_in() {
    says::<Pair>(
        b"\x92\x01\x92\x92\x01\xa1a\x92\x01\x02",
        "field 1 of `Pair`, element 1, field `label` of `Point`: expected a string, found an unsigned integer",
    );
    says::<(u8, bool)>(
        &[0x92, 1, 1],
        "element 1: expected a boolean, found an unsigned integer",
    );
    says::<[bool; 2]>(
        &[0x92, 0xc2, 1],
        "element 1: expected a boolean, found an unsigned integer",
    );
    says::<BTreeMap<u8, bool>>(
        &[0x81, 1, 1],
        "value 0: expected a boolean, found an unsigned integer",
    );
    says::<HashMap<u8, bool>>(&[0x81, 0xc0, 1], "key 0: expected `u8`, found nil");
    says::<HashSet<u8>>(&[0x92, 1, 0xc0], "element 1: expected `u8`, found nil");
    says::<Marker>(
        &[0x01],
        "struct `Marker`: expected nil, found an unsigned integer",
    );
    says::<Shape>(
        b"\x81\xa3Box\x92\x01\xc0",
        "field `height` of `Shape::Box`: expected `u8`, found nil",
    );
    says::<Shape>(
        b"\x81\xa6Circle\xc0",
        "field 0 of `Shape::Circle`: expected a 32-bit float, found nil",
    );
}

#[test]
fn a_wrong_number_of_fields_names_the_type() {
    says::<Point>(&[0x91, 1], "expected struct `Point` of 2, found an array of 1");
    says::<Shape>(
        b"\x81\xa3Box\x93\x01\x01\x01",
        "expected variant `Shape::Box` of 2, found an array of 3",
    );
    says::<(u8, u8)>(&[0x91, 1], "expected a tuple of 2, found an array of 1");
    says::<[u16; 3]>(&[0x91, 1], "expected an array of 3, found an array of 1");
    says::<[u8; 3]>(&[0xc4, 1, 1], "expected 3 bytes, found 1 bytes");
}

#[test]
fn an_unknown_variant_names_the_enum_and_its_variants() {
    says::<Shape>(
        b"\xa4Oval",
        r#"expected a variant of `Shape` (Empty, Circle, Box), found "Oval""#,
    );
    says::<Shape>(
        b"\x81\xa4Oval\x01",
        r#"expected a variant of `Shape` (Empty, Circle, Box), found "Oval""#,
    );
    says::<Shape>(
        b"\xa6Circle",
        r#"expected a variant of `Shape` (Empty, Circle, Box), found "Circle" without its payload"#,
    );
    says::<Shape>(
        b"\x81\xa5Empty\xc0",
        r#"expected a variant of `Shape` (Empty, Circle, Box), found "Empty" with a payload, but it has none"#,
    );
    says::<Never>(
        b"\xa1a",
        r#"expected a variant of `Never` (none exist), found "a""#,
    );
    says::<Shape>(&[0x01], "expected enum `Shape`, found an unsigned integer");
    says::<Shape>(
        b"\x82\xa1a\x01\xa1b\x01",
        "expected enum `Shape`, a map of 1, found a map of 2",
    );
    says::<Shape>(
        b"\x81\x01\x01",
        "variant name of enum `Shape`: expected a string, found an unsigned integer",
    );
}

#[test]
fn a_long_text_of_a_peer_is_truncated() {
    let mut body = vec![0xda, 0x10, 0x00];
    body.extend_from_slice("é".repeat(2048).as_bytes());
    let error = Shape::decode(&mut Decoder::new(&body)).unwrap_err().to_string();
    assert!(
        error.ends_with(&format!("{:?}… (4096 bytes)", "é".repeat(64))),
        "{error}"
    );
}

#[test]
fn truncated_input_names_the_path() {
    says::<Point>(
        b"\x92\x01\xa5abc",
        "field `label` of `Point`: the message ends in the middle of a string",
    );
    says::<u64>(&[0xcf, 0], "the message ends in the middle of `u64`");
    says::<Vec<u16>>(
        &[0xdd, 0xff, 0xff, 0xff, 0xff, 0x01],
        "the message ends in the middle of a sequence",
    );
    says::<u8>(&[], "the message ends in the middle of `u8`");
}

#[test]
fn bytes_after_the_value_are_an_error() {
    let mut decoder = Decoder::new(&[0x01, 0x02, 0x03]);
    u8::decode(&mut decoder).unwrap();
    assert_eq!(
        decoder.finish().unwrap_err().to_string(),
        "2 bytes left over after the value"
    );
}

#[test]
fn invalid_values_are_errors() {
    says::<char>(
        b"\xa2ab",
        "expected a string of one character, found one of 2 bytes",
    );
    says::<char>(
        b"\xa0",
        "expected a string of one character, found one of 0 bytes",
    );
    says::<SocketAddr>(b"\xa1x", r#"expected an address and port, found "x""#);
    says::<Duration>(
        &[
            0x92, 0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xce, 0x3b, 0x9a, 0xca, 0x00,
        ],
        "expected nanoseconds below a second, found 1000000000",
    );
    says::<BTreeMap<u8, u8>>(
        &[0x82, 1, 1, 1, 2],
        "expected a map of distinct keys, found a duplicate of key 1",
    );
    says::<HashMap<u8, u8>>(
        &[0x82, 1, 1, 1, 2],
        "expected a map of distinct keys, found a duplicate of key 1",
    );
    says::<BTreeSet<u8>>(
        &[0x92, 1, 1],
        "expected a set of distinct elements, found a duplicate of element 1",
    );
    says::<HashSet<u8>>(
        &[0x92, 1, 1],
        "expected a set of distinct elements, found a duplicate of element 1",
    );
}

#[test]
fn a_tensor_can_be_taken_once() {
    let meta = TensorMeta {
        dtype: DType::U8,
        shape: vec![1],
    };
    let tensor = RawTensor::new(meta, Buffer::from_vec(vec![1_u8])).unwrap();
    let decode = |body: &[u8]| {
        let mut decoder = Decoder::with_tensors(body, vec![tensor.clone()]);
        Vec::<RawTensor>::decode(&mut decoder).unwrap_err().to_string()
    };
    assert_eq!(
        decode(&[0x92, 0xd6, 1, 0, 0, 0, 0, 0xd6, 1, 0, 0, 0, 0]),
        "element 1: expected a tensor, found tensor 0 a second time"
    );
    assert_eq!(
        decode(&[0x91, 0xd6, 1, 0, 0, 0, 7]),
        "element 0: expected a tensor, found the index of tensor 7 of 1"
    );
    assert_eq!(
        decode(&[0x91, 0xd6, 9, 0, 0, 0, 0]),
        "element 0: expected a tensor, found an extension of type 9"
    );
}

#[test]
fn nesting_beyond_the_limit_is_an_error() {
    #[derive(Wire, Debug)]
    struct List(Option<Box<List>>, u8);

    let nested = |levels: usize| {
        let mut body = [0x92].repeat(levels);
        body.push(0xc0);
        body.extend([0x01].repeat(levels));
        List::decode(&mut Decoder::new(&body))
    };
    let mut list = nested(MAX_DEPTH).unwrap();
    let mut depth = 1;
    while let Some(next) = list.0 {
        (list, depth) = (*next, depth + 1);
    }
    assert_eq!(depth, MAX_DEPTH);
    let error = nested(MAX_DEPTH + 1).unwrap_err().to_string();
    assert!(error.ends_with("nested deeper than 128 levels"), "{error}");
}

#[test]
#[cfg_attr(miri, ignore = "encodes 65,536 tensors")]
fn finish_returns_a_failure_to_encode() {
    struct TooMany;
    impl TensorSource for TooMany {
        fn dtype(&self) -> DType {
            DType::U8
        }
        fn shape(&self) -> &[usize] {
            &[0]
        }
        fn with_bytes(&self, read: &mut dyn FnMut(&[u8])) {
            read(&[]);
        }
        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
    }
    let mut encoder = Encoder::new();
    for _ in 0..u16::MAX {
        encoder.tensor(TooMany);
    }
    for _ in 0..3 {
        encoder.tensor(TooMany);
    }
    let error = encoder.finish().unwrap_err().to_string();
    assert_eq!(
        error,
        "65538 tensors in one message, the limit is 65535: \
         stack them into fewer, or send them with several calls"
    );
}

#[test]
fn headers_that_do_not_fit_together_are_errors() {
    let mut header = FrameHeader::new(FrameKind::Request, CallId(1));
    header.length = 100;
    let says = |bytes: &[u8; 64], text: &str| {
        assert_eq!(FrameHeader::from_bytes(bytes, 100).unwrap_err().to_string(), text);
    };
    assert!(FrameHeader::from_bytes(&header.to_bytes(), 100).is_ok());
    let too_long = FrameHeader {
        length: 101,
        ..header
    };
    says(&too_long.to_bytes(), "a frame claims 101 bytes, the limit is 100");
    let parts = FrameHeader {
        body_len: 60,
        table_len: 41,
        ..header
    };
    says(
        &parts.to_bytes(),
        "a frame of 100 bytes claims parts of 101 bytes",
    );
    let mut kind = header.to_bytes();
    kind[60] = 77;
    says(
        &kind,
        "unknown frame kind 77: the peer does not speak this protocol",
    );
}

#[test]
fn tables_that_do_not_fit_the_frame_are_errors() {
    let says = |table: &[u8], count: u16, data: u64, text: &str| {
        let error = TensorTable::read(table, count, data).unwrap_err().to_string();
        assert_eq!(error, format!("invalid tensor table: {text}"));
    };
    let huge = (1_u64 << 62).to_le_bytes();
    says(&[1, 0], 2, 2, "cut short in entry 1 of 2");
    says(&[1, 1, 5], 1, 5, "cut short in entry 0 of 1");
    says(&[1, 65], 1, 1, "entry 0 has 65 dimensions, the limit is 64");
    says(&[99, 0], 1, 1, "unknown dtype code 99");
    says(&[1, 0, 7], 1, 1, "1 bytes left over after 1 entries");
    says(&[1, 0], 1, 2, "tensors of 1 bytes in a frame that has 2 for them");
    says(
        &[&[8, 1][..], &huge].concat(),
        1,
        4,
        "the size of entry 0 overflows",
    );
    let two = [&[1, 1][..], &huge, &[1, 1], &huge, &[1, 1], &huge, &[1, 1], &huge].concat();
    says(
        &two,
        4,
        u64::MAX,
        "the total size of the tensors overflows at entry 3",
    );
    let meta = TensorMeta {
        dtype: DType::U8,
        shape: vec![1; 65],
    };
    let error = TensorTable::push(&mut Vec::new(), meta.dtype, &meta.shape)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "invalid tensor table: a tensor has 65 dimensions, the limit is 64"
    );
}

#[test]
fn a_shape_whose_strides_overflow_is_refused_even_when_it_is_empty() {
    let shape = |shape: &[usize]| {
        TensorMeta {
            dtype: DType::F32,
            shape: shape.to_vec(),
        }
        .elements()
    };
    assert_eq!(shape(&[0, usize::MAX, 2]), None);
    assert_eq!(shape(&[usize::MAX, 2, 0]), None);
    assert_eq!(shape(&[usize::MAX / 4]), None);
    assert_eq!(shape(&[1 << 40, 0]), Some(0));
    assert_eq!(shape(&[]), Some(1));
}

#[test]
fn a_tensor_needs_as_many_bytes_as_its_shape_says() {
    let meta = TensorMeta {
        dtype: DType::F32,
        shape: vec![2, 2],
    };
    let error = RawTensor::new(meta, Buffer::from_vec(vec![0_f32; 3]))
        .unwrap_err()
        .to_string();
    assert_eq!(error, "a tensor f32[2, 2] needs 16 bytes, not 12");
}
