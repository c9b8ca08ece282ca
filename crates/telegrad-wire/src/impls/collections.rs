//! Maps and sets.
//!
//! Equal keys are an error: dropping an entry would change the value, and languages differ in which one they keep.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hash};

use crate::{Decoder, Encoder, Layout, Layouts, TypeNumber, Wire, WireError};

impl<K: Wire + Eq + Hash, V: Wire, S: BuildHasher + Default + 'static> Wire for HashMap<K, V, S> {
    fn encode(&self, encoder: &mut Encoder) {
        encode_map(self.len(), self, encoder);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        let len = decoder.map_len("a map")?;
        let capacity = decoder.bounded_capacity::<(K, V)>(len);
        let mut map = Self::with_capacity_and_hasher(capacity, S::default());
        decode_map(len, decoder, |key, value| map.insert(key, value).is_none())?;
        Ok(map)
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        let layout = Layout::Map(K::layout(layouts), V::layout(layouts));
        layouts.add(layout)
    }
}

impl<K: Wire + Ord, V: Wire> Wire for BTreeMap<K, V> {
    fn encode(&self, encoder: &mut Encoder) {
        encode_map(self.len(), self, encoder);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        let len = decoder.map_len("a map")?;
        let mut map = Self::new();
        decode_map(len, decoder, |key, value| map.insert(key, value).is_none())?;
        Ok(map)
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        let layout = Layout::Map(K::layout(layouts), V::layout(layouts));
        layouts.add(layout)
    }
}

impl<T: Wire + Eq + Hash, S: BuildHasher + Default + 'static> Wire for HashSet<T, S> {
    fn encode(&self, encoder: &mut Encoder) {
        encode_set(self.len(), self, encoder);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        let len = decoder.array_len("a set")?;
        let capacity = decoder.bounded_capacity::<T>(len);
        let mut set = Self::with_capacity_and_hasher(capacity, S::default());
        decode_set(len, decoder, |item| set.insert(item))?;
        Ok(set)
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        let layout = Layout::Set(T::layout(layouts));
        layouts.add(layout)
    }
}

impl<T: Wire + Ord> Wire for BTreeSet<T> {
    fn encode(&self, encoder: &mut Encoder) {
        encode_set(self.len(), self, encoder);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        let len = decoder.array_len("a set")?;
        let mut set = Self::new();
        decode_set(len, decoder, |item| set.insert(item))?;
        Ok(set)
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        let layout = Layout::Set(T::layout(layouts));
        layouts.add(layout)
    }
}

fn encode_map<'a, K: Wire + 'a, V: Wire + 'a>(
    len: usize,
    entries: impl IntoIterator<Item = (&'a K, &'a V)>,
    encoder: &mut Encoder,
) {
    encoder.map_len(len);
    for (key, value) in entries {
        key.encode(encoder);
        value.encode(encoder);
    }
}

/// `insert` returns whether the key is new.
fn decode_map<K: Wire, V: Wire>(
    len: usize,
    decoder: &mut Decoder<'_>,
    mut insert: impl FnMut(K, V) -> bool,
) -> Result<(), WireError> {
    for i in 0..len {
        let key = K::decode(decoder).map_err(|e| e.at(format!("key {i}")))?;
        let value = V::decode(decoder).map_err(|e| e.at(format!("value {i}")))?;
        if !insert(key, value) {
            return Err(WireError::mismatch(
                "a map of distinct keys",
                format!("a duplicate of key {i}"),
            ));
        }
    }
    Ok(())
}

fn encode_set<'a, T: Wire + 'a>(len: usize, items: impl IntoIterator<Item = &'a T>, encoder: &mut Encoder) {
    encoder.array_len(len);
    for item in items {
        item.encode(encoder);
    }
}

/// `insert` returns whether the element is new.
fn decode_set<T: Wire>(
    len: usize,
    decoder: &mut Decoder<'_>,
    mut insert: impl FnMut(T) -> bool,
) -> Result<(), WireError> {
    for i in 0..len {
        let item = T::decode(decoder).map_err(|e| e.at(format!("element {i}")))?;
        if !insert(item) {
            let found = format!("a duplicate of element {i}");
            return Err(WireError::mismatch("a set of distinct elements", found));
        }
    }
    Ok(())
}
