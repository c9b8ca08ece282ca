//! Addresses of workers.

use std::fmt;
use std::net::SocketAddr;

use telegrad_wire::{Decoder, Encoder, Wire, WireError};

/// An address at which a worker listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// In this process, under this name.
    Mem(String),
    /// An abstract Unix socket on this host. It needs no file, and the end of its process leaves nothing behind.
    Unix(String),
    /// A TCP address.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mem(name) => write!(f, "mem:{name}"),
            Self::Unix(name) => write!(f, "unix:{name}"),
            Self::Tcp(addr) => write!(f, "tcp:{addr}"),
        }
    }
}

impl Wire for Address {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.str(&self.to_string());
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        let text = decoder.str()?;
        let wrong = || WireError::mismatch("an address", format!("`{text}`"));
        let (scheme, rest) = text.split_once(':').ok_or_else(wrong)?;
        Ok(match scheme {
            "mem" => Self::Mem(rest.into()),
            "unix" => Self::Unix(rest.into()),
            "tcp" => Self::Tcp(rest.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        })
    }
}

/// Identifies the host, as far as abstract Unix sockets reach: same boot of the same kernel, same network
/// namespace. Workers with the same value can connect through them. Empty if it cannot be determined.
pub fn host_id() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let namespace = std::fs::read_link("/proc/self/ns/net");
    match (boot, namespace) {
        (Ok(boot), Ok(namespace)) => format!("{}/{}", boot.trim(), namespace.display()),
        _ => String::new(),
    }
}
