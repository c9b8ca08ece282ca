//! Meeting points of a world.

use std::fmt;
use std::path::PathBuf;

/// Where the members of a world meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeetingPoint {
    /// A store that rank 0 hosts. A host name is looked up at each attempt to connect: in a cluster, the name of
    /// rank 0 often appears together with rank 0.
    Tcp {
        /// Name or address, an IPv6 address without its brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// A file that all members can open.
    File(PathBuf),
    /// A name in this process.
    Mem(String),
}

impl fmt::Display for MeetingPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::File(path) => write!(f, "file://{}", path.display()),
            Self::Mem(name) => write!(f, "mem://{name}"),
        }
    }
}
