//! Foreign callees, and other servers in their place.

use super::*;

/// A callee of another program.
struct Callee {
    functions: Arc<Catalogue>,
    requests: Sender<Vec<u8>>,
}

impl Host for Callee {
    fn admit(&self, _: &Hello) -> Result<Welcome, String> {
        Ok(Welcome {
            functions: Some(self.functions.clone()),
            digest: 1,
        })
    }

    fn sink(&self, _: &Hello) -> Arc<dyn Sink> {
        Arc::new(ReplyFour(self.requests.clone()))
    }

    fn options(&self) -> LinkOptions {
        LinkOptions::default()
    }

    fn accepted(&self, link: Arc<dyn Link>) {
        // Open until the process of the test ends.
        std::mem::forget(link);
    }
}

/// Replies 4 to every request, and passes the requests on.
pub(super) struct ReplyFour(pub(super) Sender<Vec<u8>>);

impl Sink for ReplyFour {
    fn receive(&self, link: &Arc<dyn Link>, message: Incoming<'_>) {
        let _ = self.0.send(message.body.to_vec());
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

/// Describes a function, with its signature if the callee has one.
pub(super) type Describe = fn(&mut Layouts) -> Option<Signature>;

/// Describes a function with these arguments and this result.
fn signature<A: Wire, R: Wire>(layouts: &mut Layouts) -> Option<Signature> {
    Some(Signature {
        is_method: false,
        arguments: A::layout(layouts),
        value: Some(R::layout(layouts)),
    })
}

/// Starts a callee with these functions. Returns its requests too.
fn serve(functions: &[(&str, Describe)]) -> (Arc<Callee>, Listener, Receiver<Vec<u8>>) {
    let functions = Arc::new(Catalogue::new(functions.iter().copied()));
    let (sender, requests) = channel();
    let callee = Arc::new(Callee {
        functions,
        requests: sender,
    });
    let host: Weak<Callee> = Arc::downgrade(&callee);
    let listener = listen(&Address::Tcp("127.0.0.1:0".parse().unwrap()), host, &poller).unwrap();
    (callee, listener, requests)
}

#[derive(Wire, Debug)]
struct Cfg {
    lr: f64,
    steps: u64,
}

#[derive(Wire)]
enum Plan {
    Fixed(Cfg),
    Annealed { from: Cfg, over: Vec<Plan> },
}

#[remote]
fn train(name: String, cfg: Cfg) -> String {
    format!("{name}: {} {}", cfg.lr, cfg.steps)
}

#[remote]
fn anneal(plan: Option<Plan>) -> Vec<Cfg> {
    match plan {
        Some(Plan::Fixed(cfg) | Plan::Annealed { from: cfg, .. }) => vec![cfg],
        None => Vec::new(),
    }
}

/// The same types in another version of the program: fields with another order and other types.
mod changed {
    use super::*;

    #[derive(Wire)]
    pub(super) struct Cfg {
        steps: f64,
        lr: u64,
    }

    #[derive(Wire)]
    pub(super) enum Plan {
        Fixed(super::Cfg),
        Annealed {
            from: super::Cfg,
            over: Vec<Plan>,
            by: f64,
        },
    }
}

#[test]
fn a_type_with_other_fields_is_reported_with_function_and_field() {
    let (_callee, listener, _) = serve(&[
        (
            "foreign::callees::anneal",
            signature::<(Option<changed::Plan>,), Vec<Cfg>>,
        ),
        (
            "foreign::callees::train",
            signature::<(String, changed::Cfg), String>,
        ),
    ]);
    let half = HalfWorld::new(vec![listener.address().clone()]);
    let cfg = || Cfg { lr: 0.1, steps: 3 };
    let error = half.world.rpc_sync("w1", train, ("a".into(), cfg())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`foreign::callees::train` has another signature on worker `w1`: \
         argument 2 (`cfg`): field 0 of `Cfg` is `steps` there and `lr` here"
    );
    let error = half.world.rpc_async("w1", anneal, (None,)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`foreign::callees::anneal` has another signature on worker `w1`: \
         argument 1 (`plan`): `Plan::Annealed` has field `by` there and not here"
    );
    let error = half.world.remote("w1", train, ("a".into(), cfg())).unwrap_err();
    assert!(matches!(error, Error::Mismatch(_)), "{error:?}");
}

#[test]
fn a_fetch_carries_the_expected_layout_to_another_program() {
    let make = ("foreign::name", signature::<(), String> as Describe);
    let arguments = |functions: &[(&str, Describe)]| {
        let (_callee, listener, requests) = serve(functions);
        let half = HalfWorld::new(vec![listener.address().clone()]);
        let name = half.world.remote("w1", name, ()).unwrap();
        let _ = name.to_here();
        let fetches = requests.iter().filter_map(|body| {
            let name = body.windows(FETCH.len()).position(|bytes| bytes == FETCH)?;
            Some(body[name + FETCH.len()..].to_vec())
        });
        fetches.take(1).next().unwrap()
    };
    let described = arguments(&[make, ("telegrad::fetch", signature::<(), ()>)]);
    assert_eq!(decode::<TypeLayout>(&described), TypeLayout::of::<String>());
    assert_eq!(
        arguments(&[make, ("telegrad::fetch", |_| None)]),
        encode(&()),
        "no layout for a callee that does not expect one"
    );
}

/// The name of the function that fetches a value, as a request has it.
const FETCH: &[u8] = b"telegrad::fetch";

#[test]
fn a_different_program_is_reported_by_the_functions_that_are_called() {
    let (_callee, listener, _) = serve(&[
        ("foreign::add", signature::<(i64, i64), i64>),
        ("foreign::join", signature::<(String, String), u8>),
    ]);
    let half = HalfWorld::new(vec![listener.address().clone()]);
    assert_eq!(
        half.world.rpc_sync("w1", add, (1, 1)).unwrap(),
        4,
        "a function with the same signature"
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
    let difference = "result: u8 there, String here";
    assert_eq!(
        error.to_string(),
        format!("`foreign::join` has another signature on worker `w1`: {difference}")
    );
    assert_eq!(
        half.world.rpc_sync("w1", add, (1, 1)).unwrap(),
        4,
        "the link is still usable"
    );
}

#[test]
fn a_peer_without_signatures_is_called_by_name_and_a_wrong_result_is_an_error() {
    let (_callee, listener, _) = serve(&[("foreign::add", |_| None), ("foreign::name", |_| None)]);
    let half = HalfWorld::new(vec![listener.address().clone()]);
    assert_eq!(half.world.rpc_sync("w1", add, (1, 1)).unwrap(), 4);
    let error = half.world.rpc_sync("w1", name, ()).unwrap_err();
    let text = "cannot read the result of `foreign::name` from worker `w1`: expected a string, found an unsigned integer";
    assert_eq!(error.to_string(), text);
}

/// Starts a server in place of `w1` that sends `bytes` to every client.
fn impostor(bytes: Vec<u8>) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(&bytes).unwrap();
            // Until the client disconnects.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    Address::Tcp(address)
}

#[test]
fn another_server_in_place_of_a_worker_is_reported_by_its_first_bytes() {
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
    for (bytes, reason) in cases {
        let half = HalfWorld::new(vec![impostor(bytes)]);
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
            "other calls still succeed"
        );
    }
}

#[test]
fn a_silent_server_in_place_of_a_worker_costs_no_more_than_the_time_limit() {
    let half = HalfWorld::new(vec![impostor(vec![])]);
    let started = Instant::now();
    let limited = half.world.with_timeout(Duration::from_millis(200));
    let text = limited.rpc_sync("w1", name, ()).unwrap_err().to_string();
    assert!(text.contains("the handshake timed out after 0 bytes"), "{text}");
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    // Other calls are not delayed meanwhile.
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
fn a_worker_without_a_listener_is_unreachable_at_once() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let half = HalfWorld::new(vec![Address::Tcp(unused)]);
    let text = half.world.rpc_sync("w1", name, ()).unwrap_err().to_string();
    let why = "Connection refused (os error 111)";
    assert_eq!(
        text,
        format!("cannot connect to worker `w1`: cannot reach tcp:{unused}: {why}")
    );
}
