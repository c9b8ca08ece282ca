//! The network of the model: packets in flight, their delivery and loss.

use super::log::message;
use super::oracle::{Fork, ForkLocation, Violation, f, w};
use super::world::{World, incarnation};
use super::{Answer, Batch, ForkId, Loss, Message, Received, RefId, Transfer};

/// A packet in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Packet {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Content {
    /// A request to create a value, and its connection.
    Request(RefId, u64),
    /// The acknowledgement of such a request.
    Reply(RefId, u64),
    /// A transferred reference.
    Reference(Transfer, u64),
    /// A call that uses a value through this fork.
    Use(ForkId, u64),
    Batch(Batch),
    Answers(u64, Vec<Answer>),
}

impl World {
    /// Sends a packet; loses it if its receiver has crashed or its connection has ended.
    pub(super) fn send(&mut self, from: usize, to: usize, content: Content) {
        self.in_flight.push(Packet { from, to, content });
        let (up, workers) = (&self.oracle.up, &self.workers);
        let lost = |packet: &Packet| {
            let ended = packet
                .content
                .connection()
                .is_some_and(|connection| connection < workers[to].connections[from]);
            !up[packet.to] || ended
        };
        if self.in_flight.last().is_some_and(lost) {
            let last = self.in_flight.len() - 1;
            self.lose_packet(last);
        }
    }

    pub(super) fn lose_packets(&mut self, which: impl Fn(&Packet) -> bool) {
        for at in (0..self.in_flight.len()).rev() {
            if which(&self.in_flight[at]) {
                self.lose_packet(at);
            }
        }
    }

    fn lose_packet(&mut self, at: usize) {
        let packet = self.in_flight.swap_remove(at);
        self.log_step(|| format!("  {} is lost", packet.describe()));
        match packet.content {
            Content::Reference(transfer, _) => self.fork(transfer.fork).location = ForkLocation::NeverArrived,
            Content::Request(reference, _) => self.value(reference).request_lost = true,
            Content::Reply(..) | Content::Use(..) | Content::Batch(_) | Content::Answers(..) => {}
        }
    }

    pub(super) fn deliver(&mut self, which: usize) -> Result<(), Violation> {
        let packet = self.in_flight.swap_remove(which);
        self.log_step(|| format!("{} arrives", packet.describe()));
        let Packet { from, to, content } = packet;
        match content {
            Content::Request(reference, connection) => {
                let carried_out = self.protocol(to).make(reference, incarnation(from));
                self.oracle.make(reference, carried_out)?;
                if carried_out {
                    self.send(to, from, Content::Reply(reference, connection));
                }
            }
            Content::Reply(reference, _) => self.protocol(to).created(ForkId(reference.0)),
            Content::Reference(transfer, _) => {
                let known = self.workers[to].protocol.owned.contains_key(&transfer.reference);
                let received = self.protocol(to).receive(transfer, incarnation(from));
                self.log_step(|| format!("  {} takes it as {received:?}", w(to)));
                self.fork(transfer.fork).location = ForkLocation::Held;
                match received {
                    Received::Confirmed => self.oracle.confirm(transfer.fork)?,
                    Received::Unconfirmed if transfer.owner == incarnation(from) => {
                        return Err(format!(
                            "{} arrives from its owner, but unconfirmed",
                            f(transfer.fork)
                        ));
                    }
                    Received::Unconfirmed => {}
                    Received::Lost(Loss::Value) if known => {
                        return Err(format!("{} is lost, but its value exists", f(transfer.fork)));
                    }
                    Received::Lost(loss) => self.oracle.lose(transfer.fork, loss)?,
                    Received::Refused => {
                        let fork = self.fork(transfer.fork);
                        fork.location = ForkLocation::NeverArrived;
                        if !fork.in_doubt {
                            return Err(format!(
                                "{} is refused, but its sender did not ask",
                                f(transfer.fork)
                            ));
                        }
                    }
                }
            }
            Content::Use(fork, _) => {
                let Fork {
                    reference,
                    confirmed,
                    location,
                    ..
                } = *self.fork(fork);
                let used = &self.oracle.forks[&fork];
                let valid = location == ForkLocation::Held
                    && !used.lost
                    && (confirmed && !used.stale || self.oracle.protects_value(used));
                let expected = self.protocol(to).is_expected(reference);
                if valid && !expected {
                    return Err(format!(
                        "{} is valid, but its value is not expected (R1, R2)",
                        f(fork)
                    ));
                }
                self.value(reference).waited_for = expected && self.is_awaited(reference);
            }
            Content::Batch(batch) => {
                let due = self.due_answers(to, from, &batch);
                if let Some(answers) = self.protocol(to).receive_batch(incarnation(from), &batch) {
                    if let Some((at, due)) = due.into_iter().find(|(at, due)| answers[*at] != *due) {
                        let (message, answer) = (message(&batch.messages[at]), answers[at]);
                        return Err(format!("\"{message}\" is answered {answer:?}, not {due:?}"));
                    }
                    self.send(to, from, Content::Answers(batch.number, answers));
                }
            }
            Content::Answers(number, answers) => {
                self.protocol(to)
                    .receive_answers(incarnation(from), number, &answers)
            }
        }
        self.effects(to)
    }

