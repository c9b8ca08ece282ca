//! Where a page is served.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::str::FromStr;

use crate::Error;

/// Where to listen: at the first of these where that is possible.
#[derive(Clone, Debug)]
pub(crate) struct Addresses(Vec<SocketAddr>);

impl FromStr for Addresses {
    type Err = String;

    /// The addresses of HOST:PORT.
    fn from_str(text: &str) -> Result<Self, String> {
        let port = text
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse::<u16>().ok());
        port.ok_or("an address is HOST:PORT")?;
        let found = text
            .to_socket_addrs()
            .map_err(|error| format!("an address is HOST:PORT ({error})"))?;
        Ok(Self(found.collect()))
    }
}

impl Addresses {
    /// Listens, for a runtime that must not be held up.
    ///
    /// # Errors
    /// When none of the addresses can be listened on.
    pub(crate) fn listen(&self) -> Result<TcpListener, Error> {
        let listener = TcpListener::bind(&self.0[..]).map_err(|error| {
            let addresses: Vec<_> = self.0.iter().map(ToString::to_string).collect();
            format!("cannot listen on {}: {error}", addresses.join(" or "))
        })?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}
