//! Observation of calls: recordings, counters and latencies.

pub(crate) mod recording;
mod activity;
mod latency;

pub(crate) use activity::Activity;
pub(crate) use latency::Histogram;
pub use latency::Latency;
