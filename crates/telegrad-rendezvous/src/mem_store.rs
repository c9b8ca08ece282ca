//! The store of a world that lives in one process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::table::{Table, Wait};
use crate::{RendezvousError, Store};

/// The stores of this process by name. Weak, so that a store ends with its last member and the
/// next world under the name starts with an empty one.
static STORES: Mutex<BTreeMap<String, Weak<Mutex<State>>>> = Mutex::new(BTreeMap::new());

/// One member's handle to the store of a name.
pub(crate) struct MemStore {
    name: String,
    state: Arc<Mutex<State>>,
    /// The keys that this handle has claimed.
    claims: Mutex<Vec<String>>,
}

#[derive(Default)]
struct State {
    table: Table,
    /// Who waits, by the ticket that they drew. Each has its own signal: with one for all, the
    /// n inserts of a world of n threads would wake n² times.
    waits: HashMap<u64, (Wait, Arc<Condvar>)>,
    /// The next ticket.
    next: u64,
}

impl MemStore {
    /// The store of that name; a new one if nobody holds it.
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
        let State { table, waits, .. } = &mut *self.state.lock();
        let before = table.insert(key.to_owned(), value.to_vec());
        for (wait, done) in waits.values_mut() {
            if wait.awaits(key) && wait.advance(table) {
                done.notify_one();
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
        let mut wait = Wait::new(keys.to_vec());
        if let Some(values) = wait.values(&state.table) {
            return Ok(values);
        }
        let ticket = state.next;
        state.next += 1;
        let done = Arc::new(Condvar::new());
        state.waits.insert(ticket, (wait, Arc::clone(&done)));
        loop {
            let late = done.wait_until(&mut state, deadline).timed_out();
            let State { table, waits, .. } = &mut *state;
            // Only this thread removes its ticket, and it does so just before it leaves.
            let Some((wait, _)) = waits.get_mut(&ticket) else {
                unreachable!("a wait lost its ticket")
            };
            let result = match wait.values(table) {
                Some(values) => Ok(values),
                None if late => Err(RendezvousError::MissingKeys {
                    store: self.describe(),
                    keys: wait.missing(table),
                    waited: started.elapsed(),
                }),
                None => continue,
            };
            waits.remove(&ticket);
            return result;
        }
    }

    fn describe(&self) -> String {
        format!("mem://{}", self.name)
    }
}
