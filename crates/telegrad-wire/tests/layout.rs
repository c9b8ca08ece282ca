//! Comparison of types between programs (S9). Each module of a test is one program.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::marker::PhantomData;
use std::sync::Arc;

use telegrad_wire::{
    Catalogue, Decoder, Difference, Encoder, Layouts, RawTensor, Signature, TypeLayout, TypeNumber, Wire,
    WireError,
};

/// The first difference between `Here` and `There`.
fn difference<Here: Wire, There: Wire>() -> Option<String> {
    let (here, there) = (TypeLayout::of::<Here>(), TypeLayout::of::<There>());
    let difference = here.difference(&there);
    assert_eq!(
        difference.is_some(),
        there.difference(&here).is_some(),
        "a difference is one from both sides"
    );
    // Compares a layout that was sent.
    let arrived = decode::<TypeLayout>(&encode(&there)).unwrap();
    assert_eq!(arrived, there);
    difference
}

#[track_caller]
fn differ<Here: Wire, There: Wire>(expected: &str) {
    assert_eq!(difference::<Here, There>().as_deref(), Some(expected));
    let (here, there) = (TypeLayout::of::<Here>(), TypeLayout::of::<There>());
    assert_ne!(here.digest(), there.digest());
}

#[track_caller]
fn same<Here: Wire, There: Wire>() {
    assert_eq!(difference::<Here, There>(), None);
}

fn encode(value: &impl Wire) -> Vec<u8> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder.finish().unwrap().body
}

fn decode<T: Wire>(bytes: &[u8]) -> Result<T, WireError> {
    T::decode(&mut Decoder::new(bytes))
}

mod here {
    use super::*;

    #[derive(Wire)]
    pub(super) struct Cfg {
        pub(super) lr: f64,
        pub(super) steps: u64,
    }

    #[derive(Wire)]
    pub(super) enum Kind {
        Plain,
        Scaled(f64),
        Named { by: String },
    }

    #[derive(Wire)]
    pub(super) struct Pair<A, B> {
        pub(super) first: A,
        pub(super) second: B,
    }

    #[derive(Wire)]
    pub(super) struct Node {
        pub(super) value: u64,
        pub(super) children: Vec<Node>,
    }

    #[derive(Wire)]
    pub(super) struct Even(pub(super) Option<Box<Odd>>);

    #[derive(Wire)]
    pub(super) struct Odd {
        pub(super) next: Box<Even>,
    }

    #[derive(Wire)]
    pub(super) struct Unit;
}

#[test]
fn a_type_alias_or_another_path_makes_no_difference() {
    mod there {
        use super::*;

        pub(super) mod deeper {
            use super::*;

            #[derive(Wire)]
            pub(in super::super) struct Cfg {
                lr: f64,
                steps: u64,
            }
        }

        pub(super) type Config = deeper::Cfg;
    }
    same::<here::Cfg, there::Config>();
    same::<Vec<here::Cfg>, Vec<there::deeper::Cfg>>();
    let layouts = [TypeLayout::of::<here::Cfg>(), TypeLayout::of::<there::Config>()];
    assert_eq!(layouts[0].digest(), layouts[1].digest());
}

#[test]
fn fields_are_compared_by_name_order_and_type() {
    mod swapped {
        use super::*;
        #[derive(Wire)]
        pub(super) struct Cfg {
            steps: f64,
            lr: u64,
        }
    }
    mod narrower {
        use super::*;
        #[derive(Wire)]
        pub(super) struct Cfg {
            lr: f64,
            steps: u32,
        }
    }
    mod longer {
        use super::*;
        #[derive(Wire)]
        pub(super) struct Cfg {
            lr: f64,
            steps: u64,
            warmup: u64,
        }
    }
    mod unnamed {
        use super::*;
        #[derive(Wire)]
        pub(super) struct Cfg(f64, u64);
    }
    mod renamed {
        use super::*;
        #[derive(Wire)]
        pub(super) struct Config {
            lr: f64,
            steps: u64,
        }
    }
    differ::<here::Cfg, swapped::Cfg>("field 0 of `Cfg` is `steps` there and `lr` here");
    differ::<here::Cfg, narrower::Cfg>("field `steps`: u32 there, u64 here");
    differ::<here::Cfg, longer::Cfg>("`Cfg` has field `warmup` there and not here");
    differ::<longer::Cfg, here::Cfg>("`Cfg` has field `warmup` here and not there");
    differ::<here::Cfg, unnamed::Cfg>("`Cfg` has 2 unnamed fields there and 2 named fields here");
    differ::<here::Cfg, renamed::Config>("struct `Config` there, struct `Cfg` here");
    differ::<here::Cfg, (f64, u64)>("(f64, u64) there, struct `Cfg` here");
}

