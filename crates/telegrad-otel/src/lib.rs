//! Traces of OpenTelemetry across workers.
//!
//! This is a crate of its own because most programs have no collector, and OpenTelemetry has many dependencies. It depends on
//! `telegrad-trace` alone.
//!
//! Workers show their events to subscribers of `tracing` ([`telegrad_trace::TARGET`]), and [`tracing_opentelemetry`] passes
//! spans to any exporter. [`propagate`] adds the link between processes: every call carries the ids of its span, so
//! that its execution on another worker is a child of the call in the same trace.
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
//! // Sends to OTEL_EXPORTER_OTLP_ENDPOINT, by default a collector on this machine.
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
//! Use a batch exporter: a simple one would send spans on the threads that serve calls, and on the timer thread. A filter that
//! drops the spans of `telegrad::trace` breaks traces at the process boundary. Trace state and baggage are not carried.

pub use {opentelemetry, tracing_opentelemetry};

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use telegrad_trace::{Origin, Propagate};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Makes calls carry the ids of their spans, and executions adopt them as parents.
///
/// Without a layer of [`tracing_opentelemetry`] the worker carries nothing.
pub fn propagate() {
    telegrad_trace::propagate(&Carrier);
}

/// Carries span contexts of OpenTelemetry.
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
            // Fails without the layer, and for a disabled span: neither has a parent.
            let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(remote));
        }
    }
}
