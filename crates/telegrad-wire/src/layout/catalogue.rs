//! The functions of a program with their signatures.

use std::collections::BTreeMap;

use super::difference::Comparison;
use super::table::{Table, digest};
use super::{Layouts, TypeNumber};
use crate::{Decoder, Encoder, Wire, WireError};

/// Functions of a program by name, with their signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    pub(super) table: Table,
    /// `None` for a program in another language, which has no layouts.
    pub(super) functions: BTreeMap<String, Option<Signature>>,
}

/// Layouts of a function's arguments and value.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct Signature {
    /// Whether the function is called on a reference to an object.
    pub is_method: bool,
    /// The arguments, as a tuple.
    pub arguments: TypeNumber,
    /// The value; `None` if it cannot be sent, only referred to.
    pub value: Option<TypeNumber>,
}

impl Catalogue {
    /// A catalogue of functions; each `describe` adds its signature to one shared table.
    pub fn new<'a, D>(functions: impl IntoIterator<Item = (&'a str, D)>) -> Self
    where
        D: FnOnce(&mut Layouts) -> Option<Signature>,
    {
        let mut layouts = Layouts::default();
        let functions = functions
            .into_iter()
            .map(|(name, describe)| (name.to_owned(), describe(&mut layouts)))
            .collect();
        let table = layouts.finish();
        Self { table, functions }
    }

    /// Hash of names and signatures, the same in every build.
    pub fn digest(&self) -> u64 {
        digest(self)
    }

    /// Whether the catalogue has a signature for the function.
    pub fn describes(&self, function: &str) -> bool {
        self.functions.get(function).is_some_and(Option::is_some)
    }

    /// Functions that `theirs` lacks or has with another signature.
    ///
    /// Signatures are compared if both sides have one. `parameters` returns a function's parameter names, for the text.
    pub fn differences<'a>(
        &'a self,
        theirs: &'a Self,
        parameters: impl Fn(&str) -> &'a [&'a str],
    ) -> Vec<(&'a str, Difference)> {
        let mut comparison = Comparison::new(&self.table, &theirs.table);
        let mut differences = Vec::new();
        for (name, signature) in &self.functions {
            let difference = match (signature, theirs.functions.get(name)) {
                (_, None) => Some(Difference::Missing),
                (Some(ours), Some(Some(theirs))) => comparison
                    .of_signatures(ours, theirs, parameters(name))
                    .map(Difference::Signature),
                _ => None,
            };
            differences.extend(difference.map(|difference| (name.as_str(), difference)));
        }
        differences
    }
}

/// How a function of another program differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// There is no function of this name.
    Missing,
    /// The signatures differ; a description of the first difference.
    Signature(String),
}

impl Wire for Catalogue {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.array_len(2);
        self.table.encode(encoder);
        self.functions.encode(encoder);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        decoder.array_of(2, "a catalogue of functions")?;
        let table = Table::decode(decoder)?;
        let functions = BTreeMap::<String, Option<Signature>>::decode(decoder)?;
        for signature in functions.values().flatten() {
            table.check(signature.arguments)?;
            signature.value.map_or(Ok(()), |value| table.check(value))?;
        }
        Ok(Self { table, functions })
    }
}