#[test]
fn newtypes_are_told_apart_by_name() {
    #[derive(Wire)]
    struct Metres(f64);
    #[derive(Wire)]
    struct Feet(f64);
    differ::<Metres, Feet>("struct `Feet` there, struct `Metres` here");
    differ::<Metres, f64>("f64 there, struct `Metres` here");
    differ::<here::Unit, ()>("() there, struct `Unit` here");
}

#[test]
fn variants_are_compared_by_name_order_and_payload() {
    mod reordered {
        use super::*;
        #[derive(Wire)]
        pub(super) enum Kind {
            Plain,
            Named { by: String },
            Scaled(f64),
        }
    }
    mod narrower {
        use super::*;
        #[derive(Wire)]
        pub(super) enum Kind {
            Plain,
            Scaled(f32),
            Named { by: String },
        }
    }
    mod other_field {
        use super::*;
        #[derive(Wire)]
        pub(super) enum Kind {
            Plain,
            Scaled(f64),
            Named { of: String },
        }
    }
    mod fewer {
        use super::*;
        #[derive(Wire)]
        pub(super) enum Kind {
            Plain,
            Scaled(f64),
        }
    }
    mod unit {
        use super::*;
        #[derive(Wire)]
        pub(super) enum Kind {
            Plain,
            Scaled,
            Named { by: String },
        }
    }
    differ::<here::Kind, reordered::Kind>("variant 1 of `Kind` is `Named` there and `Scaled` here");
    differ::<here::Kind, narrower::Kind>("variant `Scaled`, field 0: f32 there, f64 here");
    differ::<here::Kind, other_field::Kind>("field 0 of `Kind::Named` is `of` there and `by` here");
    differ::<here::Kind, fewer::Kind>("`Kind` has variant `Named` here and not there");
    differ::<here::Kind, unit::Kind>("`Kind::Scaled` has no fields there and 1 unnamed field here");
    differ::<here::Kind, here::Cfg>("struct `Cfg` there, enum `Kind` here");
}

#[test]
fn types_in_generics_and_containers_are_compared() {
    mod there {
        use super::*;
        #[derive(Wire)]
        pub(super) struct Cfg {
            lr: f32,
            steps: u64,
        }
        #[derive(Wire)]
        pub(super) struct Pair<A, B> {
            first: A,
            second: B,
        }
    }
    type Here = here::Cfg;
    type There = there::Cfg;
    let lr = "field `lr`: f32 there, f64 here";
    differ::<Box<Here>, Box<There>>(lr);
    differ::<Arc<Here>, Arc<There>>(lr);
    differ::<Option<Here>, Option<There>>(lr);
    differ::<Vec<Here>, Vec<There>>(&format!("elements, {lr}"));
    differ::<VecDeque<Here>, VecDeque<There>>(&format!("elements, {lr}"));
    differ::<[Here; 3], [There; 3]>(&format!("elements, {lr}"));
    differ::<(u8, Here), (u8, There)>(&format!("element 1, {lr}"));
    differ::<HashMap<String, Here>, HashMap<String, There>>(&format!("values, {lr}"));
    differ::<here::Pair<u8, Here>, there::Pair<u8, There>>(&format!("field `second`, {lr}"));
    differ::<BTreeMap<u8, Vec<here::Pair<(Here,), u8>>>, BTreeMap<u8, Vec<there::Pair<(There,), u8>>>>(
        &format!("values, elements, field `first`, element 0, {lr}"),
    );
    same::<here::Pair<u8, String>, there::Pair<u8, String>>();
    differ::<here::Pair<u8, String>, there::Pair<String, u8>>("field `first`: String there, u8 here");
}

#[test]
fn containers_are_compared_by_their_content() {
    same::<Vec<u8>, VecDeque<u8>>();
    same::<HashMap<u8, String>, BTreeMap<u8, String>>();
    same::<HashSet<u8>, BTreeSet<u8>>();
    same::<Box<Arc<u8>>, u8>();
    same::<PhantomData<u8>, PhantomData<String>>();
    differ::<Vec<u8>, HashSet<u8>>("Set<u8> there, Vec<u8> here");
    differ::<Vec<u8>, [u8; 4]>("[u8; 4] there, Vec<u8> here");
    differ::<[u8; 3], [u8; 4]>("[u8; 4] there, [u8; 3] here");
    differ::<Option<u8>, u8>("u8 there, Option<u8> here");
    differ::<BTreeMap<u8, u16>, BTreeMap<u16, u16>>("keys: u16 there, u8 here");
    differ::<(u8, u8), (u8, u8, u8)>("(u8, u8, u8) there, (u8, u8) here");
    differ::<u64, usize>("usize there, u64 here");
    differ::<RawTensor, Vec<f32>>("Vec<f32> there, Tensor here");
}

