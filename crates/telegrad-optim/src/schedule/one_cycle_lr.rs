//! A learning rate that increases and decreases once.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use crate::Schedule;
use crate::check::Check;

/// Increases the learning rate to `max_lr` and then decreases it far below its start, in a given number of steps. After
/// those it stays at the minimum. The schedule ignores the optimiser's own learning rate.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneCycleLr {
    /// The largest learning rate.
    pub max_lr: f64,
    /// The number of steps.
    pub total_steps: u64,
    /// The fraction of the steps in which the learning rate increases.
    pub pct_start: f64,
    /// The shape of both changes.
    pub anneal: Anneal,
    /// The first learning rate is the largest divided by this.
    pub div_factor: f64,
    /// The last learning rate is the first divided by this.
    pub final_div_factor: f64,
    /// Decreases to the first learning rate as fast as it increased, and only then to the last.
    pub three_phase: bool,
}

/// The shape of a change from one learning rate to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Wire, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Anneal {
    /// Half a cosine wave.
    Cos,
    /// Linear.
    Linear,
}

impl OneCycleLr {
    /// A schedule with torch's defaults: from a 25th up in the first 30% of the steps, then down to a 10,000th of that.
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
        check.not_negative([("max_lr", self.max_lr)])?;
        check.at_least_one("total_steps", self.total_steps)?;
        check.fraction("pct_start", self.pct_start)?;
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
        // The last step of each phase, and its learning rate.
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
                // An empty phase ends at once.
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
    /// Interpolates between two learning rates.
    fn between(self, from: f64, to: f64, done: f64) -> f64 {
        match self {
            Self::Cos => to + (from - to) / 2.0 * ((PI * done).cos() + 1.0),
            Self::Linear => (to - from) * done + from,
        }
    }
}
