//! Positions that move to other threads and tasks.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use crate::recorder::Recorder;
use crate::subscribers::SubscriberSpan;
use crate::thread_state::{self, ThreadState};

/// The position of a thread, for threads and tasks that work on its behalf.
#[derive(Clone, Debug)]
pub struct Here {
    state: ThreadState,
    subscriber_span: SubscriberSpan,
    /// Makes the profile wait for work that may still begin.
    _hold: Option<Arc<TraceHold>>,
}

/// Keeps a trace open for work that may still begin.
#[derive(Debug)]
struct TraceHold {
    recorder: Arc<Recorder>,
    trace: u64,
}

impl TraceHold {
    fn new(state: &ThreadState) -> Option<Arc<Self>> {
        let (recorder, trace) = state.trace()?;
        recorder.hold(trace).then(|| {
            let recorder = recorder.clone();
            Arc::new(Self { recorder, trace })
        })
    }
}

impl Drop for TraceHold {
    fn drop(&mut self) {
        self.recorder.release(self.trace);
    }
}

/// Returns the position of this thread, to be carried to other threads and tasks.
///
/// The work of a thread that the program starts belongs to no profile unless it runs under a `Here`. The profile waits, within its
/// patience, until every `Here` is dropped. The current span of `tracing` stays open for as long:
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
    let state = ThreadState::capture();
    let subscriber_span = if thread_state::is_in_subscriber() {
        SubscriberSpan::default()
    } else {
        SubscriberSpan::current()
    };
    Here {
        _hold: TraceHold::new(&state),
        state,
        subscriber_span,
    }
}

impl Here {
    /// Runs `f` at this position.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _entered = thread_state::replace(self.state.clone(), self.subscriber_span.clone());
        f()
    }

    /// Wraps a future so that it runs at this position, on any executor and any threads:
    ///
    /// ```
    /// # fn spawn(_: impl Future + Send + 'static) {}
    /// # async fn work() {}
    /// let here = telegrad_trace::here();
    /// // For instance of tokio.
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
