//! The kind of link between workers, as an option of a command.

use clap::ValueEnum;
use telegrad::Transport;

/// The kind of link between workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Link {
    /// The default for two workers on one host
    Auto,
    /// All workers in one process
    Mem,
    /// Unix sockets
    Unix,
    /// TCP
    Tcp,
}

impl Link {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mem => "mem",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
        }
    }
}

impl From<Link> for Transport {
    fn from(link: Link) -> Self {
        match link {
            Link::Auto => Self::Auto,
            Link::Mem => Self::Mem,
            Link::Unix => Self::Unix,
            Link::Tcp => Self::Tcp,
        }
    }
}
