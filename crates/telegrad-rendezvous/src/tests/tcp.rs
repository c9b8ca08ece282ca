//! What only a TCP store must stand.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use tracing::dispatcher::with_default;

use super::log::Log;
use super::{keys, soon, tcp_store};
use crate::protocol::{self, Request};
use crate::tcp_store::TcpStore;
use crate::{MeetingPoint, Membership, RendezvousError, Store, StoreServer, dialled, open};

/// A server whose warnings can be waited for.
fn watched_server() -> (StoreServer, Log) {
    let (log, dispatch) = Log::new();
    (
        with_default(&dispatch, || StoreServer::bind("127.0.0.1:0").unwrap()),
        log,
    )
}

/// A connection on which `bytes` have been sent.
fn raw(server: &StoreServer, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// A connection that has been greeted and on which `bytes` have been sent.
fn greeted(server: &StoreServer, bytes: &[u8]) -> TcpStream {
    let mut stream = raw(server, &protocol::preface());
    let mut preface = [0; 8];
    stream.read_exact(&mut preface).unwrap();
    assert_eq!(preface, *b"TGST\x02\0\0\0");
    stream.write_all(bytes).unwrap();
    stream
}

/// What the server still says before it closes.
fn last_words(mut stream: TcpStream) -> Vec<u8> {
    let mut words = Vec::new();
    // A connection with bytes that nobody read ends with a reset instead of an end.
    let _ = stream.read_to_end(&mut words);
    words
}

/// Lets `bad` do its worst: the log must say why its connection was closed, and nobody else notice.
fn disturbs_only_itself(reason: &str, bad: impl FnOnce(&StoreServer) -> (SocketAddr, Option<TcpStream>)) {
    let (server, log) = watched_server();
    let good = tcp_store(&server);
    let (peer, stream) = bad(&server);
    log.wait_for(&["WARN", &format!("peer={peer}"), &format!("reason={reason}")]);
    if let Some(stream) = stream {
        last_words(stream);
    }
    assert_eq!(good.insert("key", b"value"), Ok(None));
    assert_eq!(tcp_store(&server).insert("key", b""), Ok(Some(b"value".to_vec())));
}

fn kept(stream: TcpStream) -> (SocketAddr, Option<TcpStream>) {
    (stream.local_addr().unwrap(), Some(stream))
}

fn dropped(stream: TcpStream) -> (SocketAddr, Option<TcpStream>) {
    (stream.local_addr().unwrap(), None)
}

#[test]
fn garbage_ends_its_own_connection_only() {
    let reason = r"it is not a Telegrad worker: its first bytes are `GET / HT`";
    disturbs_only_itself(reason, |server| kept(raw(server, b"GET / HTTP/1.1\r\n\r\n")));
}

#[test]
fn a_client_of_another_version_is_told_ours() {
    let reason = "it speaks store protocol version 7, this store speaks 2";
    disturbs_only_itself(reason, |server| {
        let stream = raw(server, b"TGST\x07\0\0\0");
        let address = stream.local_addr().unwrap();
        assert_eq!(last_words(stream), b"TGST\x02\0\0\0");
        (address, None)
    });
}

#[test]
fn a_huge_length_ends_its_own_connection_only() {
    let reason = "a message of 4294967295 bytes is longer than the limit of 16777216";
    disturbs_only_itself(reason, |server| kept(greeted(server, &[0xff; 4])));
}

#[test]
fn a_message_without_meaning_ends_its_own_connection_only() {
    disturbs_only_itself("a message makes no sense: ", |server| {
        kept(greeted(server, &[1, 0, 0, 0, 0xc1]))
    });
}

#[test]
fn impatience_ends_its_own_connection_only() {
    let release = protocol::frame(&Request::Release { key: "x".into() }).unwrap();
    disturbs_only_itself("it sent more before it had its answer", |server| {
        kept(greeted(server, &[release.clone(), release].concat()))
    });
}

#[test]
fn a_client_that_vanishes_in_a_wait_is_noticed_at_once() {
    disturbs_only_itself("it closed the connection while it waited for keys", |server| {
        let get = Request::Get {
            keys: keys(&["never"]),
            wait_ms: u64::MAX,
        };
        dropped(greeted(server, &protocol::frame(&get).unwrap()))
    });
}

#[test]
fn a_client_that_vanishes_in_a_message_is_noticed_at_once() {
    disturbs_only_itself("it closed the connection in the middle of a message", |server| {
        dropped(greeted(server, &[200, 0, 0, 0, 1, 2, 3]))
    });
}

#[test]
fn a_silent_connection_is_closed() {
    let started = Instant::now();
    disturbs_only_itself("its first 8 bytes did not come within 5 s", |server| {
        kept(raw(server, b""))
    });
    assert!(started.elapsed() >= Duration::from_secs(5));
}

#[test]
fn a_connection_that_falls_silent_is_closed() {
    disturbs_only_itself("the rest of a message did not come within 5 s", |server| {
        kept(greeted(server, &[200, 0, 0, 0, 1]))
    });
}

/// Something that answers the first client with `greeting`.
fn impostor(greeting: &'static [u8]) -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(greeting).unwrap();
        last_words(stream);
    };
    (address, thread::spawn(serve))
}

