//! Which spans subscribers are interested in.

use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed, Ordering::SeqCst};

use tracing::dispatcher;
use tracing::level_filters::STATIC_MAX_LEVEL;
use tracing_core::callsite::{self, Callsite};
use tracing_core::subscriber::NoSubscriber;
use tracing_core::{Interest, Kind as CallsiteKind, Level, Metadata};

use super::TARGET;
use crate::event::Kind;
use crate::recorders;

/// A call site that stands for all spans of one name when subscribers are asked for their interest.
struct Probe {
    metadata: Metadata<'static>,
    /// Its bit in [`WANTED`].
    bit: u8,
}

/// The bits of the probes that a subscriber is interested in.
static WANTED: AtomicU8 = AtomicU8::new(0);

impl Callsite for Probe {
    fn set_interest(&self, interest: Interest) {
        // Levels that are compiled out are never shown.
        let wanted = !interest.is_never() && *self.metadata.level() <= STATIC_MAX_LEVEL;
        if wanted {
            WANTED.fetch_or(self.bit, SeqCst);
        } else {
            WANTED.fetch_and(!self.bit, SeqCst);
        }
        recorders::update_interest();
    }

    fn metadata(&self) -> &Metadata<'_> {
        &self.metadata
    }
}

macro_rules! probe {
    ($probe:ident, $bit:expr, $level:ident, $name:literal: $($field:literal)*) => {
        static $probe: Probe = Probe {
            metadata: tracing_core::metadata! {
                name: $name,
                target: TARGET,
                level: Level::$level,
                fields: &[$($field),*],
                callsite: &$probe,
                kind: CallsiteKind::SPAN,
            },
            bit: $bit,
        };
    };
}

/// The bit of [`ALL_DETAILS`].
const DETAILS: u8 = 8;

probe! { CALLS, 1, DEBUG, "call":
    "otel.name" "otel.kind" "otel.status_code" "otel.status_description" "rpc.system" "rpc.method"
    "verb" "from" "to" "sent_bytes" "received_bytes" "tensor_bytes"
}
probe! { EXECUTIONS, 2, DEBUG, "execution":
    "otel.name" "otel.kind" "otel.status_code" "otel.status_description" "rpc.system" "rpc.method"
    "from" "on" "tensor_bytes"
}
probe! { SCOPES, 4, DEBUG, "scope":
    "otel.name" "otel.status_code" "otel.status_description" "kind" "on" "tensor_bytes"
}
probe! { ALL_DETAILS, DETAILS, TRACE, "detail":
    "otel.name" "otel.status_code" "otel.status_description" "kind" "on" "tensor_bytes"
}

/// Registers the probes with `tracing`, once, so that subscribers report their interest.
pub(crate) fn register_probes() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        for probe in [&CALLS, &EXECUTIONS, &SCOPES, &ALL_DETAILS] {
            callsite::register(probe);
        }
        // `tracing` asks only the subscriber of this thread while it knows of one, which may be that of another thread.
        // With a second one it asks all of them; afterwards they are asked again without it.
        drop(dispatcher::Dispatch::new(NoSubscriber::default()));
        callsite::rebuild_interest_cache();
    });
}

/// Returns whether a subscriber is interested in any span.
pub(crate) fn has_any() -> bool {
    WANTED.load(Relaxed) != 0
}

/// Returns whether this high-volume kind is disabled for subscribers.
pub(crate) fn is_detail_disabled(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Operator | Kind::Layer | Kind::Wait { .. } | Kind::Codec
    ) && WANTED.load(Relaxed) & DETAILS == 0
}
