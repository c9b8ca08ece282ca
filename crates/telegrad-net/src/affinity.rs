//! Two threads that talk to each other all the time tend to end up on one processor.
//!
//! The kernel puts whoever is woken where its waker runs, and leaves two threads that poll there for many
//! milliseconds: to it they look like any two busy threads. Each answer then costs two changes of thread,
//! more than all the rest of a call through shared memory. So the thread that waits goes elsewhere.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

/// How long after a move the next one may come. It doubles with every move that follows soon after: where
/// all processors are busy, moving does not help.
const MIN_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// When this process last moved a thread, and how long it waits until the next time.
static LAST_MOVE: Mutex<Option<(Instant, Duration)>> = Mutex::new(None);

/// Moves this thread to another processor, unless that was done only just now.
pub(crate) fn leave_cpu() {
    let now = Instant::now();
    let Ok(mut moved) = LAST_MOVE.try_lock() else {
        return;
    };
    let pause = match *moved {
        Some((then, pause)) if now - then < pause => return,
        Some((then, pause)) if now - then < pause * 4 => (pause * 2).min(MAX_PAUSE),
        _ => MIN_PAUSE,
    };
    *moved = Some((now, pause));
    drop(moved);
    // Where none of it is allowed, the thread stays: nothing depends on it.
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    let mut others = allowed;
    others.unset(sched_getcpu());
    if others.count() > 0 && sched_setaffinity(None, &others).is_ok() {
        let _ = sched_setaffinity(None, &allowed);
    }
}