fn connect(address: SocketAddr, deadline: Instant) -> Result<TcpStore, RendezvousError> {
    TcpStore::connect((&address.ip().to_string(), address.port()), deadline)
}

#[test]
fn a_store_of_another_version_is_named_with_both_versions() {
    let (address, impostor) = impostor(b"TGST\x07\0\0\0");
    let error = connect(address, soon()).err().unwrap();
    let expected = format!("the store at {address} speaks store protocol version 7, this worker speaks 2");
    assert_eq!(error.to_string(), expected);
    impostor.join().unwrap();
}

#[test]
fn a_stranger_is_told_from_a_store() {
    let (address, impostor) = impostor(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let error = connect(address, soon()).err().unwrap();
    let expected =
        format!("what listens at {address} is not a Telegrad store: its first bytes are `HTTP/1.1`");
    assert_eq!(error.to_string(), expected);
    impostor.join().unwrap();
}

#[test]
fn a_port_in_use_is_named() {
    let (server, log) = watched_server();
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
    drop(log);
    let again = StoreServer::bind(address).unwrap();
    assert_eq!(
        again.address(),
        address,
        "it is free at once after the server is dropped"
    );
}

/// A member of a world of two that meets at `address`.
fn member(rank: u32, address: SocketAddr) -> Membership {
    let meeting_point = MeetingPoint::Tcp {
        host: address.ip().to_string(),
        port: address.port(),
    };
    Membership {
        meeting_point,
        rank,
        world_size: 2,
    }
}

/// An address on which nobody listens. A part of the loopback network that nothing else uses, so
/// that the port is not given to somebody else in between.
fn free_address(ip: &str) -> SocketAddr {
    TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap()
}

#[test]
fn a_rank_that_comes_before_rank_0_waits_for_it() {
    let address = free_address("127.77.0.1");
    let (log, dispatch) = Log::new();
    let early = thread::spawn(move || {
        with_default(&dispatch, || {
            let opened = open(&member(1, address), None, soon()).unwrap();
            assert!(opened.server.is_none());
            opened.store.get_all(&keys(&["from/0"]), soon()).unwrap()
        })
    });
    log.wait_for(&["no store yet", "refused"]);
    let opened = open(&member(0, address), None, soon()).unwrap();
    assert_eq!(opened.server.as_ref().unwrap().address(), address);
    assert_eq!(opened.store.local_ip(), Some(address.ip()));
    assert_eq!(opened.store.describe(), format!("tcp://{address}"));
    opened.store.insert("from/0", b"here").unwrap();
    assert_eq!(early.join().unwrap(), [b"here"]);
}

#[test]
fn a_rank_0_that_never_comes_is_named_at_the_deadline() {
    let address = free_address("127.77.0.2");
    let error = open(
        &member(1, address),
        None,
        Instant::now() + Duration::from_millis(50),
    )
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
fn the_death_of_the_server_ends_every_wait_at_once() {
    let server = StoreServer::bind("127.0.0.1:0").unwrap();
    let address = server.address();
    let stores = [tcp_store(&server), tcp_store(&server)];
    let started = Instant::now();
    let waiting = stores.map(|store| {
        thread::spawn(move || {
            let first = store.get_all(&keys(&["never"]), soon()).unwrap_err();
            (first, store.insert("key", b"").unwrap_err())
        })
    });
    drop(server);
    for store in waiting {
        let (first, second) = store.join().unwrap();
        let expected =
            format!("rank 0, which hosts the store at {address}, is gone: the connection was closed");
        assert_eq!(first.to_string(), expected);
        assert_eq!(second.to_string(), expected);
    }
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn what_is_too_large_is_refused_and_the_rest_goes_on() {
    let server = StoreServer::bind("127.0.0.1:0").unwrap();
    let store = tcp_store(&server);
    let value = vec![7; 9 << 20];
    let error = store
        .insert("key", &[value.clone(), value.clone()].concat())
        .unwrap_err();
    let place = store.describe();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!(
            "the store at {place} refused a request: a message of 188"
        )),
        "{text}"
    );
    assert_eq!(store.insert("a", &value), Ok(None));
    assert_eq!(store.insert("b", &value), Ok(None));
    let text = store.get_all(&keys(&["a", "b"]), soon()).unwrap_err().to_string();
    assert!(
        text.contains("refused a request: the answer is a message of 188"),
        "{text}"
    );
    assert_eq!(store.get_all(&keys(&["b"]), soon()), Ok(vec![value]));
}

#[test]
fn a_given_server_is_used_and_kept() {
    let server = StoreServer::bind("127.0.0.1:0").unwrap();
    let address = server.address();
    let method = Membership {
        meeting_point: MeetingPoint::Tcp {
            host: "localhost".into(),
            port: 0,
        },
        rank: 0,
        world_size: 2,
    };
    let zero = open(&method, Some(server), soon()).unwrap();
    let one = open(&member(1, address), None, soon()).unwrap();
    one.store.insert("key", b"value").unwrap();
    assert_eq!(
        zero.store.get_all(&keys(&["key"]), soon()),
        Ok(vec![b"value".to_vec()])
    );
    drop(zero);
    assert!(matches!(
        one.store.insert("x", b""),
        Err(RendezvousError::ServerLost { .. })
    ));
}

#[test]
fn a_server_on_all_interfaces_is_dialled_over_the_loopback_and_tells_no_address() {
    let server = StoreServer::bind("127.0.0.1:0").unwrap();
    let everywhere = SocketAddr::from(([0, 0, 0, 0], server.address().port()));
    assert_eq!(dialled(everywhere), server.address());
    assert_eq!(dialled("[::]:5".parse().unwrap()), "[::1]:5".parse().unwrap());
    let store = TcpStore::connect_own(dialled(everywhere), everywhere, soon()).unwrap();
    assert_eq!(store.local_ip(), None);
}

#[test]
fn a_server_has_no_use_without_tcp() {
    let server = StoreServer::bind("127.0.0.1:0").unwrap();
    let method = Membership {
        meeting_point: MeetingPoint::Mem("x".into()),
        rank: 0,
        world_size: 1,
    };
    let error = open(&method, Some(server), soon()).err().unwrap();
    let expected = "a store server was given, but the workers of this world meet at mem://x";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn two_hundred_members_meet() {
    let server = StoreServer::bind("127.0.0.1:0").unwrap();
    let all: Vec<_> = (0..200).map(|rank| format!("worker/{rank}")).collect();
    thread::scope(|scope| {
        for key in &all {
            let (server, all) = (&server, &all);
            scope.spawn(move || {
                let store = tcp_store(server);
                assert_eq!(store.insert(key, key.as_bytes()), Ok(None));
                assert_eq!(store.get_all(all, soon()).unwrap().len(), 200);
            });
        }
    });
}
