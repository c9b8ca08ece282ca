//! Telling others where a thread is.

use std::future::poll_fn;
use std::pin::pin;

use crate::current::{self, Place};
use crate::shown::Shown;

/// Where a thread is, for another one that works for it.
#[derive(Clone, Debug)]
pub struct Here {
    place: Place,
    shown: Shown,
}

/// Where this thread is, also in the spans of `tracing`: the one that it is in goes on for as long as this is kept.
///
/// What a thread of one's own does belongs to no profile unless it is told:
///
/// ```
/// let here = telegrad_trace::here();
/// std::thread::spawn(move || {
///     here.run(|| {
///         telegrad_trace::record_function!("helping");
///     });
/// });
/// ```
pub fn here() -> Here {
    let place = current::place();
    let shown = if current::is_showing() {
        Shown::default()
    } else {
        Shown::here()
    };
    Here { place, shown }
}

impl Here {
    /// Runs `f` as part of what was recorded there.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _entered = current::replace(self.place.clone(), self.shown.clone());
        f()
    }

    /// The same future, as part of what was recorded there, whichever executor runs it and on whatever threads:
    ///
    /// ```
    /// # fn spawn(_: impl Future + Send + 'static) {}
    /// # async fn work() {}
    /// let here = telegrad_trace::here();
    /// // Of tokio, say.
    /// spawn(here.follow(work()));
    /// ```
    pub fn follow<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let here = self.clone();
        async move {
            let mut future = pin!(future);
            poll_fn(|context| here.run(|| future.as_mut().poll(context))).await
        }
    }
}
