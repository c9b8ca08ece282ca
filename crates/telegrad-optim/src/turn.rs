//! One step of a parameter at a time.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use parking_lot::{Mutex, MutexGuard};
use telegrad_autograd::Param;

/// So many parameters can be stepped at once, of as many kinds: more than there are cores to do it.
const TURNS: usize = 64;

static STEPPING: [Mutex<()>; TURNS] = [const { Mutex::new(()) }; TURNS];

/// Waits until nobody else is changing this parameter, and keeps others from it.
///
/// A step reads a value and replaces it. Every trainer of a model may have an optimiser of its own, and a step of
/// one must not replace what another has just made of the same value. Parameters of the same shape and element
/// type may share a turn: that costs time, and nothing else, because nobody waits for anything within it.
pub(crate) fn turn(param: &Param) -> MutexGuard<'static, ()> {
    // Whoever has the same parameter finds the same turn: its shape and its element type never change.
    let kind = (param.shape().into_dims(), param.dtype().as_str());
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(kind);
    STEPPING[hash as usize % TURNS].lock()
}
