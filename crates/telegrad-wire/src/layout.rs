//! Layouts of types, for comparing the signatures of two programs.
//!
//! [`Wire::layout`](crate::Wire::layout) adds a type to [`Layouts`]. The result is a flat table in which types refer to each
//! other by number, so recursive types are finite and a shared type occurs once. [`TypeLayout`] is one type with its table,
//! [`Catalogue`] the functions of a program with theirs. Both are compared by structure; numbers may differ.

mod catalogue;
mod difference;
mod layouts;
mod table;
mod text;

use std::borrow::Cow;

pub use catalogue::{Catalogue, Difference, Signature};
pub use layouts::Layouts;
pub use table::TypeLayout;
pub(crate) use text::short;

use crate::Wire;

/// Number of a type in [`Layouts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire)]
pub struct TypeNumber(u32);

impl TypeNumber {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Name of a type, a field or a variant.
type Name = Cow<'static, str>;

/// Layout of one type: names, order and types of its components.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Wire)]
#[non_exhaustive]
pub enum Layout {
    /// Compared by this name alone: numbers, text, tensors, references, types without a description.
    Named(Name),
    /// A struct.
    Struct(Name, Fields),
    /// An enum, with its variants in order.
    Enum(Name, Vec<(Name, Fields)>),
    /// A tuple, with its elements in order.
    Tuple(Vec<TypeNumber>),
    /// Any number of elements, in order.
    List(TypeNumber),
    /// Any number of distinct elements.
    Set(TypeNumber),
    /// Values by distinct keys.
    Map(TypeNumber, TypeNumber),
    /// A fixed number of elements.
    Array(TypeNumber, u64),
    /// A value or none.
    Option(TypeNumber),
}

impl Layout {
    /// Layout of a struct.
    pub fn of_struct(name: &'static str, fields: Fields) -> Self {
        Self::Struct(name.into(), fields)
    }

    /// Layout of an enum.
    pub fn of_enum<const N: usize>(name: &'static str, variants: [(&'static str, Fields); N]) -> Self {
        let variants = variants.into_iter();
        Self::Enum(
            name.into(),
            variants.map(|(name, fields)| (name.into(), fields)).collect(),
        )
    }

    /// The types that the layout refers to.
    fn parts(&self) -> Vec<TypeNumber> {
        match self {
            Self::Named(_) => Vec::new(),
            Self::Struct(_, fields) => fields.types().collect(),
            Self::Enum(_, variants) => variants.iter().flat_map(|(_, fields)| fields.types()).collect(),
            Self::Tuple(elements) => elements.clone(),
            Self::Map(key, value) => vec![*key, *value],
            Self::List(of) | Self::Set(of) | Self::Array(of, _) | Self::Option(of) => vec![*of],
        }
    }
}

/// Fields of a struct or of a variant, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Wire)]
#[non_exhaustive]
pub enum Fields {
    /// None.
    Unit,
    /// As in `Point(f64, f64)`.
    Unnamed(Vec<TypeNumber>),
    /// As in `Point { x: f64, y: f64 }`.
    Named(Vec<(Name, TypeNumber)>),
}

impl Fields {
    /// Fields as in `Point(f64, f64)`.
    pub fn unnamed<const N: usize>(types: [TypeNumber; N]) -> Self {
        Self::Unnamed(types.into())
    }

    /// Fields as in `Point { x: f64, y: f64 }`.
    pub fn named<const N: usize>(fields: [(&'static str, TypeNumber); N]) -> Self {
        let fields = fields.into_iter();
        Self::Named(fields.map(|(name, of)| (name.into(), of)).collect())
    }

    fn types(&self) -> impl Iterator<Item = TypeNumber> {
        let (unnamed, named) = match self {
            Self::Unit => (&[][..], &[][..]),
            Self::Unnamed(types) => (&types[..], &[][..]),
            Self::Named(fields) => (&[][..], &fields[..]),
        };
        unnamed.iter().copied().chain(named.iter().map(|(_, of)| *of))
    }
}
