//! The store of a world in one process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::table::{PendingGet, Table};
use crate::{RendezvousError, Store};

/// The stores of this process by name. Weak, so that a store ends with its last member and the next world of the
/// same name starts with an empty one.
static STORES: Mutex<BTreeMap<String, Weak<Mutex<State>>>> = Mutex::new(BTreeMap::new());

/// One member's handle to a named store.
pub(crate) struct MemStore {
    name: String,
    state: Arc<Mutex<State>>,
    /// The keys that this handle has claimed.
    claims: Mutex<Vec<String>>,
}

#[derive(Default)]
struct State {
    table: Table,
    /// Pending gets by ticket. Each has a condition variable of its own: with a shared one, the n inserts of a
    /// world of n threads would wake n² times.
    gets: HashMap<u64, (PendingGet, Arc<Condvar>)>,
    next_ticket: u64,
}

impl MemStore {
    /// Opens the store of this name, creating it if no member holds it.
    pub(crate) fn open(name: &str) -> Self {
        let mut stores = STORES.lock();
        stores.retain(|_, store| store.strong_count() > 0);
        let state = stores.get(name).and_then(Weak::upgrade).unwrap_or_default();
        stores.insert(name.to_owned(), Arc::downgrade(&state));
        Self {
            name: name.to_owned(),
            state,
            claims: Mutex::default(),
        }
    }
}

impl Drop for MemStore {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        for key in self.claims.get_mut() {
            state.table.remove(key);
        }
    }
}

impl Store for MemStore {
    fn insert(&self, key: &str, value: &[u8]) -> Result<Option<Vec<u8>>, RendezvousError> {
        let State { table, gets, .. } = &mut *self.state.lock();
        let before = table.insert(key.to_owned(), value.to_vec());
        for (get, ready) in gets.values_mut() {
            if get.waits_for(key) && get.advance(table) {
                ready.notify_one();
            }
        }
        Ok(before)
    }

    fn claim(&self, key: &str, value: &[u8]) -> Result<Option<Vec<u8>>, RendezvousError> {
        let before = self.insert(key, value)?;
        if before.is_none() {
            self.claims.lock().push(key.to_owned());
        }
        Ok(before)
    }

    fn release(&self, key: &str) -> Result<(), RendezvousError> {
        if self.claims.lock().extract_if(.., |claim| claim == key).count() > 0 {
            self.state.lock().table.remove(key);
        }
        Ok(())
    }

    fn get_all(&self, keys: &[String], deadline: Instant) -> Result<Vec<Vec<u8>>, RendezvousError> {
        let started = Instant::now();
        let mut state = self.state.lock();
        let mut get = PendingGet::new(keys.to_vec());
        if let Some(values) = get.values(&state.table) {
            return Ok(values);
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let ready = Arc::new(Condvar::new());
        state.gets.insert(ticket, (get, Arc::clone(&ready)));
        loop {
            let expired = ready.wait_until(&mut state, deadline).timed_out();
            let State { table, gets, .. } = &mut *state;
            // Only this thread removes its ticket, just before it returns.
            let Some((get, _)) = gets.get_mut(&ticket) else {
                unreachable!("a pending get lost its ticket")
            };
            let result = match get.values(table) {
                Some(values) => Ok(values),
                None if expired => Err(RendezvousError::MissingKeys {
                    store: self.describe(),
                    keys: get.missing(table),
                    waited: started.elapsed(),
                }),
                None => continue,
            };
            gets.remove(&ticket);
            return result;
        }
    }

    fn describe(&self) -> String {
        format!("mem://{}", self.name)
    }
}
