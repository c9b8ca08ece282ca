//! A learning rate that falls in stairs.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use crate::Schedule;
use crate::check::Check;

/// Multiplies the learning rate with `gamma` every `step_size` steps.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepLr {
    /// How many steps a stair is long.
    pub step_size: u64,
    /// What the learning rate is multiplied with from one stair to the next.
    pub gamma: f64,
}

impl StepLr {
    /// With a `gamma` of 0.1.
    pub fn new(step_size: u64) -> Self {
        Self {
            step_size,
            gamma: 0.1,
        }
    }
}

impl Schedule for StepLr {
    fn check(&self) -> Result<()> {
        let check = Check("step_lr");
        let size = self.step_size;
        check.holds(size > 0, "step_size", size as f64, "must be at least 1")?;
        check.not_negative("gamma", self.gamma)?;
        Ok(())
    }

    fn lr(&self, base: f64, step: u64) -> f64 {
        let stair = step / self.step_size.max(1);
        base * self.gamma.powf(stair as f64)
    }
}
