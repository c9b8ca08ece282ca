//! Faults affect messages of the reference protocol only.

use telegrad_net::{Closed, Identity, Waiting};
use telegrad_rpc::{World, remote};
use telegrad_wire::{CallId, FrameKind, Incarnation};

use super::*;
use crate::{Cluster, wait_until};

const MESSAGES: u64 = 2000;

/// A link that forwards every message to a channel.
struct ChannelLink {
    peer: Identity,
    sent: Sender<Sent>,
}

/// Time of sending, number and body.
type Sent = (Instant, u64, Vec<u8>);

impl ChannelLink {
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

impl Link for ChannelLink {
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

/// Sends many messages and returns the numbers of those that arrive, in order of arrival.
fn arrivals(faults: Faults, flags: u8) -> Vec<u64> {
    let (link, received) = ChannelLink::link();
    let injector = Arc::new(FaultInjector::new(faults));
    let faulty = injector.around(link);
    for number in 0..MESSAGES {
        faulty.send(message(number, flags), Flush::Now, None).unwrap();
    }
    let mut numbers = Vec::new();
    // After a pause this long no more messages follow.
    while let Ok((_, number, body)) = received.recv_timeout(20 * MAX_DELAY) {
        assert_eq!(body, number.to_le_bytes());
        numbers.push(number);
    }
    numbers
}

/// Counts the numbers that arrived twice, and those that never did.
fn repeated_and_lost(numbers: &[u64]) -> (u64, u64) {
    let mut times = vec![0; MESSAGES as usize];
    for number in numbers {
        times[*number as usize] += 1;
    }
    let count = |wanted| times.iter().filter(|times| **times == wanted).count() as u64;
    assert_eq!(count(0) + count(1) + count(2), MESSAGES);
    (count(2), count(0))
}

/// Asserts a count between half and twice the expected share.
#[track_caller]
fn assert_about(count: u64, share: f64) {
    let expected = (MESSAGES as f64 * share) as u64;
    assert!(
        (expected / 2..2 * expected).contains(&count),
        "{count} of {MESSAGES}"
    );
}

#[test]
fn messages_are_lost_and_repeated_at_the_given_rates() {
    let faults = Faults {
        seed: 1,
        lose: 0.2,
        repeat: 0.1,
        ..Faults::default()
    };
    let (repeated, lost) = repeated_and_lost(&arrivals(faults, IS_CONTROL));
    assert_about(lost, 0.2);
    assert_about(repeated, 0.1);
}

#[test]
fn messages_are_delayed_and_reordered() {
    let faults = Faults {
        seed: 1,
        delay: 0.1,
        ..Faults::default()
    };
    let numbers = arrivals(faults, IS_CONTROL);
    assert_eq!(repeated_and_lost(&numbers), (0, 0));
    let overtaken = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
    assert!(overtaken > MESSAGES / 40, "{overtaken} came out of order");
}

#[test]
fn delays_are_bounded() {
    let (link, received) = ChannelLink::link();
    let faults = Faults {
        delay: 1.0,
        ..Faults::default()
    };
    let faulty = Arc::new(FaultInjector::new(faults)).around(link);
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
    // A busy machine may delay a few messages further.
    assert!(delays[5] < MAX_DELAY, "{delays:?}");
    assert!(delays[45] > Duration::from_millis(5), "{delays:?}");
}

#[test]
fn equal_seeds_cause_equal_faults() {
    let faults = |seed| Faults {
        seed,
        lose: 0.3,
        delay: 0.1,
        repeat: 0.1,
    };
    let arrived = |seed| {
        let mut numbers = arrivals(faults(seed), IS_CONTROL);
        numbers.sort_unstable();
        numbers
    };
    assert_eq!(arrived(7), arrived(7));
    assert_ne!(arrived(7), arrived(8));
}

#[test]
fn other_messages_pass() {
    let faults = Faults {
        lose: 1.0,
        ..Faults::default()
    };
    assert!(arrivals(faults, 0).into_iter().eq(0..MESSAGES));
    assert!(arrivals(faults, !IS_CONTROL).into_iter().eq(0..MESSAGES));
    assert!(arrivals(faults, IS_CONTROL).is_empty());
}

#[test]
fn a_repaired_network_has_no_faults() {
    let (link, received) = ChannelLink::link();
    let faults = Faults {
        lose: 1.0,
        ..Faults::default()
    };
    let injector = Arc::new(FaultInjector::new(faults));
    let faulty = injector.around(link);
    faulty.send(message(1, IS_CONTROL), Flush::Now, None).unwrap();
    injector.repair();
    faulty.send(message(2, IS_CONTROL), Flush::Now, None).unwrap();
    assert_eq!(received.recv().unwrap().1, 2);
}

#[test]
#[should_panic(expected = "the shares of faults exceed 1")]
fn shares_above_one_are_rejected() {
    let _ = FaultInjector::new(Faults {
        lose: 0.6,
        delay: 0.6,
        ..Faults::default()
    });
}

#[remote]
fn one() -> u64 {
    1
}

/// The layer is active on every worker: if every message is lost, no reference is ever released.
#[test]
fn a_cluster_applies_its_faults() {
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
            assert_eq!(reference.to_here().unwrap(), 1, "calls are not affected");
            drop(reference);
            // The release is retried.
            let made = world.debug_info().calls_made;
            wait_until(
                Duration::from_secs(20),
                || world.debug_info().calls_made >= made + 5,
                || world.debug_info(),
            );
            assert_eq!(world.debug_info().references_untold, 1);
        });
}
