//! Conditions on options.

use crate::OptimError;

/// Checks the options of one algorithm or schedule.
#[derive(Clone, Copy)]
pub(crate) struct Check(pub(crate) &'static str);

impl Check {
    pub(crate) fn not_negative(self, option: &'static str, value: f64) -> Result<(), OptimError> {
        let holds = value.is_finite() && value >= 0.0;
        self.holds(holds, option, value, "must be finite and not negative")
    }

    pub(crate) fn finite(self, option: &'static str, value: f64) -> Result<(), OptimError> {
        self.holds(value.is_finite(), option, value, "must be finite")
    }

    pub(crate) fn betas(self, betas: (f64, f64)) -> Result<(), OptimError> {
        let must = "must be at least 0 and less than 1";
        self.holds((0.0..1.0).contains(&betas.0), "betas.0", betas.0, must)?;
        self.holds((0.0..1.0).contains(&betas.1), "betas.1", betas.1, must)
    }

    /// Of a single option: `must` says what `holds` means.
    pub(crate) fn holds(
        self,
        holds: bool,
        option: &'static str,
        value: f64,
        must: &'static str,
    ) -> Result<(), OptimError> {
        let error = OptimError::Option {
            of: self.0,
            option,
            value,
            must,
        };
        if holds { Ok(()) } else { Err(error) }
    }

    /// Of several options: `why` is what is wrong otherwise.
    pub(crate) fn fit(self, fit: bool, why: &'static str) -> Result<(), OptimError> {
        let error = OptimError::Options { of: self.0, why };
        if fit { Ok(()) } else { Err(error) }
    }
}
