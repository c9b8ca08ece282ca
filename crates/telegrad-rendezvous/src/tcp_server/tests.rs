//! Clients that break the protocol: each loses its own connection and disturbs no other.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tracing::dispatcher::with_default;

use super::StoreServer;
use crate::Store;
use crate::protocol::{self, Request};
use crate::tcp_store::TcpStore;
use crate::test_log::TestLog;

/// Connects and sends `bytes`.
fn connect_raw(server: &StoreServer, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// Connects, exchanges prefaces, and sends `bytes`.
fn connect_greeted(server: &StoreServer, bytes: &[u8]) -> TcpStream {
    let mut stream = connect_raw(server, &protocol::preface());
    let mut preface = [0; 8];
    stream.read_exact(&mut preface).unwrap();
    assert_eq!(preface, *b"TGST\x02\0\0\0");
    stream.write_all(bytes).unwrap();
    stream
}

/// Reads until the server closes the connection.
fn read_to_close(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // With bytes that the server never read, the connection ends in a reset.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

fn connect(server: &StoreServer) -> TcpStore {
    let (address, deadline) = (server.address(), Instant::now() + Duration::from_secs(30));
    TcpStore::connect((&address.ip().to_string(), address.port()), deadline).unwrap()
}

/// Checks that the server closes the connection of `faulty` with this reason, and serves other clients as before.
///
/// `faulty` returns its address, and the connection if it is still open.
#[track_caller]
fn assert_isolated(reason: &str, faulty: impl FnOnce(&StoreServer) -> (SocketAddr, Option<TcpStream>)) {
    let (log, dispatch) = TestLog::new();
    let server = with_default(&dispatch, || StoreServer::bind("127.0.0.1:0").unwrap());
    let client = connect(&server);
    let (peer, stream) = faulty(&server);
    log.wait_for(&["WARN", &format!("peer={peer}"), &format!("reason={reason}")]);
    if let Some(stream) = stream {
        read_to_close(stream);
    }
    assert_eq!(client.insert("key", b"value"), Ok(None));
    assert_eq!(connect(&server).insert("key", b""), Ok(Some(b"value".to_vec())));
}

fn open(stream: TcpStream) -> (SocketAddr, Option<TcpStream>) {
    (stream.local_addr().unwrap(), Some(stream))
}

fn closed(stream: TcpStream) -> (SocketAddr, Option<TcpStream>) {
    (stream.local_addr().unwrap(), None)
}

#[test]
fn a_client_of_another_protocol_is_disconnected() {
    let reason = r"the client is not a Telegrad worker: its first bytes are `GET / HT`";
    assert_isolated(reason, |server| {
        open(connect_raw(server, b"GET / HTTP/1.1\r\n\r\n"))
    });
}

#[test]
fn a_client_of_another_version_receives_our_version() {
    let reason = "the client speaks store protocol version 7, this store speaks 2";
    assert_isolated(reason, |server| {
        let stream = connect_raw(server, b"TGST\x07\0\0\0");
        let address = stream.local_addr().unwrap();
        assert_eq!(read_to_close(stream), b"TGST\x02\0\0\0");
        (address, None)
    });
}

#[test]
fn a_huge_length_disconnects_its_client() {
    let reason = "a message of 4294967295 bytes is longer than the limit of 16777216";
    assert_isolated(reason, |server| open(connect_greeted(server, &[0xff; 4])));
}

#[test]
fn a_malformed_message_disconnects_its_client() {
    assert_isolated("malformed message: ", |server| {
        open(connect_greeted(server, &[1, 0, 0, 0, 0xc1]))
    });
}

#[test]
fn a_request_before_the_last_response_disconnects_its_client() {
    let release = protocol::frame(&Request::Release { key: "x".into() }).unwrap();
    let reason = "the client sent a request before it had the last response";
    assert_isolated(reason, |server| {
        open(connect_greeted(server, &[release.clone(), release].concat()))
    });
}

#[test]
fn a_disconnect_during_a_get_is_detected_at_once() {
    let reason = "the client closed the connection while waiting for keys";
    assert_isolated(reason, |server| {
        let get = Request::Get {
            keys: vec!["never".into()],
            wait_ms: u64::MAX,
        };
        closed(connect_greeted(server, &protocol::frame(&get).unwrap()))
    });
}

#[test]
fn a_disconnect_within_a_message_is_detected_at_once() {
    let reason = "the client closed the connection in the middle of a message";
    assert_isolated(reason, |server| {
        closed(connect_greeted(server, &[200, 0, 0, 0, 1, 2, 3]))
    });
}

#[test]
fn a_client_that_never_sends_its_preface_is_disconnected() {
    let started = Instant::now();
    assert_isolated("the client stalled for 5 s in its first 8 bytes", |server| {
        open(connect_raw(server, b""))
    });
    assert!(started.elapsed() >= Duration::from_secs(5));
}

#[test]
fn a_client_that_stalls_within_a_message_is_disconnected() {
    assert_isolated(
        "the client stalled for 5 s in the middle of a message",
        |server| open(connect_greeted(server, &[200, 0, 0, 0, 1])),
    );
}
