//! The state behind every store: keys, values and pending gets. No I/O, no clock.

use std::collections::HashMap;

/// Keys and their values.
#[derive(Debug, Default)]
pub(crate) struct Table {
    values: HashMap<String, Vec<u8>>,
}

impl Table {
    /// Sets `key` unless it is set. Returns the value that was already there.
    pub(crate) fn insert(&mut self, key: String, value: Vec<u8>) -> Option<Vec<u8>> {
        if let Some(before) = self.values.get(&key) {
            return Some(before.clone());
        }
        self.values.insert(key, value);
        None
    }

    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.values.remove(key);
    }
}

/// A request for several keys that waits until all are set.
#[derive(Debug)]
pub(crate) struct PendingGet {
    keys: Vec<String>,
    /// How many keys, from the first, were found set; the next one was missing at the last check. A world of n
    /// workers inserts n keys while rank 0 waits for all of them; without this count every insert would look up
    /// n keys.
    found: usize,
}

impl PendingGet {
    pub(crate) fn new(keys: Vec<String>) -> Self {
        Self { keys, found: 0 }
    }

    /// Whether setting `key` can make progress.
    pub(crate) fn waits_for(&self, key: &str) -> bool {
        self.keys.get(self.found).is_some_and(|next| next == key)
    }

    /// Checks the keys that are still missing. Returns true once all have been found.
    pub(crate) fn advance(&mut self, table: &Table) -> bool {
        let left = &self.keys[self.found..];
        self.found += left.iter().take_while(|key| table.get(key).is_some()).count();
        self.found == self.keys.len()
    }

    /// Returns the values in the order of the keys, once all are set.
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
            // A key was removed after it had been found: check all of them again.
            self.found = 0;
            self.advance(table);
        }
        values
    }

    /// Returns the keys that are not set.
    pub(crate) fn missing(&self, table: &Table) -> Vec<String> {
        self.keys
            .iter()
            .filter(|key| table.get(key).is_none())
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_get_checks_removed_keys_again() {
        let mut table = Table::default();
        let mut get = PendingGet::new(vec!["a".into(), "b".into()]);
        table.insert("a".into(), vec![1]);
        assert_eq!(get.values(&table), None);
        table.remove("a");
        table.insert("b".into(), vec![2]);
        assert_eq!(get.values(&table), None);
        assert_eq!(get.missing(&table), ["a"]);
        assert!(get.waits_for("a") && !get.waits_for("b"));
        table.insert("a".into(), vec![3]);
        assert_eq!(get.values(&table), Some(vec![vec![3], vec![2]]));
    }
}
