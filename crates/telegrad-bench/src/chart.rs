//! The ratios of ours to theirs as a bar chart on a logarithmic scale.

use std::fmt::Write;

use crate::measurement::Measurement;
use crate::summary::{Row, Summary};
use crate::table::{number, plain};

/// One bar: its title, its metric, and the parameters that select the row.
type Headline = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

const HEADLINES: [Headline; 15] = [
    (
        "call, small tensors",
        "rpc_sync_latency",
        &[("call", "builtin_add_ones2")],
    ),
    (
        "64 calls outstanding",
        "rpc_async_throughput",
        &[("call", "builtin_add_ones2")],
    ),
    (
        "call while 256 MB tensors flow",
        "mixed_latency",
        &[("while", "256MB tensors flow")],
    ),
    ("1 MB tensor there and back", "tensor_echo", &[("size", "1MB")]),
    ("1 MB tensor one way", "tensor_sink", &[("size", "1MB")]),
    ("256 MB tensor one way", "tensor_sink", &[("size", "256MB")]),
    (
        "reference: make and fetch",
        "rref_remote_to_here_latency",
        &[("call", "builtin_add_ones2")],
    ),
    ("references made", "rref_create_confirmed_rate", &[]),
    ("gradient of a call", "dist_autograd_step", &[("size", "tiny")]),
    (
        "gradient of a call, 1 MB",
        "dist_autograd_step",
        &[("size", "1MB")],
    ),
    (
        "split learning, 2 processes",
        "split_learning",
        &[("processes", "2")],
    ),
    (
        "parameter server, 8 clients",
        "parameter_server",
        &[("clients", "8"), ("mode", "push_pull_one_call")],
    ),
    (
        "fan-out to 8 workers",
        "fanout",
        &[("call", "builtin_add"), ("size", "tiny")],
    ),
    ("start of 8 workers", "init_rpc", &[("world", "8")]),
    ("memory per process", "memory_per_process", &[("world", "8")]),
];

const WIDTH: f64 = 900.0;
/// The horizontal range of the bars.
const LEFT: f64 = 235.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 64.0;
const STEP: f64 = 26.0;
const BAR: f64 = 16.0;

/// Colours follow the reader's colour scheme. The chart has a background of its own, so it is legible on any page.
const STYLE: &str = "\
text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\
.background{fill:#fff}.title{font-size:16px;font-weight:600}.faint{fill:#59636e;font-size:11.5px}\
.grid{stroke:#d1d9e0}.one{stroke:#59636e;stroke-width:1.5}.better{fill:#2a78b5}.worse{fill:#c4581a}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.background{fill:#0d1117}.faint{fill:#9198a1}\
.grid{stroke:#30363d}.one{stroke:#9198a1}.better{fill:#4a9ad4}.worse{fill:#e0773a}}";

/// Draws the chart as SVG.
pub(crate) fn svg(summary: &Summary, against: &str) -> String {
    let bars: Vec<_> = HEADLINES
        .iter()
        .filter_map(|headline| bar_of(headline, summary))
        .collect();
    let ratios = || bars.iter().map(|bar| bar.ratio);
    let scale = Scale::new(ratios().fold(1.0, f64::min), ratios().fold(10.0, f64::max));
    let bottom = TOP + STEP * bars.len() as f64;
    let height = bottom + 34.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n\
         <style>{STYLE}</style>\n\
         <rect class=\"background\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n"
    );
    let mut put = |part: String| svg.push_str(&part);
    put(text(
        "title",
        16.0,
        28.0,
        "start",
        &format!("Times better than {against}"),
    ));
    put(text(
        "faint",
        16.0,
        47.0,
        "start",
        "logarithmic; best of each, measured in turns in one run; in brackets: ours, theirs",
    ));
    for mark in scale.marks() {
        let x = scale.x(mark);
        let class = if mark == 1.0 { "one" } else { "grid" };
        put(format!(
            "<line class=\"{class}\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>\n"
        ));
        put(text("faint", x, bottom + 18.0, "middle", &format!("{mark}×")));
    }
    for (index, bar) in bars.iter().enumerate() {
        let y = TOP + STEP * index as f64 + (STEP - BAR) / 2.0;
        let (from, to) = (scale.x(bar.ratio.min(1.0)), scale.x(bar.ratio.max(1.0)));
        let class = if bar.ratio < 1.0 { "worse" } else { "better" };
        let width = (to - from).max(1.0);
        put(format!(
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\"/>\n"
        ));
        put(text("", LEFT - 10.0, y + 12.5, "end", bar.name));
        put(text("", to + 8.0, y + 12.5, "start", &bar.label));
    }
    svg + "</svg>\n"
}

