//! Calls between workers as traces of OpenTelemetry.
//!
//! This is a crate of its own because most worlds have no collector, and OpenTelemetry brings a lot with it.
//!
//! Workers show what they do to subscribers of `tracing` ([`telegrad_trace::TARGET`]), and
//! [`tracing_opentelemetry`] hands what it sees to any exporter. What is missing then is the way from one process
//! to another: [`propagate`] has every call carry the number of its span, so that what is done for it on another worker
//! is part of the same trace, under the call.
//!
//! In the `main` of every worker, before or after it joins its world:
//!
//! ```
//! use opentelemetry::trace::TracerProvider as _;
//! use opentelemetry_sdk::trace::SdkTracerProvider;
//! use tracing_subscriber::layer::SubscriberExt as _;
//! use tracing_subscriber::util::SubscriberInitExt as _;
//! use tracing_subscriber::{EnvFilter, Layer as _};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Sends to where OTEL_EXPORTER_OTLP_ENDPOINT says, or to a collector on this machine.
//! let exporter = opentelemetry_otlp::SpanExporter::builder().with_http().build()?;
//! let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
//! let layer = tracing_opentelemetry::layer()
//!     .with_tracer(provider.tracer("training"))
//!     .with_filter(EnvFilter::new("info,telegrad::trace=debug"));
//! tracing_subscriber::registry().with(layer).init();
//! telegrad_otel::propagate();
//! // … join the world, train, shut down …
//! provider.shutdown()?;
//! # Ok(())
//! # }
//! ```
//!
//! Take a batch exporter: one that sends each span as it ends would do so on the threads that read and answer calls, and on the
//! one that ends them at their limits. Where the spans of `telegrad::trace` are filtered out, nothing carries a trace on. The state of a trace and its baggage are not carried.

pub use {opentelemetry, tracing_opentelemetry};

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use telegrad_trace::{Origin, Propagate};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Has calls carry the number of their span to whoever executes them, and executions take it from there.
///
/// A worker whose subscribers have no layer of [`tracing_opentelemetry`] carries nothing.
pub fn propagate() {
    telegrad_trace::propagate(&Carrier);
}

struct Carrier;

impl Propagate for Carrier {
    fn origin(&self, span: &Span) -> Option<Origin> {
        let context = span.context();
        let span = context.span();
        let known = span.span_context();
        let trace = u128::from_be_bytes(known.trace_id().to_bytes());
        known.is_valid().then(|| Origin {
            trace: ((trace >> 64) as u64, trace as u64),
            span: u64::from_be_bytes(known.span_id().to_bytes()),
            flags: known.trace_flags().to_u8(),
        })
    }

    fn adopt(&self, span: &Span, origin: Origin) {
        let (high, low) = origin.trace;
        let trace = u128::from(high) << 64 | u128::from(low);
        let remote = SpanContext::new(
            TraceId::from_bytes(trace.to_be_bytes()),
            SpanId::from_bytes(origin.span.to_be_bytes()),
            TraceFlags::new(origin.flags),
            true,
            TraceState::default(),
        );
        if remote.is_valid() {
            // Without the layer, and for a span that nobody wants, there is nothing to put it under.
            let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(remote));
        }
    }
}
