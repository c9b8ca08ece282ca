//! How costs grow: with workers, bytes, references and contexts.
//!
//! Each value is a record of its own. What they make together is the exponent of growth between the smallest and the
//! largest case: 0 is no growth at all, 1 is in step with what grows.

mod contexts;
mod payload;
mod references;
mod workers;

use serde_json::{Value, json};

use super::Link;
use super::record::{Recorder, round};
use crate::Error;
use crate::peer::Workers;
use workers::Worlds;

pub(super) fn growth(recorder: &mut Recorder, link: Link, quick: bool, max_mb: usize) -> Result<(), Error> {
    let (processes, threads): (&[u32], &[u32]) = if quick {
        (&[2, 4, 8], &[2, 20])
    } else {
        (&[2, 4, 8, 16, 32, 64], &[2, 10, 100, 1000])
    };
    let names = ["w0", "w1"].map(str::to_owned);
    let two = Workers::start(link.transport(), &names)?;
    payload::growth(&two, recorder, quick, max_mb)?;
    references::growth(&two, recorder, quick)?;
    contexts::growth(&two, recorder, quick)?;
    two.end()?;
    if link != Link::Mem {
        Worlds { link, quick }.growth(recorder, processes)?;
    }
    // The hardest comes last.
    let link = Link::Mem;
    Worlds { link, quick }.growth(recorder, threads)
}

/// Values of several things at growing sizes.
struct Curves {
    /// What grows, as a parameter.
    over: &'static str,
    curves: Vec<Curve>,
}

struct Curve {
    metric: &'static str,
    params: Value,
    /// Sizes and costs.
    points: Vec<(f64, f64)>,
}

impl Curves {
    fn new(over: &'static str) -> Self {
        let curves = Vec::new();
        Self { over, curves }
    }

    /// A value at a size. Sizes come in ascending order.
    fn add(
        &mut self,
        recorder: &mut Recorder,
        size: usize,
        metric: &'static str,
        params: Value,
        (value, unit): (f64, &str),
    ) {
        let mut all = params.clone();
        all[self.over] = size.into();
        recorder.value(metric, all, unit, round(value, 1e4), json!({}));
        // Of what is better the more there is, the cost is how long each takes.
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

    /// How each of them grows.
    fn end(self, recorder: &mut Recorder) {
        for Curve {
            metric,
            mut params,
            points,
        } in self.curves
        {
            params["of"] = metric.into();
            params["over"] = self.over.into();
            // What is small at the beginning is often something else: where it leads shows between the last two.
            let last_two = points.get(points.len().saturating_sub(2)..).unwrap_or_default();
            for (metric, points) in [
                ("growth_exponent", &points[..]),
                ("growth_exponent_at_end", last_two),
            ] {
                if let (Some(exponent), [from, .., to]) = (exponent(points), points) {
                    let more = json!({ "from": from.0, "to": to.0 });
                    recorder.value(metric, params.clone(), "exponent", round(exponent, 100.0), more);
                }
            }
        }
    }
}

/// The slope between the ends on logarithmic scales; nothing if something costs nothing.
fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let ((x0, y0), (x1, y1)) = (points.first()?, points.last()?);
    let there = *x0 > 0.0 && x1 > x0 && *y0 > 0.0 && *y1 > 0.0;
    there.then(|| (y1 / y0).ln() / (x1 / x0).ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponent_tells_constant_from_linear_from_quadratic() {
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
    fn rates_grow_as_the_time_of_each_does() {
        let mut recorder = Recorder::new("auto", false);
        let mut curves = Curves::new("workers");
        for (size, rate) in [(1, 1000.0), (10, 1000.0), (100, 10.0)] {
            curves.add(
                &mut recorder,
                size,
                "rate",
                json!({ "in": "memory" }),
                (rate, "calls/s"),
            );
        }
        curves.end(&mut recorder);
        let [.., all, last] = recorder.ours() else {
            panic!("{:?}", recorder.ours());
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
