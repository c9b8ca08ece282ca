//! Validation of options.

use crate::OptimError;

/// Validates the options of the algorithm or schedule of this name.
#[derive(Clone, Copy)]
pub(crate) struct Check(pub(crate) &'static str);

impl Check {
    pub(crate) fn not_negative(
        self,
        options: impl IntoIterator<Item = (&'static str, f64)>,
    ) -> Result<(), OptimError> {
        options.into_iter().try_for_each(|(option, value)| {
            let holds = value.is_finite() && value >= 0.0;
            self.holds(holds, option, value, "must be finite and not negative")
        })
    }

    pub(crate) fn fraction(self, option: &'static str, value: f64) -> Result<(), OptimError> {
        self.holds((0.0..=1.0).contains(&value), option, value, "must be from 0 to 1")
    }

    pub(crate) fn at_least_one(self, option: &'static str, count: u64) -> Result<(), OptimError> {
        self.holds(count > 0, option, count as f64, "must be at least 1")
    }

    pub(crate) fn finite(self, option: &'static str, value: f64) -> Result<(), OptimError> {
        self.holds(value.is_finite(), option, value, "must be finite")
    }

    pub(crate) fn betas(self, betas: (f64, f64)) -> Result<(), OptimError> {
        let must = "must be at least 0 and less than 1";
        self.holds((0.0..1.0).contains(&betas.0), "betas.0", betas.0, must)?;
        self.holds((0.0..1.0).contains(&betas.1), "betas.1", betas.1, must)
    }

    /// Fails unless `holds`; `must` is that condition in words.
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

    /// Fails unless several options fit together; `why` says how they do not.
    pub(crate) fn fit(self, fit: bool, why: &'static str) -> Result<(), OptimError> {
        let error = OptimError::Options { of: self.0, why };
        if fit { Ok(()) } else { Err(error) }
    }
}
