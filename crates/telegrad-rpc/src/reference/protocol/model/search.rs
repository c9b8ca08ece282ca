//! Every state that a small world can get into.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use super::truth::Wrong;
use super::world::{Limits, Step, World};

/// More than any search here is meant to find: something goes on for ever.
const TOO_MANY: usize = 20_000_000;

pub(super) struct Search {
    pub(super) workers: usize,
    /// The values that may be asked for.
    pub(super) creations: &'static [Step],
    pub(super) limits: Limits,
    /// Which gifts and crashes may happen, where it would lead too far to allow all of them.
    pub(super) only: fn(&World, Step) -> bool,
}

impl Search {
    /// Visits every state, nearest first, and returns how many there are. Panics on the first in which
    /// something is wrong, with the steps that lead there: there is no shorter way.
    pub(super) fn run(&self) -> usize {
        let first = World::new(self.workers, self.limits.clone());
        let mut seen = FxHashSet::from_iter([first.print()]);
        // For each state, the one before it and the step between.
        let mut before = vec![(0, Step::Crash(0))];
        let mut next = VecDeque::from([(0, first)]);
        while let Some((at, world)) = next.pop_front() {
            let mut steps = Vec::new();
            world.progress(&mut steps);
            if steps.is_empty()
                && let Err(wrong) = world.check_settled()
            {
                self.fail(&before, at, None, &wrong);
            }
            world.deeds(self.creations, &mut steps);
            world.faults(&mut steps);
            for step in steps.into_iter().filter(|step| (self.only)(&world, *step)) {
                let mut world = world.clone();
                if let Err(wrong) = world.try_step(step) {
                    self.fail(&before, at, Some(step), &wrong);
                }
                if seen.insert(world.print()) {
                    next.push_back((before.len(), world));
                    before.push((at, step));
                }
            }
            assert!(seen.len() < TOO_MANY, "the search does not come to an end");
        }
        seen.len()
    }

    fn fail(&self, before: &[(usize, Step)], mut at: usize, last: Option<Step>, wrong: &Wrong) -> ! {
        let mut steps = Vec::from_iter(last);
        while at > 0 {
            let (earlier, step) = before[at];
            steps.push(step);
            at = earlier;
        }
        let mut world = World::new(self.workers, self.limits.clone());
        world.story = Some(Vec::new());
        for step in steps.into_iter().rev() {
            // The last one is the one that fails.
            let _ = world.try_step(step);
        }
        let story = world.story.unwrap_or_default().join("\n");
        panic!("{wrong}\n{story}");
    }
}
