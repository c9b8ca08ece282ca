//! Control characters in the texts of peers: none reaches a terminal or starts a line of a log (S23).

use super::*;

/// Clears the screen, starts a line, reverses the text direction.
const HOSTILE: &str = "\x1b[2Ja\nWARN b\u{202e}";
/// The same text as it is shown.
const HARMLESS: &str = "␛[2Ja␊WARN b\u{fffd}";

/// Returns hostile text that is far too long to show.
fn endless() -> String {
    format!("{HOSTILE}{}", "é".repeat(20_000))
}

#[track_caller]
fn assert_shown(text: &str) {
    assert!(text.contains(HARMLESS), "{text}");
    assert!(
        !text.contains(|char: char| char.is_control() || char == '\u{202e}'),
        "{text}"
    );
    assert!(text.chars().count() < 5_000, "{}", text.len());
}

/// Describes a function whose result type has a hostile name.
fn hostile_signature(layouts: &mut Layouts) -> Option<Signature> {
    Some(Signature {
        is_method: false,
        arguments: <()>::layout(layouts),
        value: Some(layouts.named(endless())),
    })
}

/// A callee that replies with a hostile error, or closes its links with a hostile reason.
struct HostileCallee {
    closes: bool,
}

impl Host for HostileCallee {
    fn admit(&self, _: &Hello) -> Result<Welcome, String> {
        Ok(Welcome {
            digest: 1,
            functions: Some(Arc::new(Catalogue::new([
                ("foreign::add", (|_| None) as callees::Describe),
                ("foreign::name", hostile_signature),
            ]))),
        })
    }

    fn sink(&self, _: &Hello) -> Arc<dyn Sink> {
        Arc::new(HostileSink { closes: self.closes })
    }

    fn options(&self) -> LinkOptions {
        LinkOptions::default()
    }

    fn accepted(&self, link: Arc<dyn Link>) {
        // Open until the process of the test ends.
        std::mem::forget(link);
    }
}

struct HostileSink {
    closes: bool,
}

impl Sink for HostileSink {
    fn receive(&self, link: &Arc<dyn Link>, message: Incoming<'_>) {
        if self.closes {
            return link.close(&endless());
        }
        let failure = RemoteError {
            kind: RemoteErrorKind::Failed,
            message: endless(),
            chain: vec![
                telegrad_rpc::Hop {
                    worker: HOSTILE.into(),
                    function: HOSTILE.into(),
                };
                2
            ],
        };
        let payload = Payload {
            body: encode(&failure),
            ..Payload::default()
        };
        let answer = Outgoing::new(FrameKind::Failure, message.header.call, payload);
        link.send(answer, Flush::Now, None).unwrap();
    }

    fn closed(&self, _: &Closed) {}
}

fn start_callee(closes: bool) -> (Arc<HostileCallee>, Listener, HalfWorld) {
    let callee = Arc::new(HostileCallee { closes });
    let host: Weak<HostileCallee> = Arc::downgrade(&callee);
    let listener = listen(&Address::Tcp("127.0.0.1:0".parse().unwrap()), host, &poller).unwrap();
    let half = HalfWorld::new(vec![listener.address().clone()]);
    (callee, listener, half)
}

#[test]
fn an_error_of_a_peer_is_shown_without_control_characters() {
    let (_callee, _listener, half) = start_callee(false);
    let error = half.world.rpc_sync("w1", add, (1, 1)).unwrap_err();
    let remote = error.remote().expect("an error of the callee");
    assert_eq!(remote.message, endless(), "a program reads the original text");
    let text = error.to_string();
    let start = format!(
        "`{HARMLESS}` failed on worker `{HARMLESS}` (called by `{HARMLESS}` on `{HARMLESS}`): {HARMLESS}é"
    );
    assert!(text.starts_with(&start), "{text}");
    assert!(
        text.ends_with(&format!("… ({} bytes)", endless().len())),
        "{text}"
    );
    assert_shown(&text);
}

#[test]
fn the_goodbye_of_a_peer_is_shown_without_control_characters() {
    let (_callee, _listener, half) = start_callee(true);
    let error = half.world.rpc_sync("w1", add, (1, 1)).unwrap_err();
    assert!(matches!(error, Error::WorkerLost { .. }), "{error:?}");
    assert_shown(&error.to_string());
}

#[test]
fn the_signature_of_a_peer_is_shown_without_control_characters() {
    let (_callee, _listener, half) = start_callee(false);
    let error = half.world.rpc_sync("w1", name, ()).unwrap_err();
    assert!(matches!(error, Error::Mismatch(_)), "{error:?}");
    assert_shown(&error.to_string());
}

#[test]
fn the_names_of_a_peer_are_shown_without_control_characters() {
    let half = HalfWorld::new(vec![]);
    let mut stranger = half.hello();
    stranger.from.name = endless();
    let Err(refused) = half.dial(stranger) else {
        panic!("a stranger was accepted")
    };
    assert_shown(&refused);
    Log::wait_for(&["turned away", HARMLESS, "is not a member of this world"]);
    let mut peer = half.dial(half.hello()).unwrap();
    let error = peer.call(&endless(), &()).unwrap_err();
    assert_eq!(error.kind, RemoteErrorKind::NotRegistered);
    assert_shown(error.function());
    half.assert_serves();
}

#[test]
fn a_refusal_of_a_peer_is_shown_without_control_characters() {
    struct Refusing;
    impl Host for Refusing {
        fn admit(&self, _: &Hello) -> Result<Welcome, String> {
            Err(endless())
        }
        fn sink(&self, _: &Hello) -> Arc<dyn Sink> {
            Arc::new(HostileSink { closes: false })
        }
        fn options(&self) -> LinkOptions {
            LinkOptions::default()
        }
        fn accepted(&self, _: Arc<dyn Link>) {}
    }
    let callee = Arc::new(Refusing);
    let host: Weak<Refusing> = Arc::downgrade(&callee);
    let listener = listen(&Address::Tcp("127.0.0.1:0".parse().unwrap()), host, &poller).unwrap();
    let half = HalfWorld::new(vec![listener.address().clone()]);
    let error = half.world.rpc_sync("w1", add, (1, 1)).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert_shown(&error.to_string());
}
