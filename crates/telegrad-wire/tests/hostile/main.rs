//! Input from a broken or hostile peer gives a value or an error, never a panic.

mod any_bytes;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use any_bytes::{Anything, into_everything};
use proptest::collection::vec;
use proptest::prelude::*;
use telegrad_wire::{
    Buffer, CallId, Catalogue, DType, Decoder, Encoder, FrameHeader, FrameKind, Layouts, RawTensor,
    Signature, TensorMeta, TensorTable, TypeLayout, Wire, WireError,
};

fn tensor() -> RawTensor {
    let meta = TensorMeta {
        dtype: DType::F32,
        shape: vec![2],
    };
    RawTensor::new(meta, Buffer::from_vec(vec![1_f32, 2.0])).unwrap()
}

/// A value with a field of every kind.
fn everything() -> Anything {
    Anything::List(vec![
        Anything::Nothing,
        Anything::Flag(true),
        Anything::Numbers(200, -300, 70_000, i64::MIN, 1.5, -2.5, u128::MAX),
        Anything::Text {
            text: "some text".into(),
            letter: 'é',
        },
        Anything::Bytes(vec![1, 2, 3]),
        Anything::Options(Some(None), Some(())),
        Anything::Options(Some(Some(Box::new(Anything::Nothing))), None),
        Anything::Maps(
            BTreeMap::from([("key".into(), Anything::Nothing)]),
            HashMap::from([(-1, vec![1000])]),
        ),
        Anything::Tensors {
            first: tensor(),
            rest: vec![None, Some(tensor())],
        },
        Anything::Deep(Arc::new(Anything::Flag(false))),
    ])
}

fn body(value: &impl Wire) -> Vec<u8> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder.finish().unwrap().body
}

fn signature(layouts: &mut Layouts) -> Option<Signature> {
    Some(Signature {
        is_method: true,
        arguments: <(Anything, u8)>::layout(layouts),
        value: None,
    })
}

/// Valid encodings, which the tests corrupt.
fn valid() -> Vec<Vec<u8>> {
    let mut table = vec![2, 12];
    TensorTable::push(&mut table, DType::F32, &[2]).unwrap();
    TensorTable::push(&mut table, DType::U32, &[1, 1]).unwrap();
    let mut header = FrameHeader::new(FrameKind::Request, CallId(7));
    (header.length, header.body_len, header.table_len) = (100, 40, 20);
    vec![
        body(&everything()),
        body(&vec![vec![vec![1_u64, u64::MAX]; 2]; 2]),
        body(&HashMap::from([(
            "a".to_owned(),
            HashMap::from([(1_u64, 2_u64)]),
        )])),
        body(&(1_u8, 2_u16, 3_u32, 4_u64, 5_usize)),
        body(&vec![tensor(), tensor()]),
        body(&Some(Some(None::<u8>))),
        table,
        header.to_bytes().to_vec(),
        body(&TypeLayout::of::<Anything>()),
        body(&Catalogue::new([("f", signature)])),
    ]
}

#[test]
fn the_valid_input_of_these_tests_is_valid() {
    let body = body(&everything());
    let mut decoder = Decoder::with_tensors(&body, vec![tensor(), tensor()]);
    Anything::decode(&mut decoder).unwrap();
    decoder.finish().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "decodes thousands of inputs")]
fn a_value_cut_short_at_any_byte_is_an_error() {
    let body = body(&everything());
    for end in 0..body.len() {
        let mut decoder = Decoder::with_tensors(&body[..end], vec![tensor(), tensor()]);
        let Err(error) = Anything::decode(&mut decoder) else {
            panic!("{end} of {} bytes were taken for a whole value", body.len())
        };
        assert!(
            matches!(error, WireError::Truncated { .. }),
            "after {end} bytes: {error}"
        );
    }
    for bytes in valid() {
        for end in 0..bytes.len() {
            into_everything(&bytes[..end]);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "decodes thousands of inputs")]
fn a_single_wrong_byte_anywhere_is_a_value_or_an_error() {
    for bytes in valid() {
        for i in 0..bytes.len() {
            // Every byte that starts a value of another kind, and its neighbours.
            for wrong in [0x00, 0x7f, 0x80, 0x81, 0x90, 0xa0, 0xbf, 0xff]
                .into_iter()
                .chain(0xc0..=0xdf)
            {
                let mut broken = bytes.clone();
                broken[i] = wrong;
                into_everything(&broken);
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "decodes thousands of inputs")]
fn lengths_beyond_the_input_are_errors() {
    for marker in [0xc6, 0xc9, 0xdb, 0xdd, 0xdf] {
        for claimed in [1_u32, 1000, u32::MAX / 2, u32::MAX] {
            let mut body = vec![marker];
            body.extend(claimed.to_be_bytes());
            assert!(Vec::<Anything>::decode(&mut Decoder::new(&body)).is_err());
            assert!(Vec::<u8>::decode(&mut Decoder::new(&body)).is_err());
            assert!(String::decode(&mut Decoder::new(&body)).is_err());
            assert!(HashMap::<u8, u8>::decode(&mut Decoder::new(&body)).is_err());
            // A repeated claim: each one claims the bytes of the following ones.
            into_everything(&body.repeat(50));
        }
    }
}

#[test]
fn a_depth_bomb_is_an_error_on_a_small_stack() {
    // The size of a thread's stack that user code may choose.
    let bombs = std::thread::Builder::new().stack_size(512 * 1024).spawn(|| {
        for level in [
            &b"\x81\xa4List\x91"[..],
            b"\x81\xa4Deep",
            b"\x81\xa7Options\x92",
            b"\x81\xc0",
            b"\x91",
        ] {
            let bomb = level.repeat(100_000);
            assert!(Anything::decode(&mut Decoder::new(&bomb)).is_err());
            into_everything(&bomb);
        }
        let bomb = b"\x81\xa4Deep".repeat(1000);
        let Err(error) = Anything::decode(&mut Decoder::new(&bomb)) else {
            panic!("a bomb was accepted")
        };
        assert!(matches!(error, WireError::TooDeep { .. }), "{error}");
    });
    bombs.unwrap().join().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    #[cfg_attr(miri, ignore = "decodes thousands of inputs")]
    fn random_bytes_are_a_value_or_an_error(data in vec(any::<u8>(), 0..200)) {
        into_everything(&data);
    }

    #[test]
    #[cfg_attr(miri, ignore = "decodes thousands of inputs")]
    fn random_markers_are_a_value_or_an_error(data in vec(prop_oneof![0xc0_u8..=0xdf, 0x80_u8..0xa4, 0_u8..4], 0..60)) {
        into_everything(&data);
    }

    #[test]
    #[cfg_attr(miri, ignore = "decodes thousands of inputs")]
    fn mutated_values_are_a_value_or_an_error(
        which in 0_usize..10,
        edits in vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 1..6),
    ) {
        let mut data = valid().swap_remove(which);
        for (at, byte, edit) in edits {
            let at = at.index(data.len().max(1));
            match edit {
                0 if at < data.len() => data[at] = byte,
                1 if at < data.len() => drop(data.remove(at)),
                _ => data.insert(at.min(data.len()), byte),
            }
        }
        into_everything(&data);
    }
}
