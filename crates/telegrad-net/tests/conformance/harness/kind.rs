//! The kinds of links, and the macros that make one test for each.

use telegrad_net::{LinkOptions, MIN_CHUNK};

/// The kind of link that a test uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mem,
    /// Shared memory, with Unix sockets beside it.
    Shared,
    /// Shared memory in which no tensor stays: those longer than a chunk are copied through it.
    Streamed,
    /// Unix sockets alone.
    Unix,
    /// TCP with this many bulk lanes.
    Tcp(usize),
}

impl Kind {
    /// Options of a test for this kind of link. With several lanes chunks are smaller, so that the lanes are used.
    pub(crate) fn options(self, options: LinkOptions) -> LinkOptions {
        match self {
            Self::Tcp(1) => LinkOptions { lanes: 1, ..options },
            Self::Tcp(lanes) => LinkOptions {
                lanes,
                chunk: MIN_CHUNK,
                ..options
            },
            Self::Unix => LinkOptions {
                share_memory: false,
                ..options
            },
            Self::Streamed => LinkOptions {
                lend_up_to: 0,
                chunk: MIN_CHUNK,
                ..options
            },
            Self::Mem | Self::Shared => options,
        }
    }
}

/// Makes one test per kind of link out of a function, named `case::kind`.
macro_rules! on_links {
    ($case:ident: $($name:ident = $kind:expr),*) => {
        mod $case {
            use crate::harness::{Kind, limited};
            $(#[test]
            fn $name() { limited(|| super::$case($kind)); })*
        }
    };
}

/// Makes one test per kind of link out of each function.
macro_rules! on_every_link {
    ($($case:ident),* $(,)?) => { $(crate::harness::on_links! { $case:
        mem = Kind::Mem, shared = Kind::Shared, streamed = Kind::Streamed, unix = Kind::Unix,
        tcp = Kind::Tcp(1), tcp_2_lanes = Kind::Tcp(2), tcp_4_lanes = Kind::Tcp(4)
    })* };
}

/// The same without the link inside one process.
macro_rules! between_processes {
    ($($case:ident),* $(,)?) => { $(crate::harness::on_links! { $case:
        shared = Kind::Shared, streamed = Kind::Streamed, unix = Kind::Unix,
        tcp = Kind::Tcp(1), tcp_2_lanes = Kind::Tcp(2), tcp_4_lanes = Kind::Tcp(4)
    })* };
}

/// The same for links over sockets only.
macro_rules! on_sockets {
    ($($case:ident),* $(,)?) => { $(crate::harness::on_links! { $case:
        unix = Kind::Unix,
        tcp = Kind::Tcp(1), tcp_2_lanes = Kind::Tcp(2), tcp_4_lanes = Kind::Tcp(4)
    })* };
}

pub(crate) use {between_processes, on_every_link, on_links, on_sockets};
