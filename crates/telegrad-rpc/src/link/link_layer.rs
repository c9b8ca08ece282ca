//! The transport of a worker, and the wrapper that tests put around its links.

use std::sync::Arc;

use telegrad_net::Link;

/// The kind of links that a worker uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// The fastest that reaches the peer: memory within a process, shared memory within a host, otherwise TCP.
    #[default]
    Auto,
    /// Memory only: all members in one process.
    Mem,
    /// Shared memory, with Unix sockets where there is none: all members on one host.
    Shared,
    /// Unix sockets only: all members on one host.
    Unix,
    /// TCP only.
    Tcp,
}

/// A wrapper around each link, for tests.
#[doc(hidden)]
#[derive(Clone)]
pub struct LinkLayer(Arc<Wrap>);

type Wrap = dyn Fn(Arc<dyn Link>) -> Arc<dyn Link> + Send + Sync;

impl LinkLayer {
    /// Returns a layer that wraps each link with `wrap`.
    pub fn new(wrap: impl Fn(Arc<dyn Link>) -> Arc<dyn Link> + Send + Sync + 'static) -> Self {
        Self(Arc::new(wrap))
    }

    /// Wraps a link, if there is a layer.
    pub(crate) fn around(layer: Option<&Self>, link: Arc<dyn Link>) -> Arc<dyn Link> {
        match layer {
            Some(Self(wrap)) => wrap(link),
            None => link,
        }
    }
}

impl std::fmt::Debug for LinkLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LinkLayer")
    }
}
