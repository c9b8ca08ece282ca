//! The graceful end of a world.
//!
//! A member whose own work is done may still be needed: a function that runs elsewhere may call it
//! yet. So the members meet in rounds. In each, a member waits until it is quiet, nothing that it
//! made or serves being under way, and brings how many calls it has made and served so far. When
//! two rounds in a row bring the same numbers, the world is quiet: a call on its way when the first
//! of them ended would have been made by a member after its report, and would show in its next. What
//! members tell each other about references are calls, too, so that is over as well. The numbers only
//! grow, so they are the same when their sum is: that is all that a round brings back.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::rref::ReferenceInfo;
use crate::world::World;

/// How long rank 0 waits for the next of the others to leave, so that none of them misses the last
/// round. Those who have its result leave at once; longer than this takes only who will not.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) fn gracefully(world: &World, deadline: Instant, limit: Duration) -> Result<()> {
    let incomplete = || Error::Incomplete {
        what: "the shutdown",
        limit,
        missing: vec![world.name().into()],
    };
    // Another thread of this worker may be at it: then there is nothing left to do afterwards.
    let _turn = world
        .worker()
        .shutting_down
        .try_lock_until(deadline)
        .ok_or_else(incomplete)?;
    if world.worker().is_closed() {
        return Ok(());
    }
    let result = match settle(world, deadline, limit) {
        Ok(leaks) => report(world, leaks),
        Err(error) => {
            warn_of(world, &leaks(world));
            Err(error)
        }
    };
    // Also after an error: the others are to learn its cause, not only that rank 0 has left.
    if world.rank() == 0 {
        see_off(world, deadline);
    }
    world.shutdown_now();
    result
}

/// Waits for the others to leave, for as long as they do.
fn see_off(world: &World, deadline: Instant) {
    let worker = world.worker();
    // They close their links when they have left the last round.
    let left = || worker.callers.lock().others_than(world.rank());
    let mut before = left();
    while before > 0 {
        let next = deadline.min(Instant::now() + FAREWELL);
        if !worker.activity.wait_until(next, || left() < before) {
            return;
        }
        before = left();
    }
}

/// Meets the others until all are quiet; what references still refer to then.
fn settle(world: &World, deadline: Instant, limit: Duration) -> Result<Vec<ReferenceInfo>> {
    let worker = world.worker();
    let mut before = None;
    loop {
        worker.references.flush(worker);
        let quiet = || {
            worker.calls_under_way() == 0
                && worker.activity.serving.load(SeqCst) == 0
                && worker.references.is_quiet()
        };
        if !worker.activity.wait_until(deadline, quiet) {
            return Err(Error::Incomplete {
                what: "the shutdown",
                limit,
                missing: vec![world.name().into()],
            });
        }
        let numbers = worker.activity.made.load(SeqCst) + worker.activity.served.load(SeqCst);
        // Before the others can leave, and with them what they held.
        let leaks = leaks(world);
        let left = deadline
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1));
        let world = world.with_timeout(left);
        let sum = world.sum(telegrad_trace::SHUTDOWN, "the shutdown", numbers)?;
        if before.replace(sum) == Some(sum) {
            return Ok(leaks);
        }
    }
}

/// The values here that references still refer to.
fn leaks(world: &World) -> Vec<ReferenceInfo> {
    let mut leaks = world.references();
    leaks.retain(|info| info.owner.rank == world.rank());
    leaks
}

/// Says what references still refer to, and who has them: values that nobody will ever free (S33).
fn report(world: &World, leaks: Vec<ReferenceInfo>) -> Result<()> {
    if world.worker().fail_on_leaks && !leaks.is_empty() {
        return Err(Error::Leaked(leaks));
    }
    warn_of(world, &leaks);
    Ok(())
}

fn warn_of(world: &World, leaks: &[ReferenceInfo]) {
    for leak in leaks {
        tracing::warn!(worker = world.name(), reference = %leak, "still referred to at the shutdown");
    }
}
