//! Builder of a table of layouts.

use std::any::TypeId;
use std::collections::HashMap;

use super::table::Table;
use super::{Layout, Name, TypeNumber};

/// Table of layouts under construction, for [`Wire::layout`](crate::Wire::layout).
#[derive(Debug, Default)]
pub struct Layouts {
    table: Vec<Layout>,
    /// Types that may be recursive, added before their fields.
    defined: HashMap<TypeId, TypeNumber>,
    /// All other types, by content.
    added: HashMap<Layout, TypeNumber>,
}

impl Layouts {
    /// Adds a struct or an enum; `describe` runs once for each type.
    ///
    /// The number is assigned before the fields are described, so that they may refer to it.
    pub fn define<T: 'static>(&mut self, describe: impl FnOnce(&mut Self) -> Layout) -> TypeNumber {
        let id = TypeId::of::<T>();
        if let Some(&known) = self.defined.get(&id) {
            return known;
        }
        // A placeholder until the layout is known.
        let number = self.push(Layout::Tuple(Vec::new()));
        self.defined.insert(id, number);
        let layout = describe(self);
        self.table[number.index()] = layout;
        number
    }

    /// Adds the layout of any other type; equal layouts share a number.
    pub fn add(&mut self, layout: Layout) -> TypeNumber {
        if let Some(&known) = self.added.get(&layout) {
            return known;
        }
        let number = self.push(layout.clone());
        self.added.insert(layout, number);
        number
    }

    /// Adds a type that is compared by this name alone.
    pub fn named(&mut self, name: impl Into<Name>) -> TypeNumber {
        self.add(Layout::Named(name.into()))
    }

    fn push(&mut self, layout: Layout) -> TypeNumber {
        let number = u32::try_from(self.table.len()).expect("a program has fewer than 2^32 types");
        self.table.push(layout);
        TypeNumber(number)
    }

    pub(super) fn finish(self) -> Table {
        Table(self.table)
    }
}
