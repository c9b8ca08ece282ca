//! Events, spans and recorders: what a worker records while it runs.
//!
//! This is a crate of its own because every layer from calls to neural networks records, so that it stands below all of them. It
//! depends on `telegrad-wire` alone. `telegrad-profile` analyses what is recorded.
//!
//! The line format of the files that workers write ([`SinkLine`], and [`Event`] as JSON) belongs to this crate, because the [`Sink`]
//! writes it while the program runs; `telegrad-profile` reads it.
//!
//! Read it in this order: an [`Event`] is something that took time on a worker. A [`Recorder`] keeps the events of one worker.
//! A [`Span`] is an event that has not ended. `thread_state` tracks the span that a thread is in, [`Here`] carries that to other
//! threads, and a [`Scope`] is a span of one thread. `subscribers` shows spans to `tracing` while they last. A [`Sink`] writes
//! events to a file.

mod event;
mod position;
mod clock;
mod recorder;
mod recorders;
mod span;
mod thread_state;
mod here;
mod scope;
mod subscribers;
mod sink;

pub use clock::Clock;
pub use event::{Call, Event, Execution, Kind, Status};
pub use here::{Here, here};
pub use position::Position;
pub use recorder::{Collected, Recorder, WHOLE_WORLD};
pub use scope::{Scope, scope, scope_of, scope_with};
pub use sink::{FOLDER, SHAPES, Sink, SinkLine, worker_of_file, write_worker};
pub use span::Span;
pub use subscribers::{Cause, Origin, Propagate, Shown, TARGET, propagate};
pub use thread_state::{Entered, at_home, hide, is_recorded, is_showing, outside};

/// Records what follows, to the end of the block, under a name of your choice.
///
/// Outside of profiles it costs next to nothing. The name is anything that becomes a `Cow<'static, str>`.
///
/// It is about one thread, and cannot be kept over an `.await` in a future that is to be sent to another: the compiler says so of
/// `async` functions that other workers call. Between two `.await`s, give it a block of its own. In a future that stays on its
/// thread it is possible, but what that thread does for others meanwhile is recorded under it, too.
///
/// ```
/// fn train_step() {
///     telegrad_trace::record_function!("train step");
///     // …
/// }
/// # train_step();
/// ```
#[macro_export]
macro_rules! record_function {
    ($name:expr) => {
        let _recorded = $crate::scope($crate::Kind::Scope, || ::std::borrow::Cow::from($name));
    };
}
