//! What a faulty network does to messages about references, and leaves to all others.

use telegrad_net::{Closed, Identity, Waiting};
use telegrad_rpc::{World, remote};
use telegrad_wire::{CallId, FrameKind, Incarnation};

use super::*;
use crate::{Cluster, wait_until};

const MESSAGES: u64 = 2000;

/// A link that passes on what is sent over it.
struct Straight {
    peer: Identity,
    sent: Sender<Sent>,
}

/// When it was sent, its number and its body.
type Sent = (Instant, u64, Vec<u8>);

impl Straight {
    fn link() -> (Arc<dyn Link>, Receiver<Sent>) {
        let (sent, received) = channel();
        let peer = Identity {
            name: "other".into(),
            rank: 1,
            incarnation: Incarnation(1),
        };
        (Arc::new(Self { peer, sent }), received)
    }
}

impl Link for Straight {
    fn peer(&self) -> &Identity {
        &self.peer
    }

    fn send(&self, message: Outgoing, _: Flush, _: Option<Instant>) -> Result<(), SendError> {
        let sent = (Instant::now(), message.header.call.0, message.payload.body);
        self.sent.send(sent).unwrap();
        Ok(())
    }

    fn wait_for_credit(&self, _: Option<Instant>) -> Result<bool, Closed> {
        Ok(true)
    }

    fn closed(&self) -> Option<Closed> {
        None
    }

    fn flush(&self) {}
    fn wait(&self, _: &dyn Waiting, _: Option<Instant>) {}
    fn poll(&self) {}
    fn interrupt(&self) {}
    fn watch(&self, _: bool) {}
    fn close(&self, _: &str) {}
}

fn message(number: u64, flags: u8) -> Outgoing {
    let payload = Payload {
        body: number.to_le_bytes().into(),
        ..Payload::default()
    };
    let mut message = Outgoing::new(FrameKind::Request, CallId(number), payload);
    message.header.flags = flags;
    message
}

/// Sends many messages, and gives the numbers of those that arrive, in the order in which they do.
fn through(faults: Faults, flags: u8) -> Vec<u64> {
    let (link, received) = Straight::link();
    let chance = Arc::new(Chance::new(faults));
    let faulty = chance.around(link);
    for number in 0..MESSAGES {
        faulty.send(message(number, flags), Flush::Now, None).unwrap();
    }
    let mut numbers = Vec::new();
    // A pause this long, and nothing else will come.
    while let Ok((_, number, body)) = received.recv_timeout(20 * LATEST) {
        assert_eq!(body, number.to_le_bytes());
        numbers.push(number);
    }
    numbers
}

/// How many numbers came more than once, and how many never did.
fn repeated_and_lost(numbers: &[u64]) -> (u64, u64) {
    let mut times = vec![0; MESSAGES as usize];
    for number in numbers {
        times[*number as usize] += 1;
    }
    let count = |wanted| times.iter().filter(|times| **times == wanted).count() as u64;
    assert_eq!(count(0) + count(1) + count(2), MESSAGES);
    (count(2), count(0))
}

/// Between a half and one and a half of the share that was asked for.
#[track_caller]
fn assert_about(count: u64, share: f64) {
    let expected = (MESSAGES as f64 * share) as u64;
    assert!(
        (expected / 2..2 * expected).contains(&count),
        "{count} of {MESSAGES}"
    );
}

#[test]
fn messages_about_references_are_lost_and_repeated_as_often_as_asked_for() {
    let faults = Faults {
        seed: 1,
        lose: 0.2,
        repeat: 0.1,
        ..Faults::default()
    };
    let (repeated, lost) = repeated_and_lost(&through(faults, IS_CONTROL));
    assert_about(lost, 0.2);
    assert_about(repeated, 0.1);
}

#[test]
fn messages_about_references_come_late_and_out_of_order() {
    let faults = Faults {
        seed: 1,
        delay: 0.1,
        ..Faults::default()
    };
    let numbers = through(faults, IS_CONTROL);
    assert_eq!(repeated_and_lost(&numbers), (0, 0));
    let overtaken = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
    assert!(overtaken > MESSAGES / 40, "{overtaken} came out of order");
}

#[test]
fn nothing_comes_later_than_the_longest_delay() {
    let (link, received) = Straight::link();
    let faults = Faults {
        delay: 1.0,
        ..Faults::default()
    };
    let faulty = Arc::new(Chance::new(faults)).around(link);
    let mut delays: Vec<_> = (0..50)
        .map(|number| {
            let sent = Instant::now();
            faulty
                .send(message(number, IS_CONTROL), Flush::Now, None)
                .unwrap();
            let (came, ..) = received.recv_timeout(Duration::from_secs(20)).unwrap();
            came - sent
        })
        .collect();
    delays.sort();
    // The machine may be busy, so one or the other may be later still.
    assert!(delays[5] < LATEST, "{delays:?}");
    assert!(delays[45] > Duration::from_millis(5), "{delays:?}");
}

#[test]
fn the_same_seed_brings_the_same_faults() {
    let faults = |seed| Faults {
        seed,
        lose: 0.3,
        delay: 0.1,
        repeat: 0.1,
    };
    let came = |seed| {
        let mut numbers = through(faults(seed), IS_CONTROL);
        numbers.sort_unstable();
        numbers
    };
    assert_eq!(came(7), came(7));
    assert_ne!(came(7), came(8));
}

#[test]
fn all_other_messages_go_straight_through() {
    let faults = Faults {
        lose: 1.0,
        ..Faults::default()
    };
    assert!(through(faults, 0).into_iter().eq(0..MESSAGES));
    assert!(through(faults, !IS_CONTROL).into_iter().eq(0..MESSAGES));
    assert!(through(faults, IS_CONTROL).is_empty());
}

#[test]
fn a_mended_network_is_a_good_one() {
    let (link, received) = Straight::link();
    let faults = Faults {
        lose: 1.0,
        ..Faults::default()
    };
    let chance = Arc::new(Chance::new(faults));
    let faulty = chance.around(link);
    faulty.send(message(1, IS_CONTROL), Flush::Now, None).unwrap();
    chance.mend();
    faulty.send(message(2, IS_CONTROL), Flush::Now, None).unwrap();
    assert_eq!(received.recv().unwrap().1, 2);
}

#[test]
#[should_panic(expected = "more faults than messages")]
fn shares_beyond_everything_are_refused() {
    let _ = Chance::new(Faults {
        lose: 0.6,
        delay: 0.6,
        ..Faults::default()
    });
}

#[remote]
fn one() -> u64 {
    1
}

/// The layer is in place on every worker: with nothing getting through, no reference is ever given up.
#[test]
fn a_cluster_has_the_faults_it_was_given() {
    let deaf = Faults {
        lose: 1.0,
        ..Faults::default()
    };
    Cluster::threads(2)
        .faults(deaf)
        .no_shutdown()
        .run(|world: World| {
            if world.rank() == 1 {
                return;
            }
            let reference = world.remote(1, one, ()).unwrap();
            assert_eq!(
                reference.to_here().unwrap(),
                1,
                "calls are not messages about references"
            );
            drop(reference);
            // It says so again and again.
            let made = world.debug_info().calls_made;
            wait_until(
                Duration::from_secs(20),
                || world.debug_info().calls_made >= made + 5,
                || world.debug_info(),
            );
            assert_eq!(world.debug_info().references_untold, 1);
        });
}
