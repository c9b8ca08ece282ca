//! The recorders of this process.
//!
//! A thread without a worker looks here whether anything records, and for which worker it must be working.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::event::Kind;
use crate::recorder::Recorder;
use crate::subscribers;

/// All recorders of the process.
static RECORDERS: Mutex<Vec<Weak<Recorder>>> = Mutex::new(Vec::new());

/// The number of process recordings, plus the number of recorders that subscribers watch.
static WATCHERS: AtomicUsize = AtomicUsize::new(0);

/// The number of process recordings.
static RECORDINGS: AtomicUsize = AtomicUsize::new(0);

/// Adds a recorder.
pub(crate) fn register(recorder: &Arc<Recorder>) {
    subscribers::register_probes();
    let mut recorders = RECORDERS.lock();
    recorders.push(Arc::downgrade(recorder));
    recorder.set_subscribed(subscribers::has_any());
}

/// Removes a recorder that ends, and stops showing its spans to subscribers.
pub(crate) fn unregister(recorder: &Recorder) {
    let mut recorders = RECORDERS.lock();
    recorders.retain(|other| !std::ptr::eq(other.as_ptr(), recorder));
    recorder.set_subscribed(false);
}

/// Applies a change of the subscribers' interest to all recorders.
///
/// The interest is read under the lock, so that the last of several concurrent updates has the current value.
pub(crate) fn update_interest() {
    let recorders = RECORDERS.lock();
    let known: Vec<_> = recorders.iter().filter_map(Weak::upgrade).collect();
    let wanted = subscribers::has_any();
    known.iter().for_each(|recorder| recorder.set_subscribed(wanted));
    // Before `known`: the last reference to a recorder may be dropped here, which takes the lock.
    drop(recorders);
}

/// Counts a process recording, or a recorder that subscribers watch.
pub(crate) fn add_watcher(is_recording: bool) {
    RECORDINGS.fetch_add(usize::from(is_recording), SeqCst);
    WATCHERS.fetch_add(1, SeqCst);
}

/// Undoes [`add_watcher`].
pub(crate) fn remove_watcher(is_recording: bool) {
    WATCHERS.fetch_sub(1, SeqCst);
    RECORDINGS.fetch_sub(usize::from(is_recording), SeqCst);
}

/// Returns whether any worker of this process records everything, or shows it to subscribers.
#[inline]
pub(crate) fn is_any_watched() -> bool {
    WATCHERS.load(Relaxed) > 0
}

/// Returns the recorder of the only worker in this process, if it wants events of this kind.
///
/// With several workers, the worker of a thread that has none is ambiguous.
pub(crate) fn only_recorder(kind: &Kind) -> Option<Arc<Recorder>> {
    // Before the lock: these kinds are frequent.
    if RECORDINGS.load(Relaxed) == 0 && subscribers::is_detail_disabled(kind) {
        return None;
    }
    // Dropped outside of the lock: the last reference to a recorder may be dropped here.
    let known: Vec<_> = RECORDERS.lock().iter().filter_map(Weak::upgrade).collect();
    match &known[..] {
        [only] if only.is_watched() => Some(only.clone()),
        _ => None,
    }
}
