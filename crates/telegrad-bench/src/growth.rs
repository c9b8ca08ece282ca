//! Growth of costs with the number of workers, bytes, references and contexts.
//!
//! Each cost is a measurement of its own. The growth exponent is its slope between the smallest and the largest case on
//! logarithmic scales: 0 is constant, 1 is linear.

mod contexts;
mod payload;
mod references;
mod workers;

use serde_json::{Value, json};
use telegrad_cli::{Link, Workers};

use crate::Error;
use crate::measurement::{Measurements, round};
use workers::Worlds;

pub(crate) fn growth(
    measurements: &mut Measurements,
    link: Link,
    quick: bool,
    max_mb: usize,
) -> Result<(), Error> {
    let (processes, threads): (&[u32], &[u32]) = if quick {
        (&[2, 4, 8], &[2, 20])
    } else {
        (&[2, 4, 8, 16, 32, 64], &[2, 10, 100, 1000])
    };
    let names = ["w0", "w1"].map(str::to_owned);
    let two = Workers::start(link, &names)?;
    payload::growth(&two, measurements, quick, max_mb)?;
    references::growth(&two, measurements, quick)?;
    contexts::growth(&two, measurements, quick)?;
    two.end()?;
    if link != Link::Mem {
        Worlds { link, quick }.growth(measurements, processes)?;
    }
    // The most demanding case comes last.
    let link = Link::Mem;
    Worlds { link, quick }.growth(measurements, threads)
}

/// Costs at growing sizes, one curve per metric and parameters.
struct Curves {
    /// Name of the parameter that grows.
    over: &'static str,
    curves: Vec<Curve>,
}

struct Curve {
    metric: &'static str,
    params: Value,
    /// Pairs of size and cost.
    points: Vec<(f64, f64)>,
}

impl Curves {
    fn new(over: &'static str) -> Self {
        let curves = Vec::new();
        Self { over, curves }
    }

    /// Adds a value at a size. Sizes must ascend.
    fn add(
        &mut self,
        measurements: &mut Measurements,
        size: usize,
        metric: &'static str,
        params: Value,
        (value, unit): (f64, &str),
    ) {
        let mut all = params.clone();
        all[self.over] = size.into();
        measurements.value(metric, all, unit, round(value, 1e4), json!({}));
        // The cost behind a rate is the time of each call.
        let cost = if unit == "calls/s" { 1.0 / value } else { value };
        let point = (size as f64, cost);
        let same = |curve: &&mut Curve| curve.metric == metric && curve.params == params;
        match self.curves.iter_mut().find(same) {
            Some(curve) => curve.points.push(point),
            None => self.curves.push(Curve {
                metric,
                params,
                points: vec![point],
            }),
        }
    }

    /// Adds the growth exponents of all curves.
    fn end(self, measurements: &mut Measurements) {
        for Curve {
            metric,
            mut params,
            points,
        } in self.curves
        {
            params["of"] = metric.into();
            params["over"] = self.over.into();
            // Fixed costs dominate small sizes; the slope between the last two sizes shows the trend.
            let last_two = points.get(points.len().saturating_sub(2)..).unwrap_or_default();
            for (metric, points) in [
                ("growth_exponent", &points[..]),
                ("growth_exponent_at_end", last_two),
            ] {
                if let (Some(exponent), [from, .., to]) = (exponent(points), points) {
                    let more = json!({ "from": from.0, "to": to.0 });
                    measurements.value(metric, params.clone(), "exponent", round(exponent, 100.0), more);
                }
            }
        }
    }
}

/// The slope between the first and last point on logarithmic scales; `None` if a cost is 0.
fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let ((x0, y0), (x1, y1)) = (points.first()?, points.last()?);
    let positive = *x0 > 0.0 && x1 > x0 && *y0 > 0.0 && *y1 > 0.0;
    positive.then(|| (y1 / y0).ln() / (x1 / x0).ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponent_distinguishes_constant_linear_and_quadratic_growth() {
        let of = |cost: fn(f64) -> f64| {
            let points = [1.0, 10.0, 1000.0].map(|size| (size, cost(size)));
            exponent(&points).map(|exponent| round(exponent, 1e6))
        };
        assert_eq!(of(|_| 7.0), Some(0.0));
        assert_eq!(of(|size| 3.0 * size), Some(1.0));
        assert_eq!(of(|size| size * size), Some(2.0));
        assert_eq!(of(|_| 0.0), None);
        assert_eq!(exponent(&[(1.0, 1.0)]), None);
        assert_eq!(exponent(&[]), None);
    }

    #[test]
    fn the_exponent_of_a_rate_is_that_of_the_time_per_call() {
        let mut measurements = Measurements::new("auto", false);
        let mut curves = Curves::new("workers");
        for (size, rate) in [(1, 1000.0), (10, 1000.0), (100, 10.0)] {
            curves.add(
                &mut measurements,
                size,
                "rate",
                json!({ "in": "memory" }),
                (rate, "calls/s"),
            );
        }
        curves.end(&mut measurements);
        let [.., all, last] = measurements.ours() else {
            panic!("{:?}", measurements.ours());
        };
        assert_eq!((all.metric.as_str(), all.value), ("growth_exponent", 1.0));
        assert_eq!(
            (last.metric.as_str(), last.value),
            ("growth_exponent_at_end", 2.0)
        );
        assert_eq!(
            Value::from(last.params.clone()),
            json!({ "in": "memory", "of": "rate", "over": "workers" })
        );
    }
}
