//! Addresses to serve a page at.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::str::FromStr;

use crate::Error;

/// Addresses to listen at; the first one that is available is used.
#[derive(Clone, Debug)]
pub(crate) struct Addresses(Vec<SocketAddr>);

impl FromStr for Addresses {
    type Err = String;

    /// Resolves HOST:PORT.
    fn from_str(text: &str) -> Result<Self, String> {
        let port = text
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse::<u16>().ok());
        port.ok_or("an address has the form HOST:PORT")?;
        let found = text
            .to_socket_addrs()
            .map_err(|error| format!("cannot resolve the address: {error}; it has the form HOST:PORT"))?;
        Ok(Self(found.collect()))
    }
}

impl Addresses {
    /// Opens a non-blocking listener, for an async runtime.
    ///
    /// # Errors
    /// When none of the addresses is available.
    pub(crate) fn listen(&self) -> Result<TcpListener, Error> {
        let listener = TcpListener::bind(&self.0[..]).map_err(|error| {
            let addresses: Vec<_> = self.0.iter().map(ToString::to_string).collect();
            format!("cannot listen on {}: {error}", addresses.join(" or "))
        })?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}
