//! Links leave no descriptors open, and report when there are none left.

use telegrad_net::{Flush, LinkOptions, shared_tensor};
use telegrad_wire::{DType, FrameKind};

use crate::harness::{
    Answer, Inbox, Kind, TestWorker, WorkerThreads, argument, between_processes, command_alone, frame,
    limited, on_links, on_sockets, pair, pattern, tensor, tensors,
};
use crate::raw::{connect, read_to_end, shake_hands};

between_processes! { two_hundred_links_leave_no_descriptors_open }
on_sockets! {
    connections_are_turned_away_without_descriptors,
    a_dialler_reports_missing_descriptors,
}
on_links! { a_borrower_reports_missing_descriptors: shared = Kind::Shared }

fn two_hundred_links_leave_no_descriptors_open(kind: Kind) {
    passes_alone("descriptors::rounds", kind);
}

fn connections_are_turned_away_without_descriptors(kind: Kind) {
    let logged = passes_alone("descriptors::exhausted", kind);
    let line = logged
        .lines()
        .find(|line| line.contains("a connection was not accepted"));
    assert!(line.is_some_and(|line| line.contains(EXHAUSTED)), "{logged}");
}

fn a_dialler_reports_missing_descriptors(kind: Kind) {
    passes_alone("descriptors::dialling", kind);
}

fn a_borrower_reports_missing_descriptors(kind: Kind) {
    passes_alone("descriptors::borrowing", kind);
}

const EXHAUSTED: &str = "too many open files in this process (the limit is 256): raise `ulimit -n`";

/// Runs an ignored test in its own process: other tests open and close descriptors too.
fn passes_alone(test: &str, kind: Kind) -> String {
    let output = command_alone(test, &format!("{kind:?}")).output().unwrap();
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{complained}");
    assert!(said.contains("1 passed"), "{said}");
    complained.into_owned()
}

/// Limits the descriptors of this process, and sends its log to standard error.
fn limit_descriptors() {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = Some(256);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
}

/// Opens descriptors until there are none left.
fn all_descriptors() -> Vec<std::fs::File> {
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The kind of link in this process's argument.
fn argument_kind() -> Option<Kind> {
    let argument = argument()?;
    Some(match argument.strip_prefix("Tcp(") {
        Some(lanes) => Kind::Tcp(lanes.trim_end_matches(')').parse().unwrap()),
        None if argument == "Shared" => Kind::Shared,
        None if argument == "Streamed" => Kind::Streamed,
        None => Kind::Unix,
    })
}

#[test]
#[ignore = "run in a process of its own"]
fn exhausted() {
    let Some(kind) = argument_kind() else { return };
    limited(move || {
        limit_descriptors();
        let hosting = TestWorker::start(kind, LinkOptions::default(), Inbox::new());
        let mut all = all_descriptors();
        for _ in 0..3 {
            // One for this end, and none for the other.
            all.pop();
            assert_eq!(read_to_end(&mut connect(hosting.address())), b"");
            all.push(std::fs::File::open("/dev/null").unwrap());
        }
        drop(all);
        let options = kind.options(LinkOptions::default());
        let _link = WorkerThreads::new()
            .dial(hosting.address(), Inbox::new(), options)
            .unwrap();
        hosting.accepted();
    });
}

#[test]
#[ignore = "run in a process of its own"]
fn dialling() {
    let Some(kind) = argument_kind() else { return };
    limited(move || {
        limit_descriptors();
        let hosting = TestWorker::start(kind, LinkOptions::default(), Inbox::new());
        let side = WorkerThreads::new();
        let all = all_descriptors();
        let options = || kind.options(LinkOptions::default());
        let Err(error) = side.dial(hosting.address(), Inbox::new(), options()) else {
            panic!("a descriptor was left")
        };
        let start = format!("cannot reach {}: {EXHAUSTED}", hosting.address());
        assert!(error.to_string().starts_with(&start), "{error}");
        assert!(!error.not_listening && !error.refused);
        drop(all);
        side.dial(hosting.address(), Inbox::new(), options()).unwrap();
    });
}

#[test]
#[ignore = "run in a process of its own"]
fn borrowing() {
    let Some(kind) = argument_kind() else { return };
    limited(move || {
        limit_descriptors();
        let pair = pair(kind);
        let large = tensor(DType::U8, &[1 << 20], 0);
        // The arena has its memory, but the other end has not got its descriptor yet.
        shared_tensor(large.meta().clone(), |_| ()).unwrap();
        let all = all_descriptors();
        pair.a.send(tensors(FrameKind::Request, 1, &[large]));
        let closed = pair.b.inbox.closed();
        let start = format!("the connection failed: shared memory cannot be received: {EXHAUSTED}");
        assert!(!closed.graceful && closed.why.starts_with(&start), "{closed:?}");
        drop(all);
    });
}

#[test]
#[ignore = "run in a process of its own"]
fn rounds() {
    let Some(kind) = argument_kind() else { return };
    limited(move || {
        let hosting = TestWorker::start(kind, LinkOptions::default(), Inbox::echoing());
        let side = WorkerThreads::new();
        // The arena keeps its descriptor for the life of the process.
        let meta = tensor(DType::U8, &[1], 0).meta().clone();
        shared_tensor(meta, |_| ()).unwrap();
        let before = open();
        for round in 0..200_u64 {
            let inbox = Inbox::new();
            let link = side
                .dial(
                    hosting.address(),
                    inbox.clone(),
                    kind.options(LinkOptions::default()),
                )
                .unwrap();
            let other = hosting.accepted();
            // Every other link is used, on both lanes, by a sleeping thread.
            if round % 2 == 0 {
                for size in [10, 100_000] {
                    let request = frame(FrameKind::Request, round, &pattern(size, 0));
                    link.send(request, Flush::Now, None).unwrap();
                    link.wait(&Answer(&inbox, round), None);
                    inbox.take(1);
                }
                // Also on further lanes.
                let large = tensor(DType::U8, &[1 << 20], 0);
                link.send(tensors(FrameKind::Cancel, round, &[large]), Flush::Now, None)
                    .unwrap();
            }
            match round % 4 {
                0 => link.close("done"),
                1 => other.close("done"),
                2 => drop(link),
                // One peer that leaves during the handshake, and one that leaves after it.
                _ => {
                    drop(connect(hosting.address()));
                    drop(shake_hands(hosting.address()));
                    let raw = hosting.accepted();
                    while raw.closed().is_none() {
                        std::thread::yield_now();
                    }
                }
            }
        }
        // Kept loans of a link keep a descriptor at the other side, until the next link ends.
        let received = hosting.inbox();
        // Reading threads let go soon; the limit of this test says how soon.
        while open() > before {
            received.take(received.len());
            let link = side.dial(
                hosting.address(),
                Inbox::new(),
                kind.options(LinkOptions::default()),
            );
            drop((link, hosting.accepted()));
        }
        assert_eq!(open(), before);
    });
}
