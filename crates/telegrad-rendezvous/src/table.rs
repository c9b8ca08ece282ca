//! The state behind every store: keys, values and who waits for them. No I/O, no clock.

use std::collections::HashMap;

/// Keys and their values.
#[derive(Debug, Default)]
pub(crate) struct Table {
    values: HashMap<String, Vec<u8>>,
}

impl Table {
    /// Sets `key` unless it is set; the value that was there already, if one was.
    pub(crate) fn insert(&mut self, key: String, value: Vec<u8>) -> Option<Vec<u8>> {
        if let Some(before) = self.values.get(&key) {
            return Some(before.clone());
        }
        self.values.insert(key, value);
        None
    }

    /// The value of `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// Forgets `key`.
    pub(crate) fn remove(&mut self, key: &str) {
        self.values.remove(key);
    }
}

/// One wait for several keys.
#[derive(Debug)]
pub(crate) struct Wait {
    keys: Vec<String>,
    /// How many keys, from the first, have been seen; the next one was not set at the last look. A
    /// world of n workers inserts n keys while rank 0 waits for all of them; without this every insert
    /// would look up n keys.
    seen: usize,
}

impl Wait {
    /// A wait for all of `keys`.
    pub(crate) fn new(keys: Vec<String>) -> Self {
        Self { keys, seen: 0 }
    }

    /// Whether there is any use in looking again now that `key` is set.
    pub(crate) fn awaits(&self, key: &str) -> bool {
        self.keys.get(self.seen).is_some_and(|next| next == key)
    }

    /// Looks again; true once all keys have been seen.
    pub(crate) fn advance(&mut self, table: &Table) -> bool {
        let left = &self.keys[self.seen..];
        self.seen += left.iter().take_while(|key| table.get(key).is_some()).count();
        self.seen == self.keys.len()
    }

    /// The values in the order of the keys, once all are set.
    pub(crate) fn values(&mut self, table: &Table) -> Option<Vec<Vec<u8>>> {
        if !self.advance(table) {
            return None;
        }
        let values: Option<Vec<_>> = self
            .keys
            .iter()
            .map(|key| table.get(key).map(<[u8]>::to_vec))
            .collect();
        if values.is_none() {
            // A key was removed after it had been seen: look for all of them again.
            self.seen = 0;
            self.advance(table);
        }
        values
    }

    /// The keys that are not set.
    pub(crate) fn missing(&self, table: &Table) -> Vec<String> {
        self.keys
            .iter()
            .filter(|key| table.get(key).is_none())
            .cloned()
            .collect()
    }
}
