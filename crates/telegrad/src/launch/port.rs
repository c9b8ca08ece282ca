//! A port that nobody else is given while a world runs.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

/// A free port of the loopback interface, held by a socket that is bound and does not listen.
///
/// Asking for a free port, closing it and handing out its number leaves a moment in which another
/// program gets the same one. A socket that stays bound closes that gap: the system gives the port
/// to nobody who asks for any port, while rank 0, which asks for this one with `SO_REUSEADDR` (as
/// `TcpListener::bind` of the standard library does), may bind it and listen.
#[derive(Debug)]
pub(super) struct ReservedPort {
    number: u16,
    _socket: OwnedFd,
}

impl ReservedPort {
    pub(super) fn new() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        // After the bind: with the option set before, the system might choose a port that another
        // launcher holds in this same way.
        set_socket_reuseaddr(&socket, true)?;
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(ReservedPort {
            number: address.port(),
            _socket: socket,
        })
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_reserved_port_can_be_listened_on() {
        let port = ReservedPort::new().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.accept().unwrap();
        // Also on all interfaces, and again after connections have come and gone.
        drop(listener);
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, port.number())).unwrap();
    }

    #[test]
    fn reserved_ports_are_given_to_nobody_else() {
        let ports: Vec<_> = (0..500).map(|_| ReservedPort::new().unwrap()).collect();
        let numbers: HashSet<_> = ports.iter().map(ReservedPort::number).collect();
        assert_eq!(numbers.len(), ports.len());
        for _ in 0..200 {
            let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            assert!(!numbers.contains(&other.local_addr().unwrap().port()));
        }
    }
}