struct Bar {
    name: &'static str,
    ratio: f64,
    label: String,
}

fn bar_of((name, metric, params): &Headline, summary: &Summary) -> Option<Bar> {
    let is_selected = |row: &&Row| row.any().is_some_and(|any| matches(any, metric, params));
    let row = summary.rows.iter().find(is_selected)?;
    let (ours, theirs) = (row.ours.as_ref()?, row.theirs.as_ref()?);
    let ratio = row.times_better()?;
    let label = format!(
        "{}×  ({}, {} {})",
        number(ratio),
        number(ours.value),
        number(theirs.value),
        ours.unit.replace("us", "µs")
    );
    Some(Bar { name, ratio, label })
}

fn matches(measurement: &Measurement, metric: &str, params: &[(&str, &str)]) -> bool {
    let is = |(key, value): &(&str, &str)| measurement.params.get(*key).map(plain).as_deref() == Some(*value);
    measurement.metric == metric && params.iter().all(is)
}

/// A logarithmic axis between two powers of ten.
struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    fn new(least: f64, most: f64) -> Self {
        Self {
            low: least.log10().floor() as i32,
            high: most.log10().ceil() as i32,
        }
    }

    fn x(&self, ratio: f64) -> f64 {
        let span = f64::from(self.high - self.low);
        LEFT + (RIGHT - LEFT) * (ratio.log10() - f64::from(self.low)) / span
    }

    fn marks(&self) -> impl Iterator<Item = f64> {
        (self.low..=self.high).map(|power| 10_f64.powi(power))
    }
}

fn text(class: &str, x: f64, y: f64, anchor: &str, content: &str) -> String {
    let content = content
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let mut line = String::new();
    // Writing to a string does not fail.
    let _ = write!(line, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"");
    if !class.is_empty() {
        let _ = write!(line, " class=\"{class}\"");
    }
    line + ">" + &content + "</text>\n"
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn measurement(metric: &str, params: Value, unit: &str, value: f64) -> Measurement {
        let line = json!({ "metric": metric, "params": params, "unit": unit, "value": value });
        Measurement::from_line(&line).unwrap()
    }

    fn chart() -> String {
        let call = json!({ "call": "builtin_add_ones2" });
        let split = json!({ "processes": 2, "batch": 64 });
        let ours = [
            measurement("rpc_sync_latency", call.clone(), "us", 20.0),
            measurement("split_learning", split.clone(), "steps/s", 500.0),
        ];
        let theirs = [
            measurement("rpc_sync_latency", call, "us", 800.0),
            measurement("split_learning", split, "steps/s", 1000.0),
        ];
        svg(&Summary::new(&ours, &theirs), "torch.distributed.rpc 1 <&>")
    }

    #[test]
    fn the_chart_shows_ratios_and_values() {
        let chart = chart();
        for part in [
            "40.0×  (20.0, 800.0 µs)",
            "0.50×  (500.0, 1000 steps/s)",
            "1 &lt;&amp;&gt;",
        ] {
            assert!(chart.contains(part), "no `{part}` in\n{chart}");
        }
        let bars = |class: &str| chart.matches(&format!("<rect class=\"{class}\"")).count();
        assert_eq!((bars("better"), bars("worse")), (1, 1));
    }

    /// Tags are nested, and text is escaped.
    #[test]
    fn the_chart_is_valid_xml() {
        let chart = chart();
        let mut open = Vec::new();
        let mut rest = chart.as_str();
        while let Some(start) = rest.find('<') {
            assert!(
                !rest[..start].contains('>'),
                "an unescaped > in {}",
                &rest[..start]
            );
            let end = start + rest[start..].find('>').expect("a tag ends");
            let tag = &rest[start + 1..end];
            assert_eq!(tag.matches('"').count() % 2, 0, "quotes in <{tag}>");
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None if tag.ends_with('/') => {}
                None => open.push(tag.split(' ').next().unwrap()),
            }
            rest = &rest[end + 1..];
        }
        assert_eq!((open.len(), rest.trim()), (0, ""));
        for entity in chart.split('&').skip(1) {
            assert!(
                ["amp;", "lt;", "gt;"]
                    .iter()
                    .any(|known| entity.starts_with(known))
            );
        }
    }

    #[test]
    fn bars_begin_at_one_and_powers_of_ten_are_marked() {
        let scale = Scale::new(0.5, 40.0);
        assert_eq!(scale.marks().collect::<Vec<_>>(), [0.1, 1.0, 10.0, 100.0]);
        assert!((scale.x(0.1) - LEFT).abs() < 1e-9 && (scale.x(100.0) - RIGHT).abs() < 1e-9);
    }
}
