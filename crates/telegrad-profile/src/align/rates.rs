//! Relative rates of two clocks.

use super::solve::Bounds;
use crate::drift::Drift;

/// The largest rate of a working clock, one in a thousand: systems adjust their clocks at half of that at most.
const MAX_RATE: i128 = Drift::PERIOD / 1000;

/// Bounds on the offset of a second clock, by the time on a first one.
#[derive(Debug, Default)]
pub(super) struct PairTimes {
    /// Upper bounds on the lead of the second clock.
    pub(super) upper: Vec<(i128, i128)>,
    /// Upper bounds on its lag.
    pub(super) lower: Vec<(i128, i128)>,
}

impl PairTimes {
    /// Adds that the second clock showed at most `other` when the first showed `one`.
    pub(super) fn add_upper(&mut self, one: u64, other: u64) {
        let (one, other) = (i128::from(one), i128::from(other));
        self.upper.push((one, other - one));
    }

    /// Adds that the second clock showed at least `other` when the first showed `one`.
    pub(super) fn add_lower(&mut self, one: u64, other: u64) {
        let (one, other) = (i128::from(one), i128::from(other));
        self.lower.push((one, one - other));
    }

    /// Removes bounds that matter at no rates.
    ///
    /// At any given rates, a bound is a linear function of its time and offset, so that the tightest one lies on the convex hull.
    pub(super) fn reduce(&mut self) {
        self.upper = lower_hull(std::mem::take(&mut self.upper));
        self.lower = lower_hull(std::mem::take(&mut self.lower));
    }

    /// Returns bounds on the logarithm of the relative rate, in units of [`Drift::PERIOD`]; `None` if no constant rate fits.
    ///
    /// A rate fits if a line of that slope lies between the upper and the lower bounds. The gap between them is a concave
    /// function of the slope, a minimum of linear ones: it rises to a maximum and falls from there.
    pub(super) fn rates(&self) -> Option<Bounds> {
        // Scaled by the period, to stay in integers.
        let lowest = |hull: &[(i128, i128)], rate: i128| {
            let values = hull.iter().map(|(at, value)| value * Drift::PERIOD - rate * at);
            values.min().unwrap_or(i128::MAX / 4)
        };
        let gap = |rate: i128| lowest(&self.upper, rate) + lowest(&self.lower, -rate);
        // The maximum.
        let best = first(-MAX_RATE, MAX_RATE, |rate| gap(rate + 1) <= gap(rate));
        if gap(best) < 0 {
            return None;
        }
        let slowest = first(-MAX_RATE, best, |rate| gap(rate) >= 0);
        let fastest = first(best, MAX_RATE, |rate| gap(rate + 1) < 0);
        Some(Bounds {
            least: Some(log_of_rate(slowest)),
            most: Some(log_of_rate(fastest)),
        })
    }
}

/// Returns the first number from which on the predicate holds, by bisection; `to` if there is none.
fn first(mut from: i128, mut to: i128, holds: impl Fn(i128) -> bool) -> i128 {
    while from < to {
        let middle = from + (to - from) / 2;
        if holds(middle) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    from
}

/// Converts a rate to its logarithm.
fn log_of_rate(rate: i128) -> i128 {
    let period = Drift::PERIOD as f64;
    ((rate as f64 / period).ln_1p() * period).round() as i128
}

/// Converts a logarithm to the rate that a clock gains of its own time.
pub(super) fn rate_of_log(logarithm: i128) -> i64 {
    let period = Drift::PERIOD as f64;
    // Conversions from floats saturate.
    (-(-logarithm as f64 / period).exp_m1() * period).round() as i64
}

/// Returns the lower convex hull of some points.
fn lower_hull(mut points: Vec<(i128, i128)>) -> Vec<(i128, i128)> {
    points.sort_unstable();
    let mut hull: Vec<(i128, i128)> = Vec::new();
    for point in points {
        while let [.., a, b] = &hull[..]
            && (b.0 - a.0) * (point.1 - a.1) <= (b.1 - a.1) * (point.0 - a.0)
        {
            hull.pop();
        }
        hull.push(point);
    }
    hull
}
