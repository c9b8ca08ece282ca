//! A learning rate that grows and falls once.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use crate::Schedule;
use crate::check::Check;

/// Lets the learning rate grow to `max_lr` and then fall far below where it came from, in a given number
/// of steps. After those it stays at the smallest. What the optimiser was made with does not matter.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneCycleLr {
    /// The largest learning rate.
    pub max_lr: f64,
    /// How many steps there are.
    pub total_steps: u64,
    /// What part of the steps the learning rate grows in.
    pub pct_start: f64,
    /// The shape of the way up and down.
    pub anneal: Anneal,
    /// The first learning rate is the largest divided by this.
    pub div_factor: f64,
    /// The last learning rate is the first divided by this.
    pub final_div_factor: f64,
    /// Falls to the first learning rate as fast as it grew, and only then to the last.
    pub three_phase: bool,
}

/// The shape of a way from one learning rate to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Anneal {
    /// Half a wave of the cosine.
    Cos,
    /// A straight line.
    Linear,
}

impl OneCycleLr {
    /// Grows along a cosine from a 25th in the first 30% of the steps, and falls to a 10,000th of that.
    pub fn new(max_lr: f64, total_steps: u64) -> Self {
        Self {
            max_lr,
            total_steps,
            pct_start: 0.3,
            anneal: Anneal::Cos,
            div_factor: 25.0,
            final_div_factor: 1e4,
            three_phase: false,
        }
    }
}

impl Schedule for OneCycleLr {
    fn check(&self) -> Result<()> {
        let check = Check("one_cycle_lr");
        check.not_negative("max_lr", self.max_lr)?;
        let total = self.total_steps;
        check.holds(total > 0, "total_steps", total as f64, "must be at least 1")?;
        let start = self.pct_start;
        check.holds(
            (0.0..=1.0).contains(&start),
            "pct_start",
            start,
            "must be from 0 to 1",
        )?;
        let must = "must be finite and more than 0";
        for (option, value) in [
            ("div_factor", self.div_factor),
            ("final_div_factor", self.final_div_factor),
        ] {
            check.holds(value > 0.0 && value.is_finite(), option, value, must)?;
        }
        Ok(())
    }

    fn lr(&self, _base: f64, step: u64) -> f64 {
        let first = self.max_lr / self.div_factor;
        let last = first / self.final_div_factor;
        // The step before which every phase ends, and the learning rate that it ends with.
        let total = self.total_steps as f64;
        let top = self.pct_start * total - 1.0;
        let end = total - 1.0;
        let phases = if self.three_phase {
            vec![(top, self.max_lr), (2.0 * top, first), (end, last)]
        } else {
            vec![(top, self.max_lr), (end, last)]
        };
        let step = (step as f64).min(end);
        let (mut start, mut from) = (0.0, first);
        for (end, to) in phases {
            if step <= end {
                // A phase without length is over at once.
                let done = if end > start {
                    (step - start) / (end - start)
                } else {
                    1.0
                };
                return self.anneal.between(from, to, done);
            }
            (start, from) = (end, to);
        }
        last
    }
}

impl Anneal {
    /// Where one is after a part of the way.
    fn between(self, from: f64, to: f64, done: f64) -> f64 {
        match self {
            Self::Cos => to + (from - to) / 2.0 * ((PI * done).cos() + 1.0),
            Self::Linear => (to - from) * done + from,
        }
    }
}