#[test]
fn recursive_types_are_compared_to_any_depth() {
    mod there {
        use super::*;
        #[derive(Wire)]
        pub(super) struct Node {
            value: i64,
            children: Vec<Node>,
        }
        #[derive(Wire)]
        pub(super) struct Even(Option<Box<Odd>>);
        #[derive(Wire)]
        pub(super) struct Odd {
            next: Arc<Even>,
            count: u8,
        }
    }
    mod same_there {
        use super::*;
        #[derive(Wire)]
        pub(super) struct Node {
            value: u64,
            // The same cycle, entered elsewhere.
            children: VecDeque<Box<Node>>,
        }
        #[derive(Wire)]
        pub(super) struct Odd {
            next: Even,
        }
        #[derive(Wire)]
        pub(super) struct Even(Option<Arc<Odd>>);
    }
    same::<here::Node, same_there::Node>();
    same::<here::Even, same_there::Even>();
    same::<here::Odd, same_there::Odd>();
    differ::<here::Node, there::Node>("field `value`: i64 there, u64 here");
    differ::<here::Even, there::Even>("field 0: `Odd` has field `count` there and not here");
    differ::<here::Odd, there::Odd>("`Odd` has field `count` there and not here");
}

#[test]
fn two_types_of_equal_layout_are_interchangeable() {
    mod there {
        use super::*;
        #[derive(Wire)]
        pub(super) struct Cfg {
            lr: f64,
            steps: u64,
        }
    }
    same::<(here::Cfg, here::Cfg), (here::Cfg, there::Cfg)>();
}

#[test]
fn a_hand_written_layout_is_compared_as_returned() {
    struct ByName;
    struct AsText;
    macro_rules! text {
        ($ty:ident $($layout:item)?) => {
            impl Wire for $ty {
                fn encode(&self, encoder: &mut Encoder) {
                    encoder.str("");
                }
                fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
                    decoder.str().map(|_| Self)
                }
                $($layout)?
            }
        };
    }
    text!(ByName);
    text!(AsText fn layout(layouts: &mut Layouts) -> TypeNumber { String::layout(layouts) });
    same::<AsText, String>();
    differ::<ByName, String>("String there, ByName here");
}

#[cfg(feature = "serde")]
#[test]
fn a_serde_type_is_compared_by_its_name() {
    use telegrad_wire::Serde;
    differ::<Serde<Vec<u8>>, Serde<Vec<u16>>>("Serde<Vec<u16>> there, Serde<Vec<u8>> here");
}

/// Programs built elsewhere have these hashes: a change makes every pair of peers exchange their catalogues.
#[test]
fn digests_are_the_same_in_every_build() {
    let digests = [
        TypeLayout::of::<u64>().digest(),
        TypeLayout::of::<here::Cfg>().digest(),
        TypeLayout::of::<here::Kind>().digest(),
        TypeLayout::of::<here::Pair<String, Vec<Option<here::Cfg>>>>().digest(),
        TypeLayout::of::<here::Node>().digest(),
        TypeLayout::of::<here::Even>().digest(),
        TypeLayout::of::<(BTreeMap<char, [bool; 2]>, HashSet<i8>, RawTensor)>().digest(),
    ];
    let expected = [
        0x2214_fe28_7fb2_8ce7,
        0x33ca_1397_36e0_b3ae,
        0x5ac4_fd55_8ada_efe3,
        0x2e44_749d_6036_0241,
        0x52c9_fcff_d05b_bacb,
        0x0e55_4cd3_31eb_54ab,
        0xa2eb_40b2_ca4f_ea7b,
    ];
    assert_eq!(digests, expected);
}

/// A function from `A` to `R`.
fn function<A: Wire, R: Wire>(layouts: &mut Layouts) -> Option<Signature> {
    Some(Signature {
        is_method: false,
        arguments: A::layout(layouts),
        value: Some(R::layout(layouts)),
    })
}

type Describe = fn(&mut Layouts) -> Option<Signature>;

