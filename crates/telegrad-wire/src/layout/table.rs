//! Complete tables of layouts.

use super::difference::Comparison;
use super::{Layout, Layouts, TypeNumber};
use crate::{Decoder, Encoder, Wire, WireError};

/// Layouts that refer to each other by number. Every number is an index into the same table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table(pub(super) Vec<Layout>);

impl Table {
    /// Rejects the number of a type that is not in the table.
    pub(super) fn check(&self, number: TypeNumber) -> Result<(), WireError> {
        if number.index() < self.0.len() {
            return Ok(());
        }
        let expected = format!("the number of one of {} types", self.0.len());
        Err(WireError::mismatch(expected, number.0.to_string()))
    }
}

impl Wire for Table {
    fn encode(&self, encoder: &mut Encoder) {
        self.0.encode(encoder);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        let table = Vec::decode(decoder).map(Self)?;
        for (number, layout) in table.0.iter().enumerate() {
            for part in layout.parts() {
                table
                    .check(part)
                    .map_err(|error| error.at(format!("type {number}")))?;
            }
        }
        Ok(table)
    }
}

/// Layout of one type and of all types in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeLayout {
    table: Table,
    root: TypeNumber,
}

impl TypeLayout {
    /// Layout of `T`.
    pub fn of<T: Wire>() -> Self {
        let mut layouts = Layouts::default();
        let root = T::layout(&mut layouts);
        let table = layouts.finish();
        Self { table, root }
    }

    /// Hash of the layout, the same in every build.
    pub fn digest(&self) -> u64 {
        digest(self)
    }

    /// Describes the first difference; `None` if the layouts are equal.
    pub fn difference(&self, theirs: &Self) -> Option<String> {
        Comparison::new(&self.table, &theirs.table).of_types(self.root, theirs.root)
    }
}

impl Wire for TypeLayout {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.array_len(2);
        self.table.encode(encoder);
        self.root.encode(encoder);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        decoder.array_of(2, "a layout")?;
        let table = Table::decode(decoder)?;
        let root = TypeNumber::decode(decoder)?;
        table.check(root)?;
        Ok(Self { table, root })
    }
}

/// FNV-1a of the encoded value: simple, and the same in every build, unlike the standard library's hashes.
pub(super) fn digest(value: &impl Wire) -> u64 {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    // Names and numbers can always be encoded.
    let body = encoder
        .finish()
        .map_or_else(|_| Vec::new(), |payload| payload.body);
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    body.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
