//! What a distributed program does, and when.
//!
//! This is a crate of its own because whoever reads a recording (`telegrad trace`) needs no workers, and because
//! everything from calls to layers records: it stands below them all and knows only what travels.
//!
//! Read it in this order: an [`Event`] is something that took time on a worker. A [`Recorder`] keeps those of one worker;
//! [`Span`] is one that goes on, `current` is where a thread is, [`Here`] tells others, [`Scope`] is something that it does there. A [`Profile`] is what the recorders of a world
//! have found, put together and brought to one clock (`align`). What it shows: [`Profile::key_averages`], [`Profile::steps`],
//! and as a file `chrome` and `lines`. What goes on can also be seen while it does: `subscribers`.

mod event;
mod clock;
mod recorder;
mod watching;
mod span;
mod current;
mod here;
mod scope;
mod subscribers;
mod shown;
mod align;
mod sound;
mod worker;
mod profile;
mod phases;
mod doubts;
mod index;
mod names;
mod text;
mod table;
mod averages;
mod step;
mod intervals;
mod activity;
mod critical;
mod chrome;
mod lanes;
mod lines;
mod view;
mod sink;
mod merge;
mod file;

pub use averages::{Average, Averages, SortBy};
pub use clock::Clock;
pub use current::{Entered, at_home, hide, is_recorded, is_showing, outside};
pub use event::{Call, Event, Execution, Kind, Position, Status};
pub use file::{TraceError, read, read_worlds};
pub use here::{Here, here};
pub use phases::Phases;
pub use profile::{Options, Profile};
pub use recorder::{Collected, Recorder, WHOLE_WORLD};
pub use scope::{Scope, scope, scope_of, scope_with};
pub use sink::{FOLDER, SHAPES, Sink, write_worker};
pub use span::Span;
pub use step::{Segment, Step, Usage};
pub use subscribers::{Cause, Origin, Propagate, TARGET, propagate};
pub use telegrad_wire::printable;
pub use text::wrap;
pub use view::View;
pub use worker::{Alignment, Drift, Worker};

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
