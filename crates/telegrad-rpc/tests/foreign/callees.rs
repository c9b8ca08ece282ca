//! Peers that a worker calls, or means to.

use super::*;

/// A callee that this program did not make.
struct Callee {
    functions: Vec<(String, String)>,
}

impl Host for Callee {
    fn admit(&self, _: &Hello) -> Result<Welcome, String> {
        Ok(Welcome {
            functions: Some(self.functions.clone()),
            ..some_welcome()
        })
    }

    fn sink(&self, _: &Hello) -> Arc<dyn Sink> {
        Arc::new(AlwaysFour)
    }

    fn options(&self) -> LinkOptions {
        LinkOptions::default()
    }

    fn accepted(&self, link: Arc<dyn Link>) {
        // For the life of the test.
        std::mem::forget(link);
    }
}

fn some_welcome() -> Welcome {
    Welcome {
        digest: 1,
        functions: None,
    }
}

/// Answers 4 to whatever is asked.
pub(super) struct AlwaysFour;

impl Sink for AlwaysFour {
    fn receive(&self, link: &Arc<dyn Link>, message: Incoming<'_>) {
        let payload = Payload {
            body: encode(&4_u8),
            tensors: Vec::new(),
            ..Payload::default()
        };
        link.send(
            Outgoing::new(FrameKind::Reply, message.header.call, payload),
            Flush::Now,
            None,
        )
        .unwrap();
    }

    fn closed(&self, _: &Closed) {}
}

fn serve(functions: &[(&str, &str)]) -> (Arc<Callee>, Listener) {
    let functions = functions
        .iter()
        .map(|(name, signature)| (name.to_string(), signature.to_string()));
    let callee = Arc::new(Callee {
        functions: functions.collect(),
    });
    let host: Weak<Callee> = Arc::downgrade(&callee);
    let listener = listen(&Address::Tcp("127.0.0.1:0".parse().unwrap()), host, &poller).unwrap();
    (callee, listener)
}

#[test]
fn a_program_that_differs_is_noticed_by_the_functions_that_are_called() {
    let (_callee, listener) = serve(&[
        ("foreign::add", "(i64, i64) -> i64"),
        ("foreign::join", "(String) -> u8"),
    ]);
    let half = Half::new(vec![listener.address().clone()]);
    assert_eq!(
        half.world.rpc_sync("w1", add, (1, 1)).unwrap(),
        4,
        "this one is the same"
    );

    let error = half.world.rpc_sync("w1", name, ()).unwrap_err();
    assert!(
        matches!(&error, Error::Mismatch(why) if matches!(**why, Mismatch::Missing { .. })),
        "{error:?}"
    );
    let why = "it runs another program, or another version of this one";
    assert_eq!(
        error.to_string(),
        format!("worker `w1` has no function `foreign::name`: {why}")
    );

    let error = half
        .world
        .rpc_sync("w1", join, ("a".into(), "b".into()))
        .unwrap_err();
    assert!(
        matches!(&error, Error::Mismatch(why) if matches!(**why, Mismatch::Signature { .. })),
        "{error:?}"
    );
    let ours = "(String, String) -> String";
    assert_eq!(
        error.to_string(),
        format!("`foreign::join` is `(String) -> u8` on worker `w1` and `{ours}` here")
    );
    assert_eq!(
        half.world.rpc_sync("w1", add, (1, 1)).unwrap(),
        4,
        "it can still be called"
    );
}

#[test]
fn a_peer_without_signatures_is_called_by_name_and_its_nonsense_is_an_error() {
    let (_callee, listener) = serve(&[("foreign::add", ""), ("foreign::name", "")]);
    let half = Half::new(vec![listener.address().clone()]);
    assert_eq!(half.world.rpc_sync("w1", add, (1, 1)).unwrap(), 4);
    let error = half.world.rpc_sync("w1", name, ()).unwrap_err();
    let text = "the result of `foreign::name` from worker `w1` cannot be read: expected a string, found an unsigned integer";
    assert_eq!(error.to_string(), text);
}

/// Whom the worker reaches in the place of `w1`: says its part to everybody who connects.
fn speaker(part: Vec<u8>) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(&part).unwrap();
            // Until the other side hangs up.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    Address::Tcp(address)
}

#[test]
fn a_stranger_in_the_place_of_a_worker_is_told_by_what_it_says() {
    let mut other_version = preface();
    other_version[4..].copy_from_slice(&7_u32.to_le_bytes());
    let claim = FrameHeader {
        length: 1 << 60,
        ..FrameHeader::new(FrameKind::Welcome, CallId(0))
    };
    let ours = telegrad_net::PROTOCOL_VERSION;
    let cases = [
        (
            b"SSH-2.0-other".to_vec(),
            "the first bytes are [53, 53, 48, 2d]: not a Telegrad worker".to_owned(),
        ),
        (
            other_version.to_vec(),
            format!("the other side speaks protocol version 7, this worker speaks {ours}"),
        ),
        (
            [&preface()[..], &claim.to_bytes()].concat(),
            "the handshake is broken: a frame claims 1152921504606846976 bytes, the limit is ".to_owned(),
        ),
    ];
    for (part, reason) in cases {
        let half = Half::new(vec![speaker(part)]);
        let error = half.world.rpc_sync("w1", name, ()).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.starts_with("cannot connect to worker `w1`: cannot reach tcp:127.0.0.1:"),
            "{text}"
        );
        assert!(text.contains(&reason), "{text}");
        assert_eq!(
            half.world.rpc_sync("w0", name, ()).unwrap(),
            "here",
            "the others go on"
        );
    }
}

#[test]
fn somebody_silent_in_the_place_of_a_worker_costs_no_more_than_the_time_limit() {
    let half = Half::new(vec![speaker(vec![])]);
    let started = Instant::now();
    let limited = half.world.with_timeout(Duration::from_millis(200));
    let text = limited.rpc_sync("w1", name, ()).unwrap_err().to_string();
    assert!(
        text.contains("nothing but 0 bytes came within the time limit of the handshake"),
        "{text}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    // Meanwhile other calls, and their limits, are not held up.
    let (world, slow) = (
        half.world.clone(),
        half.world.with_timeout(Duration::from_secs(3)),
    );
    let connecting = std::thread::spawn(move || slow.rpc_sync("w1", name, ()).unwrap_err());
    while !connecting.is_finished() {
        let started = Instant::now();
        assert_eq!(world.rpc_sync("w0", name, ()).unwrap(), "here");
        let _ = world.debug_info();
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "{:?}",
            started.elapsed()
        );
    }
    connecting.join().unwrap();
}

#[test]
fn nobody_in_the_place_of_a_worker_is_unreachable_at_once() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let half = Half::new(vec![Address::Tcp(gone)]);
    let text = half.world.rpc_sync("w1", name, ()).unwrap_err().to_string();
    let why = "Connection refused (os error 111)";
    assert_eq!(
        text,
        format!("cannot connect to worker `w1`: cannot reach tcp:{gone}: {why}")
    );
}
