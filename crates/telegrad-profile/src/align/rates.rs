//! How much faster one clock runs than another.

use super::settle::Bounds;
use crate::worker_trace::Drift;

/// Clocks that differ by more than one in a thousand do not drift, but are broken: systems that set their clocks right do so by half
/// of that at most.
const MOST: i128 = Drift::PERIOD / 1000;

/// What the calls between two workers tell, by when it was on the first one's clock.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// By how much the second clock was ahead at most.
    pub(super) most: Vec<(i128, i128)>,
    /// By how much it was behind at most.
    pub(super) least: Vec<(i128, i128)>,
}

impl Reports {
    /// When the first clock showed `one`, the second did not yet show more than `other`.
    pub(super) fn not_after(&mut self, one: u64, other: u64) {
        let (one, other) = (i128::from(one), i128::from(other));
        self.most.push((one, other - one));
    }

    /// When the first clock showed `one`, the second showed `other` already.
    pub(super) fn not_before(&mut self, one: u64, other: u64) {
        let (one, other) = (i128::from(one), i128::from(other));
        self.least.push((one, one - other));
    }

    /// Leaves only those that count, whatever the rates are.
    ///
    /// At any rates, a report binds by a straight line in its time and its difference, so that none binds more than one of those on the
    /// hull of all.
    pub(super) fn reduce(&mut self) {
        self.most = lower_hull(std::mem::take(&mut self.most));
        self.least = lower_hull(std::mem::take(&mut self.least));
    }

    /// By how much faster the second may run: the logarithms of the rates, which add up from clock to clock, in units of
    /// [`Drift::PERIOD`]. Nothing where it cannot run steadily.
    ///
    /// A line is sought that is below all of one kind and above all of the other. For a rate, the room between them is
    /// the least of straight lines in it: it grows to a maximum and falls from there.
    pub(super) fn rates(&self) -> Option<Bounds> {
        // The times by the period, so that all of it is whole.
        let lowest = |hull: &[(i128, i128)], rate: i128| {
            let values = hull.iter().map(|(at, value)| value * Drift::PERIOD - rate * at);
            values.min().unwrap_or(i128::MAX / 4)
        };
        let room = |rate: i128| lowest(&self.most, rate) + lowest(&self.least, -rate);
        // Where it begins to fall.
        let best = first(-MOST, MOST, |rate| room(rate + 1) <= room(rate));
        if room(best) < 0 {
            return None;
        }
        let slowest = first(-MOST, best, |rate| room(rate) >= 0);
        let fastest = first(best, MOST, |rate| room(rate + 1) < 0);
        Some(Bounds {
            least: Some(logarithm(slowest)),
            most: Some(logarithm(fastest)),
        })
    }
}

/// The first of these numbers for which it is so, as it is for all after it; the last one, if for none.
fn first(mut from: i128, mut to: i128, is_so: impl Fn(i128) -> bool) -> i128 {
    while from < to {
        let middle = from + (to - from) / 2;
        if is_so(middle) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    from
}

fn logarithm(rate: i128) -> i128 {
    let period = Drift::PERIOD as f64;
    ((rate as f64 / period).ln_1p() * period).round() as i128
}

/// What a clock gains of its own time, by the logarithm of its rate.
pub(super) fn gain(logarithm: i128) -> i64 {
    let period = Drift::PERIOD as f64;
    // Conversions from floats take the nearest that there is.
    (-(-logarithm as f64 / period).exp_m1() * period).round() as i64
}

/// Of these points, those that a line which is below all of them can touch.
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
