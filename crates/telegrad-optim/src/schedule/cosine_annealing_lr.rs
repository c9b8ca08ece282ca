//! A learning rate that falls along a cosine.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use crate::Schedule;
use crate::check::Check;

/// Decreases the learning rate to `eta_min` along half a cosine wave, and increases it again after that.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CosineAnnealingLr {
    /// The step with the smallest learning rate.
    pub t_max: u64,
    /// The smallest learning rate.
    pub eta_min: f64,
}

impl CosineAnnealingLr {
    /// A schedule that decreases to 0.
    pub fn new(t_max: u64) -> Self {
        Self { t_max, eta_min: 0.0 }
    }
}

impl Schedule for CosineAnnealingLr {
    fn check(&self) -> Result<()> {
        let check = Check("cosine_annealing_lr");
        check.at_least_one("t_max", self.t_max)?;
        check.not_negative([("eta_min", self.eta_min)])?;
        Ok(())
    }

    fn lr(&self, base: f64, step: u64) -> f64 {
        // Reduced to one period, so that the cosine stays exact after many steps.
        let half = self.t_max.max(1);
        let within = step % half.saturating_mul(2);
        let wave = (PI * within as f64 / half as f64).cos();
        self.eta_min + (base - self.eta_min) * (1.0 + wave) / 2.0
    }
}
