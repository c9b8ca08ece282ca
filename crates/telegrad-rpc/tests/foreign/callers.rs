//! Foreign callers, and other clients of a worker's port.

use super::*;

#[test]
fn an_unknown_function_is_named() {
    let half = HalfWorld::new(vec![]);
    let mut peer = half.dial(half.hello()).unwrap();
    let error = peer.call("elsewhere::nothing", &()).unwrap_err();
    assert_eq!(error.kind, RemoteErrorKind::NotRegistered);
    assert_eq!(
        error.to_string(),
        "worker `w0` has no function `elsewhere::nothing`"
    );
    half.assert_serves();
}

#[test]
fn arguments_of_the_wrong_number_or_type_are_explained() {
    let half = HalfWorld::new(vec![]);
    let mut peer = half.dial(half.hello()).unwrap();
    let start = "worker `w0` cannot call `foreign::add` with these arguments: ";
    let refused = |text: Result<Vec<u8>, RemoteError>, reason: &str| {
        let error = text.unwrap_err();
        assert_eq!(error.kind, RemoteErrorKind::BadArguments, "{error}");
        assert_eq!(error.to_string(), format!("{start}{reason}"));
    };
    refused(
        peer.call("foreign::add", &(1_i64,)),
        "expected a tuple of 2, found an array of 1",
    );
    refused(peer.call("foreign::add", &()), "expected a tuple, found nil");
    refused(
        peer.call("foreign::add", &(1_i64, 2_i64, 3_i64)),
        "expected a tuple of 2, found an array of 3",
    );
    refused(
        peer.call("foreign::add", &("x".to_owned(), 2_i64)),
        "element 0: expected `i64`, found a string",
    );
    refused(
        peer.call("foreign::add", &(1_i64, u64::MAX)),
        "element 1: expected `i64` in -9223372036854775808..=9223372036854775807, found 18446744073709551615",
    );
    assert_eq!(
        peer.call("foreign::add", &(1_u8, 2_u64))
            .map(|body| decode::<i64>(&body)),
        Ok(3)
    );
}

#[test]
fn a_malformed_request_is_refused() {
    let half = HalfWorld::new(vec![]);
    let mut peer = half.dial(half.hello()).unwrap();
    for body in [
        vec![],
        vec![0xc1],
        encode(&1_u8),
        encode(&("foreign::add".to_owned(),)),
        vec![0x92, 0xa3, b'a'],
    ] {
        let error = peer.send(body.clone()).unwrap_err();
        assert_eq!(error.kind, RemoteErrorKind::BadArguments, "{body:?}: {error}");
        assert!(
            error
                .to_string()
                .starts_with("worker `w0` cannot call `?` with these arguments: "),
            "{error}"
        );
    }
    // Bytes behind the arguments.
    let mut body = encode(&("foreign::add".to_owned(), (1_i64, 2_i64)));
    body.extend([1, 2, 3]);
    let error = peer.send(body).unwrap_err();
    assert!(
        error.to_string().ends_with(": 3 bytes left over after the value"),
        "{error}"
    );
    half.assert_serves();
}

#[test]
fn a_hello_with_a_wrong_world_name_rank_or_incarnation_is_refused() {
    let half = HalfWorld::new(vec![]);
    let at = format!("cannot reach tcp:{}: ", half.address());
    let refused =
        |hello, why: &str| assert_eq!(half.dial(hello).map(|_| ()).unwrap_err(), format!("{at}{why}"));
    refused(
        Hello {
            world: WorldId(7),
            ..half.hello()
        },
        "worker `w0` belongs to another world",
    );
    let mut to_other = half.hello();
    to_other.to.name = "w5".into();
    refused(to_other, "this is worker `w0` (rank 0), not `w5`");
    let mut from_stranger = half.hello();
    from_stranger.from.name = "stranger".into();
    refused(from_stranger, "`stranger` (rank 1) is not a member of this world");
    let mut beyond = half.hello();
    beyond.from.rank = 9;
    refused(beyond, "`w1` (rank 9) is not a member of this world");
    let mut earlier_incarnation = half.hello();
    earlier_incarnation.from.incarnation = Incarnation(1);
    refused(earlier_incarnation, "`w1` (rank 1) is not a member of this world");
    half.assert_serves();
}

#[test]
fn a_peer_with_another_digest_receives_the_functions_of_the_worker() {
    let half = HalfWorld::new(vec![]);
    let other = half.dial(half.hello()).unwrap().welcome;
    let functions = other.functions.expect("the digests differ");
    assert!(functions.describes("foreign::add"));
    let add = |layouts: &mut Layouts| {
        Some(Signature {
            is_method: false,
            arguments: <(i64, i64)>::layout(layouts),
            value: Some(i64::layout(layouts)),
        })
    };
    let theirs = Catalogue::new([("foreign::add", add)]);
    assert_eq!(theirs.differences(&functions, |_| &[]), []);
    let same = half
        .dial(Hello {
            digest: other.digest,
            ..half.hello()
        })
        .unwrap()
        .welcome;
    assert_eq!(same.functions, None, "equal digests need no functions");
}

