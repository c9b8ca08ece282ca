//! `Serde`: types of serde inside a body.
#![cfg(feature = "serde")]

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use telegrad_wire::{Decoder, Encoder, Serde, Wire, WireError};

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
struct Config {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    seed: Option<u64>,
    layers: Vec<Layer>,
    #[serde(flatten)]
    rest: BTreeMap<String, bool>,
}

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
enum Layer {
    Linear { inputs: usize, outputs: usize },
    Relu,
    Dropout(f32),
}

fn config() -> Config {
    Config {
        name: "net".into(),
        seed: None,
        layers: vec![
            Layer::Linear {
                inputs: 784,
                outputs: 10,
            },
            Layer::Relu,
            Layer::Dropout(0.5),
        ],
        rest: BTreeMap::from([("train".into(), true)]),
    }
}

fn encoded(value: &impl Wire) -> Vec<u8> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder.finish().unwrap().body
}

#[track_caller]
fn returns<T: Serialize + DeserializeOwned + PartialEq + Debug + Clone + 'static>(value: T) {
    // Between two other values, to check that it reads its own bytes only.
    let body = encoded(&(1_u8, Some(Serde(value.clone())), 2_u8));
    let mut decoder = Decoder::new(&body);
    let back = <(u8, Option<Serde<T>>, u8)>::decode(&mut decoder).unwrap();
    decoder.finish().unwrap();
    assert_eq!(back, (1, Some(Serde(value)), 2));
}

#[test]
fn serde_types_return() {
    returns(config());
    returns(vec![Some(1_i64), None]);
    returns(BTreeMap::from([(1_u8, "a".to_owned())]));
    returns(("text".to_owned(), 'c', 1.5_f64, ()));
    returns(());
    returns(None::<u8>);
}

#[test]
fn structs_are_maps_from_field_names() {
    let body = encoded(&Serde(Layer::Linear {
        inputs: 1,
        outputs: 2,
    }));
    assert_eq!(body, b"\x81\xa6Linear\x82\xa6inputs\x01\xa7outputs\x02");
}

#[test]
fn a_value_cut_short_at_any_byte_is_an_error() {
    let body = encoded(&Serde(config()));
    for end in 0..body.len() {
        let error = Serde::<Config>::decode(&mut Decoder::new(&body[..end])).unwrap_err();
        assert_eq!(error.to_string(), "the message ends in the middle of a value");
    }
}

#[test]
fn every_form_of_value_is_skipped_whole() {
    // A byte follows each value and must remain.
    for (len, value) in [
        (1, &[0x7f][..]),
        (3, &[0xcd, 1, 2]),
        (9, &[0xcb, 0, 0, 0, 0, 0, 0, 0, 0]),
        (3, b"\xa2ab"),
        (4, b"\xd9\x02ab"),
        (5, b"\xda\x00\x02ab"),
        (7, b"\xdb\x00\x00\x00\x02ab"),
        (4, b"\xc4\x02ab"),
        (5, b"\xc5\x00\x02ab"),
        (7, b"\xc6\x00\x00\x00\x02ab"),
        (4, &[0x92, 0x01, 0x91, 0xc0]),
        (5, &[0xdc, 0, 2, 1, 2]),
        (6, &[0xdd, 0, 0, 0, 1, 2]),
        (5, &[0x81, 0x01, 0x81, 0x02, 0x03]),
        (5, &[0xde, 0, 1, 1, 2]),
        (7, &[0xdf, 0, 0, 0, 1, 1, 2]),
        (3, &[0xd4, 1, 0]),
        (6, &[0xd6, 1, 0, 0, 0, 0]),
        (18, &[0xd8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (5, &[0xc7, 2, 1, 0, 0]),
        (6, &[0xc8, 0, 2, 1, 0, 0]),
        (8, &[0xc9, 0, 0, 0, 2, 1, 0, 0]),
    ] {
        assert_eq!(value.len(), len);
        let mut body = value.to_vec();
        body.push(0x2a);
        let mut decoder = Decoder::new(&body);
        // Whether the value decodes as this type does not matter here.
        let _ = Serde::<u8>::decode(&mut decoder);
        assert_eq!(u8::decode(&mut decoder), Ok(42), "after {value:02x?}");
    }
}

#[test]
fn the_wrong_value_is_an_error_that_names_the_type() {
    let error = Serde::<Vec<u8>>::decode(&mut Decoder::new(b"\xa1a"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("expected `alloc::vec::Vec<u8>`, found"),
        "{error}"
    );
}

#[test]
fn a_depth_bomb_is_an_error() {
    #[derive(Deserialize, Serialize, Debug)]
    struct Nested(Vec<Nested>);

    let mut bomb = [0x91].repeat(100_000);
    bomb.push(0x90);
    let error = Serde::<Nested>::decode(&mut Decoder::new(&bomb)).unwrap_err();
    assert!(matches!(error, WireError::TooDeep { .. }), "{error}");
}

#[test]
fn a_type_that_fails_to_serialise_is_an_error_that_names_it() {
    #[derive(Deserialize)]
    struct Stubborn;

    impl Serialize for Stubborn {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("not today"))
        }
    }

    let mut encoder = Encoder::new();
    Serde(Stubborn).encode(&mut encoder);
    let error = encoder.finish().unwrap_err().to_string();
    assert!(error.contains("Stubborn` cannot be sent: not today"), "{error}");
}
