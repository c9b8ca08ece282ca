//! Servers that a TCP store must cope with.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use telegrad_rendezvous::{MeetingPoint, OpenedStore, RendezvousError, Store, StoreServer, open};

use super::{TestPoint, keys, member, soon};

pub(crate) fn meeting_point_of(address: SocketAddr) -> MeetingPoint {
    MeetingPoint::Tcp {
        host: address.ip().to_string(),
        port: address.port(),
    }
}

/// Opens the store at `address` as a member other than rank 0.
fn connect(address: SocketAddr, deadline: Instant) -> Result<Arc<dyn Store>, RendezvousError> {
    open(&member(1, meeting_point_of(address)), None, deadline).map(|opened| opened.store)
}

/// Starts a server that sends `greeting` to its first client.
fn impostor(greeting: &'static [u8]) -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(greeting).unwrap();
        // Until the client disconnects, which may reset the connection.
        let _ = stream.read_to_end(&mut Vec::new());
    };
    (address, thread::spawn(serve))
}

/// Returns an address without a listener, in a part of the loopback network that nothing else uses, so that the
/// port stays free.
fn free_address(ip: &str) -> SocketAddr {
    TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap()
}

#[test]
fn a_store_of_another_version_is_named_with_both_versions() {
    let (address, impostor) = impostor(b"TGST\x07\0\0\0");
    let error = connect(address, soon()).err().unwrap();
    let expected = format!(
        "the store at {address} speaks store protocol version 7, this worker speaks 2; \
         all workers need the same version of Telegrad"
    );
    assert_eq!(error.to_string(), expected);
    impostor.join().unwrap();
}

#[test]
fn another_kind_of_server_is_reported_with_its_first_bytes() {
    let (address, impostor) = impostor(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let error = connect(address, soon()).err().unwrap();
    let expected = format!(
        "the server at {address} is not a Telegrad store: its first bytes are `HTTP/1.1`; check the address"
    );
    assert_eq!(error.to_string(), expected);
    impostor.join().unwrap();
}

#[test]
fn a_port_in_use_is_named() {
    let server = StoreServer::bind("127.0.0.1:0").unwrap();
    let address = server.address();
    let error = StoreServer::bind(address).err().unwrap();
    let port = address.port();
    assert_eq!(
        error.to_string(),
        format!(
            "rank 0 cannot host the store at {address}: \
             port {port} is in use, perhaps by another world; choose another port"
        )
    );
    drop(server);
    let again = StoreServer::bind(address).unwrap();
    assert_eq!(
        again.address(),
        address,
        "the port is free once the server is dropped"
    );
}

#[test]
fn rank_0_hosts_the_store_that_other_ranks_wait_for() {
    let address = free_address("127.77.0.2");
    let early = thread::spawn(move || {
        let opened = open(&member(1, meeting_point_of(address)), None, soon()).unwrap();
        assert!(opened.server.is_none());
        opened.store.get_all(&keys(&["from/0"]), soon()).unwrap()
    });
    let OpenedStore { store, server } = open(&member(0, meeting_point_of(address)), None, soon()).unwrap();
    assert_eq!(server.as_ref().unwrap().address(), address);
    assert_eq!(store.local_ip(), Some(address.ip()));
    assert_eq!(store.describe(), format!("tcp://{address}"));
    store.insert("from/0", b"here").unwrap();
    assert_eq!(early.join().unwrap(), [b"here"]);
}

#[test]
fn a_store_that_never_opens_is_reported_at_the_deadline() {
    let address = free_address("127.77.0.3");
    let error = connect(address, Instant::now() + Duration::from_millis(50))
        .err()
        .unwrap();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("no store at {address} after 0.")),
        "{text}"
    );
    assert!(text.contains("onnection refused"), "{text}");
    assert!(
        text.ends_with("; has rank 0 started, and is it reachable from here?"),
        "{text}"
    );
}

#[test]
fn the_end_of_the_server_fails_every_get_at_once() {
    let server = StoreServer::bind("127.0.0.1:0").unwrap();
    let address = server.address();
    let stores = [(); 2].map(|()| connect(address, soon()).unwrap());
    let started = Instant::now();
    let gets = stores.map(|store| {
        thread::spawn(move || {
            let first = store.get_all(&keys(&["never"]), soon()).unwrap_err();
            (first, store.insert("key", b"").unwrap_err())
        })
    });
    drop(server);
    for get in gets {
        let (first, second) = get.join().unwrap();
        let expected = format!("lost the store at {address}, which rank 0 hosts: the connection was closed");
        assert_eq!(first.to_string(), expected);
        assert_eq!(second.to_string(), expected);
    }
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_message_above_the_limit_is_refused_and_the_store_stays_usable() {
    let point = TestPoint::tcp();
    let store = point.join();
    let value = vec![7; 9 << 20];
    let error = store
        .insert("key", &[value.clone(), value.clone()].concat())
        .unwrap_err();
    let location = store.describe();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!(
            "the store at {location} refused a request: a message of 188"
        )),
        "{text}"
    );
    assert_eq!(store.insert("a", &value), Ok(None));
    assert_eq!(store.insert("b", &value), Ok(None));
    let text = store.get_all(&keys(&["a", "b"]), soon()).unwrap_err().to_string();
    assert!(
        text.contains("refused a request: the response is a message of 188"),
        "{text}"
    );
    assert_eq!(store.get_all(&keys(&["b"]), soon()), Ok(vec![value]));
}

#[test]
fn a_given_server_is_used_and_kept() {
    let server = StoreServer::bind("127.0.0.1:0").unwrap();
    let address = server.address();
    let point = MeetingPoint::Tcp {
        host: "localhost".into(),
        port: 0,
    };
    let zero = open(&member(0, point), Some(server), soon()).unwrap();
    let one = connect(address, soon()).unwrap();
    one.insert("key", b"value").unwrap();
    assert_eq!(
        zero.store.get_all(&keys(&["key"]), soon()),
        Ok(vec![b"value".to_vec()])
    );
    drop(zero);
    assert!(matches!(
        one.insert("x", b""),
        Err(RendezvousError::ServerLost { .. })
    ));
}

#[test]
fn a_server_without_a_tcp_world_is_refused() {
    let server = StoreServer::bind("127.0.0.1:0").unwrap();
    let membership = member(0, MeetingPoint::Mem("x".into()));
    let error = open(&membership, Some(server), soon()).err().unwrap();
    let expected = "a store server was given, but this world meets at mem://x: only a tcp:// world uses one";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn two_hundred_members_meet() {
    let point = TestPoint::tcp();
    let all: Vec<_> = (0..200).map(|rank| format!("worker/{rank}")).collect();
    thread::scope(|scope| {
        for key in &all {
            let (point, all) = (&point, &all);
            scope.spawn(move || {
                let store = point.join();
                assert_eq!(store.insert(key, key.as_bytes()), Ok(None));
                assert_eq!(store.get_all(all, soon()).unwrap().len(), 200);
            });
        }
    });
}