    /// Returns the answers that are determined: the value exists, or the sender that vouches for the fork is known to be lost.
    fn due_answers(&mut self, at: usize, from: usize, batch: &Batch) -> Vec<(usize, Answer)> {
        let received = &mut self.workers[at].received[from];
        let first = batch.number > std::mem::replace(received, batch.number.max(*received));
        let releases = |message: &Message| matches!(message, Message::Release { .. });
        // A repeated batch gets its earlier answers. A batch with a release may free the value on the way.
        if !first || batch.messages.iter().any(releases) {
            return Vec::new();
        }
        let protocol = &self.workers[at].protocol;
        let due = |(at, message): (usize, &Message)| match message {
            Message::Hold { reference, .. } if protocol.owned.contains_key(reference) => {
                Some((at, Answer::Done))
            }
            // Another message of the batch may list the value first.
            Message::Hold { sender, .. } if protocol.is_lost(*sender) && batch.messages.len() == 1 => {
                Some((at, Answer::NoValue))
            }
            _ => None,
        };
        batch.messages.iter().enumerate().filter_map(due).collect()
    }

    /// Ends a connection at one end, which loses the packets to it. Packets from it may arrive until the other end detects the
    /// loss, too.
    pub(super) fn disconnect(&mut self, at: usize, from: usize) -> Result<(), Violation> {
        let connection = self.workers[at].connections[from];
        if connection == self.workers[from].connections[at] {
            self.left.disconnects -= 1;
        }
        self.log_step(|| format!("{} loses connection {connection} to {}", w(at), w(from)));
        self.workers[at].connections[from] += 1;
        self.lose_packets(|packet| {
            packet.from == from && packet.to == at && packet.content.connection() == Some(connection)
        });
        let mut pending = self.workers[at].protocol.transfers.values();
        // Without pending transfers the report has no effect, so its time does not matter.
        if pending.any(|pending| (pending.to, pending.connection) == (incarnation(from), connection)) {
            self.workers[at].ended.insert((from, connection));
        }
        let unanswered = self.oracle.forks.iter().filter(|(_, fork)| {
            let asked = (fork.holder, self.oracle.owner(fork), fork.connection) == (at, from, connection);
            asked && fork.parent.is_none() && !fork.confirmed
        });
        let unanswered: Vec<_> = unanswered.map(|(id, fork)| (*id, fork.reference)).collect();
        for (fork, reference) in unanswered {
            self.value(reference).in_doubt = true;
            self.protocol(at).creation_in_doubt(fork);
        }
        self.effects(at)
    }

    pub(super) fn report_disconnect(
        &mut self,
        at: usize,
        from: usize,
        connection: u64,
    ) -> Result<(), Violation> {
        self.log_step(|| {
            format!(
                "{} reports the loss of connection {connection} to {}",
                w(at),
                w(from)
            )
        });
        self.workers[at].ended.remove(&(from, connection));
        for fork in self.oracle.forks.values_mut() {
            let is_sender = fork.parent.is_some_and(|(_, sender)| sender == at);
            fork.in_doubt |= is_sender && (fork.holder, fork.connection) == (from, connection);
        }
        self.protocol(at).connection_lost(incarnation(from), connection);
        self.effects(at)
    }
}

impl Content {
    /// Returns the connection that the packet is lost with.
    fn connection(&self) -> Option<u64> {
        match self {
            Self::Request(_, connection)
            | Self::Reply(_, connection)
            | Self::Reference(_, connection)
            | Self::Use(_, connection) => Some(*connection),
            Self::Batch(_) | Self::Answers(..) => None,
        }
    }

    /// Whether the packet is resent until it arrives, so that its loss or repetition must have no effect.
    pub(super) fn is_retried(&self) -> bool {
        matches!(self, Self::Batch(_) | Self::Answers(..))
    }
}
