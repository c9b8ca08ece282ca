//! Telling others where a thread is.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use crate::recorder::Recorder;
use crate::subscribers::Shown;
use crate::thread_state::{self as current, Place};

/// Where a thread is, for another one that works for it.
#[derive(Clone, Debug)]
pub struct Here {
    place: Place,
    shown: Shown,
    /// While there is one of these, a profile waits for what it may yet be used for.
    _stay: Option<Arc<Stay>>,
}

/// Something may be done in a trace yet.
#[derive(Debug)]
struct Stay {
    recorder: Arc<Recorder>,
    trace: u64,
}

impl Stay {
    fn new(place: &Place) -> Option<Arc<Self>> {
        let (recorder, trace) = place.trace()?;
        recorder.stay(trace).then(|| {
            let recorder = recorder.clone();
            Arc::new(Self { recorder, trace })
        })
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.recorder.leave(self.trace);
    }
}

/// Where this thread is, also in the spans of `tracing`: the one that it is in goes on for as long as this is kept.
///
/// What a thread of one's own does belongs to no profile unless it is told. The profile then waits, within its patience, until all that
/// were told have let go of it:
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
    Here {
        _stay: Stay::new(&place),
        place,
        shown,
    }
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