fn differences(
    here: &[(&'static str, Describe)],
    there: &[(&'static str, Describe)],
) -> Vec<(String, Difference)> {
    let [here, there] = [here, there].map(|functions| Catalogue::new(functions.iter().copied()));
    let differences = here.differences(&there, |_| &["cfg", "x"]).into_iter();
    let differences: Vec<_> = differences.map(|(name, why)| (name.to_owned(), why)).collect();
    if !differences.is_empty() {
        assert_ne!(here.digest(), there.digest());
    }
    assert_eq!(decode::<Catalogue>(&encode(&there)).unwrap(), there);
    differences
}

#[test]
fn functions_are_compared_by_arguments_and_value() {
    let method: Describe = |layouts| {
        Some(Signature {
            is_method: true,
            ..function::<(), ()>(layouts).unwrap()
        })
    };
    let stays: Describe = |layouts| {
        Some(Signature {
            value: None,
            ..function::<(), ()>(layouts).unwrap()
        })
    };
    let here: &[(&str, Describe)] = &[
        ("argument", function::<(here::Cfg, u8), ()>),
        ("count", function::<(u8,), ()>),
        ("equal", function::<(Vec<here::Node>,), here::Cfg>),
        ("gone", function::<(), ()>),
        ("method", method),
        ("result", function::<(), Option<u8>>),
        ("stays", stays),
        ("undescribed", function::<(u8,), ()>),
    ];
    let there: &[(&str, Describe)] = &[
        ("argument", function::<(here::Cfg, u16), ()>),
        ("count", function::<(u8, u8), ()>),
        ("equal", function::<(VecDeque<here::Node>,), Box<here::Cfg>>),
        ("method", function::<(), ()>),
        ("more", function::<(), ()>),
        ("result", function::<(), Option<u16>>),
        ("stays", function::<(), String>),
        ("undescribed", |_| None),
    ];
    let signature = |text: &str| Difference::Signature(text.to_owned());
    let expected = [
        ("argument", signature("argument 2 (`x`): u16 there, u8 here")),
        (
            "count",
            signature("it takes 2 arguments there and 1 argument here"),
        ),
        ("gone", Difference::Missing),
        ("method", signature("it is a function there and a method here")),
        ("result", signature("result: u16 there, u8 here")),
        (
            "stays",
            signature("result: String there, a value that cannot be sent here"),
        ),
    ];
    let expected = expected.map(|(name, why)| (name.to_owned(), why));
    assert_eq!(differences(here, there), expected);
    assert_eq!(differences(here, here), []);
}

#[test]
fn a_type_that_many_functions_share_is_sent_once() {
    let one = Catalogue::new([("f0000", function::<(here::Cfg,), here::Node> as Describe)]);
    let names: Vec<_> = (0..1000).map(|i| format!("f{i:04}")).collect();
    let functions = names
        .iter()
        .map(|name| (name.as_str(), function::<(here::Cfg,), here::Node> as Describe));
    let many = Catalogue::new(functions);
    let each = (encode(&many).len() - encode(&one).len()) / 999;
    assert!(each < 16, "{each} bytes");
}

#[test]
fn a_catalogue_with_unknown_types_is_rejected() {
    let catalogue = Catalogue::new([("f", function::<(here::Cfg,), here::Node> as Describe)]);
    let bytes = encode(&catalogue);
    let mut refused = 0;
    for at in 0..bytes.len() {
        let mut broken = bytes.clone();
        broken[at] = 0x7f;
        match decode::<Catalogue>(&broken) {
            Ok(broken) => drop(catalogue.differences(&broken, |_| &[])),
            Err(error) if error.to_string().contains("expected the number of one of ") => refused += 1,
            Err(_) => {}
        }
    }
    assert!(refused >= 8, "{refused}");
}

#[test]
#[cfg_attr(miri, ignore = "compares a million pairs of types")]
fn a_hostile_comparison_has_bounded_time_and_text() {
    // A list nested deeper than any stack; the type here refers to itself.
    #[derive(Wire)]
    struct Deep(Vec<Deep>);
    let mut encoder = Encoder::new();
    let depth = 100_000_u32;
    encoder.array_len(2);
    encoder.array_len(2 * depth as usize + 1);
    for level in 0..depth {
        // A struct with one unnamed field, a list of the next one.
        encoder.map_len(1);
        encoder.str("Struct");
        encoder.array_len(2);
        encoder.str("Deep");
        encoder.map_len(1);
        encoder.str("Unnamed");
        vec![2 * level + 1].encode(&mut encoder);
        encoder.map_len(1);
        encoder.str("List");
        (2 * level + 2).encode(&mut encoder);
    }
    encoder.map_len(1);
    encoder.str("Named");
    encoder.str(&"\u{1b}[31m".repeat(10_000));
    0_u32.encode(&mut encoder);
    let there: TypeLayout = decode(&encoder.finish().unwrap().body).unwrap();
    let difference = TypeLayout::of::<Deep>().difference(&there).unwrap();
    assert!(difference.starts_with("field 0, elements, "), "{difference}");
    assert!(
        difference.ends_with("… there, struct `Deep` here"),
        "{difference}"
    );
    assert!(!difference.contains('\u{1b}'));
    assert!(difference.len() < 2000, "{} bytes", difference.len());
}
