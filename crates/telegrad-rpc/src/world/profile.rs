//! Profiles: recordings of all workers while a function runs, or of one worker.

mod collector;
mod lost_traces;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use telegrad_profile::{Options, Profile};
use telegrad_trace::{Collected, Kind, Position, Span, Status};
use telegrad_wire::Rank;

use crate::context::CallContext;
use crate::error::{Error, Result};
use crate::worker::{Worker, World};

pub(super) use lost_traces::lost;

/// Runs `f` and profiles the calls that it makes, on all workers and to any depth (S42).
///
/// Includes calls that `f` did not wait for, which may end within [`Options::patience`]. Excludes other threads, unless they
/// enter the trace ([`telegrad_trace::here`]). [`Profile::missing`] names workers that could not be asked. A panic of `f`
/// propagates, without a profile.
///
/// # Errors
/// When the world has been shut down.
pub fn profile<R>(world: &World, options: Options, f: impl FnOnce() -> R) -> Result<(R, Profile)> {
    let worker = world.worker();
    if worker.is_closed() {
        return Err(Error::ShutDown);
    }
    let trace = worker.recorder.open(options.shapes);
    // Under the thread's current span, which recordings of the process contain as well.
    let span = worker.recorder.here().map_or(0, |at| at.span);
    let top = Position { trace, span };
    let root = Span::new(&worker.recorder, top, options.name, Kind::Scope);
    let value = {
        let _entered = root.enter();
        catch_unwind(AssertUnwindSafe(f))
    };
    root.finish(|event| {
        if value.is_err() {
            event.status = Status::Failed("it panicked".into());
        }
    });
    let profile = collector::collect_all(world, trace, options.patience);
    match value {
        Ok(value) => Ok((value, profile)),
        Err(panic) => resume_unwind(panic),
    }
}

/// Records everything on one worker, for any caller, until [`finish`](Self::finish) (S44).
///
/// Several may be open at once; each contains all events since its start.
#[derive(Debug)]
#[must_use = "dropping it discards the recording"]
pub struct ProcessProfile {
    /// A handle that does not keep the worker open.
    world: World,
    number: u64,
}

impl ProcessProfile {
    /// Starts recording on the worker of this world.
    ///
    /// # Errors
    /// When the world has been shut down.
    pub fn start(world: &World) -> Result<Self> {
        Self::start_with(world, &Options::default())
    }

    /// As [`start`](Self::start), with the shapes of tensors if [`Options::shapes`] is set. Other options have no effect.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(world: &World, options: &Options) -> Result<Self> {
        let worker = world.worker();
        if worker.is_closed() {
            return Err(Error::ShutDown);
        }
        let number = worker.recorder.start_recording(options.shapes);
        Ok(Self {
            world: World::of(worker),
            number,
        })
    }

    /// Stops recording and returns the profile, without spans that are still open.
    pub fn finish(self) -> Profile {
        let collected = self.world.worker().recorder.stop_recording(self.number);
        let rank = self.world.rank();
        let part = (rank, self.world.name().to_owned(), collected);
        let mut profile = of_world(&self.world, vec![part], Vec::new());
        // Names of the workers in the events.
        let others = self
            .world
            .get_worker_infos()
            .into_iter()
            .filter(|info| info.rank != rank);
        profile.add_named_workers(others.map(|info| (info.rank, info.name)));
        profile
    }
}

impl Drop for ProcessProfile {
    fn drop(&mut self) {
        self.world.worker().recorder.stop_recording(self.number);
    }
}

/// Makes a profile of these parts, on this worker's clock.
fn of_world(world: &World, parts: Vec<(Rank, String, Collected)>, missing: Vec<(String, String)>) -> Profile {
    let mut profile = Profile::new(world.rank(), parts, missing);
    profile.world = world.worker().members().ok().map(|members| members.world());
    profile
}

/// Returns the worker that serves the current call.
fn here() -> Result<Arc<Worker>> {
    let worker = CallContext::current().and_then(|call| Worker::serving(&call));
    worker.ok_or(Error::ShutDown)
}
