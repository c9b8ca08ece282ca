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
pub use sink::{FOLDER_ENV, SHAPES_ENV, Sink, SinkLine, worker_of_file};
pub use span::Span;
pub use subscribers::{Cause, Origin, Propagate, SubscriberSpan, TARGET, propagate};
pub use thread_state::{Entered, assign, assign_if_unassigned, hide, is_in_subscriber, is_recorded};

/// Records a span with this name until the end of the block.
///
/// The name is anything that converts to `Cow<'static, str>`. While nothing records, the macro costs next to nothing.
///
/// The span belongs to one thread and must not be held across an `.await`. In a future that moves between threads, as those of
/// `async` functions that other workers call, the compiler rejects that; put a block between two `.await`s instead. In a future
/// that stays on its thread it compiles, but then the span also covers what the thread does for other tasks meanwhile.
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
        let _scope = $crate::scope($crate::Kind::Scope, || ::std::borrow::Cow::from($name));
    };
}
