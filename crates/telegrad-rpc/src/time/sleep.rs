//! Sleeping and timeouts in async functions, without a runtime.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::timer::{Sweep, schedule};
use crate::error::Error;

/// Returns a future that is ready after `time`.
///
/// The future needs no runtime and holds no thread: one thread of the process serves all time limits. A call that is cancelled
/// during a sleep ends there (S16).
///
/// ```
/// use std::time::Duration;
/// use telegrad_rpc::{Options, init_with, remote};
///
/// #[remote]
/// async fn patient(attempts: u32) -> u32 {
///     for _ in 1..attempts {
///         telegrad_rpc::sleep(Duration::from_millis(5)).await;
///     }
///     attempts
/// }
///
/// let options = Options::default().init_method("mem://sleep?rank=0&world_size=1");
/// let world = init_with("alone", options)?;
/// assert_eq!(world.rpc_sync("alone", patient, (3,))?, 3);
/// world.shutdown()?;
/// # Ok::<(), telegrad_rpc::Error>(())
/// ```
///
/// A sync function uses `std::thread::sleep`.
pub fn sleep(time: Duration) -> Sleep {
    Sleep {
        until: Instant::now().checked_add(time),
        alarm: None,
    }
}

/// Waits for a future, at most for `limit`.
///
/// The future is dropped at the limit, which cancels a call that it waits for (S16). Calls have a limit of their own
/// ([`World::with_timeout`](crate::World::with_timeout)); use this function for other futures.
///
/// # Errors
/// [`Elapsed`] if the future was not ready within the limit; it converts into [`Error`].
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    let mut sleep = sleep(limit);
    std::future::poll_fn(|cx| {
        // A future that is ready at the limit still counts.
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(value));
        }
        Pin::new(&mut sleep).poll(cx).map(|()| Err(Elapsed { limit }))
    })
    .await
}

/// The error of [`timeout`]: a future was not ready within its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not ready within the limit of {limit:?}")]
pub struct Elapsed {
    /// The limit.
    pub limit: Duration,
}

impl From<Elapsed> for Error {
    fn from(elapsed: Elapsed) -> Self {
        Self::other(elapsed)
    }
}

/// The future of [`sleep()`].
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    /// When the sleep ends; `None` if that is beyond the range of the clock.
    until: Option<Instant>,
    /// Its alarm, once set.
    alarm: Option<Key>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(until) = self.until else {
            return Poll::Pending;
        };
        if Instant::now() >= until {
            return Poll::Ready(());
        }
        self.alarm = Some(ALARMS.set(until, self.alarm, cx.waker()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.alarm {
            ALARMS.table.lock().entries.remove(&key);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

/// The time of an alarm, and a number that distinguishes alarms of the same time.
type Key = (Instant, u64);

/// The alarms of all sleeps of this process.
#[derive(Default)]
struct Alarms {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    entries: BTreeMap<Key, Waker>,
    count: u64,
}

static ALARMS: LazyLock<Arc<Alarms>> = LazyLock::new(Arc::default);

impl Alarms {
    /// Sets an alarm that wakes a task at `until`, or updates the alarm `key`; returns its key.
    fn set(self: &Arc<Self>, until: Instant, key: Option<Key>, waker: &Waker) -> Key {
        let mut table = self.table.lock();
        let key = key.unwrap_or_else(|| {
            table.count += 1;
            (until, table.count)
        });
        table.entries.insert(key, waker.clone());
        let is_first = table.entries.keys().next() == Some(&key);
        drop(table);
        // Each sweep schedules the next one.
        if is_first {
            let alarms: Arc<dyn Sweep> = self.clone();
            schedule(until, Arc::downgrade(&alarms));
        }
        key
    }
}

impl Sweep for Alarms {
    fn sweep(&self, now: Instant) -> Option<Instant> {
        let (due, next) = {
            let mut table = self.table.lock();
            let later = table.entries.split_off(&(now, u64::MAX));
            let due = std::mem::replace(&mut table.entries, later);
            (due, table.entries.keys().next().map(|(until, _)| *until))
        };
        for waker in due.into_values() {
            // A waker of another executor may panic; the remaining tasks are still woken.
            if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
                tracing::error!("the waker of a sleep panicked");
            }
        }
        next
    }
}
