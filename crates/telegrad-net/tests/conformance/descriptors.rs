//! Links leave nothing open behind.

use telegrad_net::{Flush, LinkOptions};
use telegrad_wire::FrameKind;

use crate::harness::{
    Answer, Hosting, Inbox, Kind, Side, between_processes, command_alone, frame, limited, pattern, told,
};
use crate::raw::{connect, shake_hands};

between_processes! { two_hundred_links_leave_nothing_open }

fn two_hundred_links_leave_nothing_open(kind: Kind) {
    // In a process of its own: other tests open and close descriptors too.
    let output = command_alone("descriptors::rounds", &format!("{kind:?}"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
#[ignore = "run in a process of its own"]
fn rounds() {
    let Some(kind) = told() else { return };
    let kind = [Kind::Shared, Kind::Unix, Kind::Tcp]
        .into_iter()
        .find(|known| format!("{known:?}") == kind)
        .unwrap();
    limited(move || {
        let hosting = Hosting::start(kind, LinkOptions::default(), Inbox::echoing());
        let side = Side::new();
        let before = open();
        for round in 0..200_u64 {
            let inbox = Inbox::new();
            let link = side
                .dial(hosting.address(), inbox.clone(), LinkOptions::default())
                .unwrap();
            let other = hosting.accepted();
            // Every other link is used, on both lanes, by a thread that sleeps.
            if round % 2 == 0 {
                for size in [10, 100_000] {
                    let request = frame(FrameKind::Request, round, &pattern(size, 0));
                    link.send(request, Flush::Now, None).unwrap();
                    link.wait(&Answer(&inbox, round), None);
                    inbox.take(1);
                }
            }
            match round % 4 {
                0 => link.close("done"),
                1 => other.close("done"),
                2 => drop(link),
                // A peer that leaves during the handshake, and one that leaves after it.
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
        // Threads that read a moment ago let go soon; the limit of this test says how soon.
        while open() > before {
            std::thread::yield_now();
        }
        assert_eq!(open(), before);
    });
}
