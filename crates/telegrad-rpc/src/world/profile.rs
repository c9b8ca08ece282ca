//! Profiles: what happens on all workers while something runs.

mod collecting;
mod forgetting;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use telegrad_profile::{Options, Profile};
use telegrad_trace::{Collected, Kind, Position, Span, Status};
use telegrad_wire::Rank;

use crate::context::CallContext;
use crate::error::{Error, Result};
use crate::worker::{Worker, World};

pub(super) use forgetting::lost;

/// Runs `f` and finds out what happened meanwhile on its behalf: every call that it made, on this worker and on all
/// others, to any depth (S42).
///
/// What it set off and did not wait for belongs to it too, and is waited for within [`Options::patience`]. What other threads
/// do does not, unless they are told ([`telegrad_trace::here`]). Workers that cannot be asked any more are in [`Profile::missing`].
/// A panic of `f` goes on, without a profile.
///
/// # Errors
/// When the world has been shut down.
pub fn profile<R>(world: &World, options: Options, f: impl FnOnce() -> R) -> Result<(R, Profile)> {
    let worker = world.worker();
    if worker.is_closed() {
        return Err(Error::ShutDown);
    }
    let trace = worker.recorder.open(options.shapes);
    // Under whatever this thread is at: recordings of the process have that, too.
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
    let profile = collecting::collect_all(world, trace, options.patience);
    match value {
        Ok(value) => Ok((value, profile)),
        Err(panic) => resume_unwind(panic),
    }
}

/// Records everything that one worker does, whoever asked it to, until [`finish`](Self::finish) (S44).
///
/// Several may be open at once; each has everything since it was opened.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct ProcessProfile {
    /// Does not keep the worker going.
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

    /// As [`start`](Self::start), with the shapes of tensors if [`Options::shapes`] asks for them. The other options have no
    /// meaning here.
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

    /// What has been recorded. What still goes on is not in it.
    pub fn finish(self) -> Profile {
        let collected = self.world.worker().recorder.stop_recording(self.number);
        let rank = self.world.rank();
        let part = (rank, self.world.name().to_owned(), collected);
        let mut profile = of_world(&self.world, vec![part], Vec::new());
        // The names of those whom it had to do with.
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

/// What was recorded in a world, on this worker's clock.
fn of_world(world: &World, parts: Vec<(Rank, String, Collected)>, missing: Vec<(String, String)>) -> Profile {
    let mut profile = Profile::new(world.rank(), parts, missing);
    profile.world = world.worker().members().ok().map(|members| members.world());
    profile
}

/// The worker that the function which calls this runs on.
fn here() -> Result<Arc<Worker>> {
    let worker = CallContext::current().and_then(|call| Worker::serving(&call));
    worker.ok_or(Error::ShutDown)
}
