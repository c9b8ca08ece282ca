//! Peers that a worker calls, or means to.

use super::*;

/// A callee that this program did not make.
struct Callee {
    functions: Arc<Catalogue>,
    asked: Sender<Vec<u8>>,
}

impl Host for Callee {
    fn admit(&self, _: &Hello) -> Result<Welcome, String> {
        Ok(Welcome {
            functions: Some(self.functions.clone()),
            ..some_welcome()
        })
    }

    fn sink(&self, _: &Hello) -> Arc<dyn Sink> {
        Arc::new(AlwaysFour(self.asked.clone()))
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

/// Answers 4 to whatever is asked, and passes the requests on.
pub(super) struct AlwaysFour(pub(super) Sender<Vec<u8>>);

impl Sink for AlwaysFour {
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

/// How a callee describes a function, if it does.
pub(super) type Describe = fn(&mut Layouts) -> Option<Signature>;

/// A function with these arguments and this value.
fn function<A: Wire, R: Wire>(layouts: &mut Layouts) -> Option<Signature> {
    Some(Signature {
        is_method: false,
        arguments: A::layout(layouts),
        value: Some(R::layout(layouts)),
    })
}

/// A callee with these functions, and the requests that it gets.
fn serve(functions: &[(&str, Describe)]) -> (Arc<Callee>, Listener, Receiver<Vec<u8>>) {
    let functions = Arc::new(Catalogue::new(functions.iter().copied()));
    let (asked, requests) = channel();
    let callee = Arc::new(Callee { functions, asked });
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

/// The same types in another version of the program, with fields that have changed places and types.
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
fn a_type_whose_fields_differ_is_an_error_that_names_function_and_field() {
    let (_callee, listener, _) = serve(&[
        (
            "foreign::callees::anneal",
            function::<(Option<changed::Plan>,), Vec<Cfg>>,
        ),
        (
            "foreign::callees::train",
            function::<(String, changed::Cfg), String>,
        ),
    ]);
    let half = Half::new(vec![listener.address().clone()]);
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
fn an_owner_that_runs_another_program_is_told_which_layout_is_expected() {
    let make = ("foreign::name", function::<(), String> as Describe);
    let arguments = |functions: &[(&str, Describe)]| {
        let (_callee, listener, requests) = serve(functions);
        let half = Half::new(vec![listener.address().clone()]);
        let name = half.world.remote("w1", name, ()).unwrap();
        let _ = name.to_here();
        let fetches = requests.iter().filter_map(|body| {
            let name = body.windows(FETCH.len()).position(|bytes| bytes == FETCH)?;
            Some(body[name + FETCH.len()..].to_vec())
        });
        fetches.take(1).next().unwrap()
    };
    let described = arguments(&[make, ("telegrad::fetch", function::<(), ()>)]);
    assert_eq!(decode::<TypeLayout>(&described), TypeLayout::of::<String>());
    assert_eq!(
        arguments(&[make, ("telegrad::fetch", |_| None)]),
        encode(&()),
        "it could not read a layout"
    );
}

/// The function that stands for fetching a value, as it is in a request.
const FETCH: &[u8] = b"telegrad::fetch";

#[test]
fn a_program_that_differs_is_noticed_by_the_functions_that_are_called() {
    let (_callee, listener, _) = serve(&[
        ("foreign::add", function::<(i64, i64), i64>),
        ("foreign::join", function::<(String, String), u8>),
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
    let difference = "result: u8 there, String here";
    assert_eq!(
        error.to_string(),
        format!("`foreign::join` has another signature on worker `w1`: {difference}")
    );
    assert_eq!(
        half.world.rpc_sync("w1", add, (1, 1)).unwrap(),
        4,
        "it can still be called"
    );
}

#[test]
fn a_peer_without_signatures_is_called_by_name_and_its_nonsense_is_an_error() {
    let (_callee, listener, _) = serve(&[("foreign::add", |_| None), ("foreign::name", |_| None)]);
    let half = Half::new(vec![listener.address().clone()]);
    assert_eq!(half.world.rpc_sync("w1", add, (1, 1)).unwrap(), 4);
    let error = half.world.rpc_sync("w1", name, ()).unwrap_err();
    let text = "cannot read the result of `foreign::name` from worker `w1`: expected a string, found an unsigned integer";
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
    assert!(text.contains("the handshake timed out after 0 bytes"), "{text}");
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
