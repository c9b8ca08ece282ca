//! Blocking a thread on a future.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

use super::Executor;

/// Blocks on a future until the deadline. The thread's function does not count as running meanwhile.
pub(crate) fn block_on<T>(future: impl Future<Output = T>, deadline: Option<Instant>) -> Option<T> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
        return Some(value);
    }
    Executor::blocking(|| {
        loop {
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => std::thread::park(),
                Some(left) if left.is_zero() => return None,
                Some(left) => std::thread::park_timeout(left),
            }
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return Some(value);
            }
        }
    })
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
