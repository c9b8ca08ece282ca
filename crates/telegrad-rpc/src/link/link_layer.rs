//! Which links a worker uses, and what tests put around them.

use std::sync::Arc;

use telegrad_net::Link;

/// Which links a worker uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// The fastest that reaches the peer: memory within a process, shared memory within a host, else TCP.
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

/// Puts something around a link.
#[doc(hidden)]
#[derive(Clone)]
pub struct LinkLayer(Arc<Wrap>);

type Wrap = dyn Fn(Arc<dyn Link>) -> Arc<dyn Link> + Send + Sync;

impl LinkLayer {
    /// One that puts this around each link.
    pub fn new(wrap: impl Fn(Arc<dyn Link>) -> Arc<dyn Link> + Send + Sync + 'static) -> Self {
        Self(Arc::new(wrap))
    }

    /// The link to use instead of `link`.
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
