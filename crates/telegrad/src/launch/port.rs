//! A TCP port, reserved while a world runs.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

/// A free port of the loopback interface, held by a socket that is bound and does not listen.
///
/// Closing a socket before its port number is used would let another program get the same port. While this socket stays
/// bound, the system does not assign the port to sockets that ask for any port. Rank 0 asks for this port with
/// `SO_REUSEADDR`, as the standard library's `TcpListener::bind` does, and may bind it and listen.
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
        // After the bind: with the option set earlier, the system might choose a port that another launcher has reserved
        // like this.
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
        // Also on all interfaces, and again after connections were closed.
        drop(listener);
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, port.number())).unwrap();
    }

    #[test]
    fn reserved_ports_are_not_assigned_again() {
        let ports: Vec<_> = (0..500).map(|_| ReservedPort::new().unwrap()).collect();
        let numbers: HashSet<_> = ports.iter().map(ReservedPort::number).collect();
        assert_eq!(numbers.len(), ports.len());
        for _ in 0..200 {
            let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            assert!(!numbers.contains(&other.local_addr().unwrap().port()));
        }
    }
}