#[test]
fn clients_of_other_protocols_are_refused_and_the_worker_keeps_serving() {
    let half = HalfWorld::new(vec![]);
    let address = half.address().to_string();
    // Sends bytes, and reads until the worker disconnects.
    let send = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let from = stream.local_addr().unwrap().to_string();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // Ends with a reset when the worker has not read everything.
        let _ = stream.read_to_end(&mut answer);
        (from, answer)
    };
    let (from, answer) = send(b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n");
    assert_eq!(answer, b"", "other protocols get no answer");
    Log::wait_for(&[
        &from,
        "turned away",
        "the first bytes are [47, 45, 54, 20]: not a Telegrad worker",
    ]);
    half.assert_serves();

    let mut other_version = preface();
    other_version[4..].copy_from_slice(&99_u32.to_le_bytes());
    let (from, answer) = send(&other_version);
    assert_eq!(
        answer,
        preface(),
        "the preface lets the other side report the version"
    );
    let ours = telegrad_net::PROTOCOL_VERSION;
    let text = format!("the other side speaks protocol version 99, this worker speaks {ours}");
    Log::wait_for(&[&from, &text]);
    half.assert_serves();

    let header = FrameHeader {
        length: 1 << 60,
        body_len: u32::MAX,
        ..FrameHeader::new(FrameKind::Hello, CallId(0))
    };
    let (from, _) = send(&[&preface()[..], &header.to_bytes()].concat());
    Log::wait_for(&[&from, "a frame claims 1152921504606846976 bytes, the limit is "]);
    half.assert_serves();

    let (from, _) = send(&[&preface()[..], &[0xff; 64]].concat());
    Log::wait_for(&[&from, "the handshake is broken: "]);
    half.assert_serves();
}

#[test]
fn a_silent_connection_is_closed_and_delays_no_other() {
    let half = HalfWorld::new(vec![]);
    let mut silent = TcpStream::connect(half.address()).unwrap();
    let mut partial = TcpStream::connect(half.address()).unwrap();
    partial.write_all(&preface()[..5]).unwrap();
    for _ in 0..20 {
        half.assert_serves();
    }
    for (stream, got) in [(&mut silent, 0), (&mut partial, 5)] {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
        let from = stream.local_addr().unwrap().to_string();
        Log::wait_for(&[&from, &format!("the handshake timed out after {got} bytes")]);
    }
}

/// Performs the handshake of both lanes byte by byte. Returns the control and the bulk connection.
fn lanes(half: &HalfWorld) -> (TcpStream, TcpStream) {
    let lane = |lane| {
        let mut stream = TcpStream::connect(half.address()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let body = encode(&Hello {
            lane,
            link: 99,
            ..half.hello()
        });
        let length = body.len();
        let header = FrameHeader {
            length: length as u64,
            body_len: length as u32,
            ..FrameHeader::new(FrameKind::Hello, CallId(0))
        };
        stream
            .write_all(&[&preface()[..], &header.to_bytes(), &body].concat())
            .unwrap();
        let mut answer = [0; 8 + 64];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..8], preface());
        let header = FrameHeader::from_bytes(answer[8..].try_into().unwrap(), 1 << 20).unwrap();
        assert_eq!(header.kind, FrameKind::Welcome);
        stream.read_exact(&mut vec![0; header.length as usize]).unwrap();
        stream
    };
    (lane(Lane::Control), lane(Lane::Bulk))
}

#[test]
fn a_member_that_sends_malformed_frames_loses_its_link_and_the_worker_keeps_serving() {
    let half = HalfWorld::new(vec![]);
    let claim = FrameHeader {
        length: 1 << 60,
        ..FrameHeader::new(FrameKind::Request, CallId(1))
    };
    let unknown = {
        let mut bytes = FrameHeader::new(FrameKind::Request, CallId(1)).to_bytes();
        bytes[60] = 200;
        bytes
    };
    let too_long = "a frame claims 1152921504606846976 bytes, the limit is ";
    let unknown_kind = "unknown frame kind 200: the peer does not speak this protocol";
    for (bytes, on_bulk, reason) in [
        (claim.to_bytes(), false, too_long),
        (claim.to_bytes(), true, too_long),
        (unknown, false, unknown_kind),
        (unknown, true, unknown_kind),
    ] {
        let (mut control, mut bulk) = lanes(&half);
        let lane = if on_bulk { &mut bulk } else { &mut control };
        lane.write_all(&bytes).unwrap();
        // Both lanes are closed.
        let _ = control.read_to_end(&mut Vec::new());
        let _ = bulk.read_to_end(&mut Vec::new());
        Log::wait_for(&[
            "`w1` (rank 1)",
            "was lost",
            "the peer violated the protocol",
            reason,
        ]);
        half.assert_serves();
    }
}
