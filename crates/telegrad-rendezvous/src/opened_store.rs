//! Opening the store of a meeting point.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use crate::file_store::FileStore;
use crate::mem_store::MemStore;
use crate::tcp_store::TcpStore;
use crate::{MeetingPoint, Membership, RendezvousError, Store, StoreServer};

/// An open store, with its server on the worker that hosts it.
pub struct OpenedStore {
    /// The table that all members share.
    pub store: Arc<dyn Store>,
    /// The server, on rank 0 of a TCP world. Dropping it ends the store for every member, so it must outlive
    /// their need of it.
    pub server: Option<StoreServer>,
}

/// Opens the store at the meeting point before `deadline`.
///
/// `server` is one that the caller has bound already. This makes port 0 useful: the other members are given the
/// server's [`address`](StoreServer::address). Without it, rank 0 of a TCP world binds one.
///
/// # Errors
/// When the store cannot be hosted or reached, or is not one of this version.
pub fn open(
    membership: &Membership,
    server: Option<StoreServer>,
    deadline: Instant,
) -> Result<OpenedStore, RendezvousError> {
    let store: Arc<dyn Store> = match &membership.meeting_point {
        MeetingPoint::Tcp { host, port } => {
            let server = match server {
                None if membership.rank == 0 => Some(StoreServer::bind_as(
                    (host.as_str(), *port),
                    &membership.meeting_point.to_string(),
                )?),
                given => given,
            };
            let store = match &server {
                None => TcpStore::connect((host, *port), deadline)?,
                Some(server) => {
                    let bound = server.address();
                    TcpStore::connect_to_own_server(local_address(bound), bound, deadline)?
                }
            };
            return Ok(OpenedStore {
                store: Arc::new(store),
                server,
            });
        }
        meeting_point if server.is_some() => {
            return Err(RendezvousError::UnusedServer {
                meeting_point: meeting_point.to_string(),
            });
        }
        MeetingPoint::File(path) => Arc::new(FileStore::open(path, deadline)?),
        MeetingPoint::Mem(name) => Arc::new(MemStore::open(name)),
    };
    Ok(OpenedStore { store, server: None })
}

/// Returns the address at which this host reaches a server bound to `address`: loopback for all interfaces.
fn local_address(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_server_on_all_interfaces_is_reached_over_loopback_and_gives_no_local_ip() {
        let server = StoreServer::bind("127.0.0.1:0").unwrap();
        let everywhere = SocketAddr::from(([0, 0, 0, 0], server.address().port()));
        assert_eq!(local_address(everywhere), server.address());
        assert_eq!(
            local_address("[::]:5".parse().unwrap()),
            "[::1]:5".parse().unwrap()
        );
        let deadline = Instant::now() + Duration::from_secs(30);
        let store = TcpStore::connect_to_own_server(local_address(everywhere), everywhere, deadline).unwrap();
        assert_eq!(store.local_ip(), None);
    }
}
