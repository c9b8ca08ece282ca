//! Moves a polling thread off a processor that it shares with its peer.
//!
//! Two threads that talk to each other all the time tend to end up on one processor. The kernel places a woken
//! thread where its waker runs. Two threads that poll there look like any two busy threads, and stay for many
//! milliseconds. Each answer then costs two context switches, more than the rest of a call through shared
//! memory.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Pause between two moves. It doubles with every move that follows soon after: where all processors are busy,
/// moving does not help.
const MIN_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The last move of a thread of this process, and the pause after it.
static LAST_MOVE: Mutex<Option<(Instant, Duration)>> = Mutex::new(None);

/// Moves this thread to another processor, unless one was moved recently.
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
    // Optional: where the system refuses, the thread stays.
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    let mut others = allowed;
    others.unset(sched_getcpu());
    if others.count() > 0 && sched_setaffinity(None, &others).is_ok() {
        let _ = sched_setaffinity(None, &allowed);
    }
}
