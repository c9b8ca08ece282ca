//! The recorders of this process, for threads that are nowhere: whether anybody wants to know what they do, and whom they
//! work for.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::event::Kind;
use crate::recorder::Recorder;
use crate::subscribers;

/// All of them. What is recorded of each, the recorder itself knows.
static RECORDERS: Mutex<Vec<Weak<Recorder>>> = Mutex::new(Vec::new());

/// For how many everything is recorded: each recording counts, and each recorder that is shown to subscribers.
static WATCHERS: AtomicUsize = AtomicUsize::new(0);

/// How many of those are recordings.
static RECORDINGS: AtomicUsize = AtomicUsize::new(0);

/// There is another recorder.
pub(crate) fn add(recorder: &Arc<Recorder>) {
    subscribers::ask();
    let mut recorders = RECORDERS.lock();
    recorders.push(Arc::downgrade(recorder));
    recorder.subscribe(subscribers::has_any());
}

/// A recorder ends: nothing of it is shown any more.
pub(crate) fn remove(recorder: &Recorder) {
    let mut recorders = RECORDERS.lock();
    recorders.retain(|other| !std::ptr::eq(other.as_ptr(), recorder));
    recorder.subscribe(false);
}

/// Subscribers want something else than before. What they want is read under the lock: whoever comes last has it right.
pub(crate) fn subscribe() {
    let recorders = RECORDERS.lock();
    let known: Vec<_> = recorders.iter().filter_map(Weak::upgrade).collect();
    let wanted = subscribers::has_any();
    known.iter().for_each(|recorder| recorder.subscribe(wanted));
    // One of them may end here, and has to be removed.
    drop(recorders);
}

/// One more recording, or one more recorder that is shown.
pub(crate) fn begin(is_recording: bool) {
    RECORDINGS.fetch_add(usize::from(is_recording), SeqCst);
    WATCHERS.fetch_add(1, SeqCst);
}

/// One less.
pub(crate) fn end(is_recording: bool) {
    WATCHERS.fetch_sub(1, SeqCst);
    RECORDINGS.fetch_sub(usize::from(is_recording), SeqCst);
}

/// Whether everything is recorded for anybody.
#[inline]
pub(crate) fn is_any() -> bool {
    WATCHERS.load(Relaxed) > 0
}

/// The worker that a thread that is nowhere must be working for, where somebody wants something of this kind. Where there are
/// several, nobody knows which one, whoever records.
pub(crate) fn only(kind: &Kind) -> Option<Arc<Recorder>> {
    // Before the lock: there are a lot of these.
    if RECORDINGS.load(Relaxed) == 0 && subscribers::is_too_much(kind) {
        return None;
    }
    // Let go of outside of the lock: one of them may end here.
    let known: Vec<_> = RECORDERS.lock().iter().filter_map(Weak::upgrade).collect();
    match &known[..] {
        [only] if only.is_watched() => Some(only.clone()),
        _ => None,
    }
}
