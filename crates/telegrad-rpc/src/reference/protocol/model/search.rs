//! Exhaustive search of the states of a small world.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use super::oracle::Violation;
use super::world::{Limits, Step, World};

/// Beyond this number of states, far above that of any search here, the search counts as endless.
const MAX_STATES: usize = 20_000_000;

/// A search from the initial state of a world.
pub(super) struct Search {
    pub(super) workers: usize,
    /// The values that may be created.
    pub(super) creations: &'static [Step],
    pub(super) limits: Limits,
    /// Restricts the steps where all of them give too many states.
    pub(super) allow: fn(&World, Step) -> bool,
}

impl Search {
    /// Visits every state breadth-first; returns their number. Panics on the first violation, with a shortest sequence of
    /// steps to it.
    pub(super) fn run(&self) -> usize {
        let first = World::new(self.workers, self.limits.clone());
        let mut seen = FxHashSet::from_iter([first.fingerprint()]);
        // For each state, the one before it and the step between.
        let mut before = vec![(0, Step::Crash(0))];
        let mut next = VecDeque::from([(0, first)]);
        while let Some((at, world)) = next.pop_front() {
            let mut steps = Vec::new();
            world.progress(&mut steps);
            if steps.is_empty()
                && let Err(wrong) = world.check_idle()
            {
                self.fail(&before, at, None, &wrong);
            }
            world.actions(self.creations, &mut steps);
            world.faults(&mut steps);
            for step in steps.into_iter().filter(|step| (self.allow)(&world, *step)) {
                let mut world = world.clone();
                if let Err(wrong) = world.step_and_check(step) {
                    self.fail(&before, at, Some(step), &wrong);
                }
                if seen.insert(world.fingerprint()) {
                    next.push_back((before.len(), world));
                    before.push((at, step));
                }
            }
            assert!(seen.len() < MAX_STATES, "the search does not end");
        }
        seen.len()
    }

    fn fail(&self, before: &[(usize, Step)], mut at: usize, last: Option<Step>, wrong: &Violation) -> ! {
        let mut steps = Vec::from_iter(last);
        while at > 0 {
            let (earlier, step) = before[at];
            steps.push(step);
            at = earlier;
        }
        let mut world = World::new(self.workers, self.limits.clone());
        world.log = Some(Vec::new());
        for step in steps.into_iter().rev() {
            // The last step is the one that fails.
            let _ = world.step_and_check(step);
        }
        let log = world.log.unwrap_or_default().join("\n");
        panic!("{wrong}\n{log}");
    }
}
