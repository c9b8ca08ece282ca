//! A learning rate that changes linearly.

use serde::{Deserialize, Serialize};
use telegrad_rpc::Result;
use telegrad_wire::Wire;

use crate::Schedule;
use crate::check::Check;

/// Changes the learning rate linearly from one fraction to another, where it stays.
#[derive(Debug, Clone, PartialEq, Wire, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinearLr {
    /// The fraction of the learning rate in the first step; more than 0 and at most 1.
    pub start_factor: f64,
    /// The fraction of the learning rate at the end; from 0 to 1.
    pub end_factor: f64,
    /// The first step with the final learning rate.
    pub total_iters: u64,
}

impl Default for LinearLr {
    fn default() -> Self {
        Self {
            start_factor: 1.0 / 3.0,
            end_factor: 1.0,
            total_iters: 5,
        }
    }
}

impl Schedule for LinearLr {
    fn check(&self) -> Result<()> {
        let check = Check("linear_lr");
        let start = self.start_factor;
        check.holds(
            start > 0.0 && start <= 1.0,
            "start_factor",
            start,
            "must be more than 0 and at most 1",
        )?;
        check.fraction("end_factor", self.end_factor)?;
        check.at_least_one("total_iters", self.total_iters)?;
        Ok(())
    }

    fn lr(&self, base: f64, step: u64) -> f64 {
        let total = self.total_iters.max(1);
        let done = step.min(total) as f64 / total as f64;
        base * (self.start_factor + (self.end_factor - self.start_factor) * done)
    }
}
