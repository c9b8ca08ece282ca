//! The world of the model: workers, and the steps that change them.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::log::message;
use super::network::{Content, Packet};
use super::oracle::{Fork, ForkLocation, Oracle, Status, Value, Violation, f, r, w};
use super::{Effect, ForkId, Incarnation, ProtocolState, RefId, Transfer};

#[derive(Clone)]
pub(super) struct World {
    pub(super) workers: Vec<ModelWorker>,
    /// The packets in flight, in no order.
    pub(super) in_flight: Vec<Packet>,
    pub(super) oracle: Oracle,
    pub(super) left: Limits,
    /// A line for every step; `None` without a log.
    pub(super) log: Option<Vec<String>>,
}

#[derive(Clone)]
pub(super) struct ModelWorker {
    /// Shared between worlds in which it is equal.
    pub(super) protocol: Rc<ProtocolState>,
    /// The workers that [`Effect::Send`] has named and that no batch was sent to since.
    pub(super) due: BTreeSet<usize>,
    /// For each other worker, the number of the last batch that was sent to it.
    pub(super) sent: Vec<u64>,
    /// For each other worker, the number of the last batch received from it.
    pub(super) received: Vec<u64>,
    /// For each other worker, the number of the connection that this one uses. The two ends of a connection detect its loss
    /// one after the other.
    pub(super) connections: Vec<u64>,
    /// Peers and numbers of ended connections that were not reported to the protocol state yet.
    pub(super) ended: BTreeSet<(usize, u64)>,
}

/// How often each action and fault may occur. All other steps end by themselves.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Limits {
    pub(super) creations: u32,
    pub(super) transfers: u32,
    pub(super) uses: u32,
    pub(super) losses: u32,
    pub(super) repeats: u32,
    pub(super) disconnects: u32,
    pub(super) doubts: u32,
    pub(super) crashes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A worker stores a local value.
    Own(usize),
    /// A worker asks another, or itself, to create a value.
    Create {
        by: usize,
        owner: usize,
    },
    /// A creation whose request cannot be sent.
    CreateUnsent {
        by: usize,
        owner: usize,
    },
    Transfer {
        fork: ForkId,
        to: usize,
    },
    /// A transfer that cannot be sent.
    TransferUnsent {
        fork: ForkId,
        to: usize,
    },
    Drop(ForkId),
    Use(ForkId),
    /// Calls stop waiting for a value.
    StopWaiting(RefId),
    Send {
        from: usize,
        to: usize,
    },
    Deliver(usize),
    Lose(usize),
    Repeat(usize),
    /// A worker detects the loss of its connection to another.
    Disconnect {
        at: usize,
        from: usize,
    },
    /// Reports that loss to the protocol state, which may use the next connection already.
    ReportDisconnect {
        at: usize,
        from: usize,
        connection: u64,
    },
    /// The request of a worker times out without a reply.
    Doubt(ForkId),
    Crash(usize),
    /// A worker detects the crash of another.
    DetectCrash {
        at: usize,
        of: usize,
    },
}

pub(super) fn incarnation(worker: usize) -> Incarnation {
    telegrad_wire::Incarnation(worker as u64)
}

pub(super) fn index(incarnation: Incarnation) -> usize {
    incarnation.0 as usize
}

impl World {
    pub(super) fn new(workers: usize, left: Limits) -> Self {
        let worker = |number| ModelWorker {
            protocol: Rc::new(ProtocolState::new(incarnation(number))),
            due: BTreeSet::new(),
            sent: vec![0; workers],
            received: vec![0; workers],
            connections: vec![0; workers],
            ended: BTreeSet::new(),
        };
        let oracle = Oracle {
            up: vec![true; workers],
            ..Oracle::default()
        };
        Self {
            workers: (0..workers).map(worker).collect(),
            in_flight: Vec::new(),
            oracle,
            left,
            log: None,
        }
    }

    pub(super) fn take(&mut self, step: Step) -> Result<(), Violation> {
        match step {
            Step::Own(by) => {
                self.left.creations -= 1;
                let (reference, fork) = self.protocol(by).own();
                self.log_step(|| format!("{} owns {}", w(by), r(reference)));
                self.add_value(reference, fork, by, Status::Creation);
                self.oracle.confirm(fork)?;
                self.effects(by)
            }
            Step::Create { by, owner } => {
                self.left.creations -= 1;
                let (reference, fork) = self.create(by, owner)?;
                self.log_step(|| format!("{} asks {} to create {}", w(by), w(owner), r(reference)));
                self.add_value(reference, fork, owner, Status::Asked);
                let connection = self.workers[by].connections[owner];
                self.send(by, owner, Content::Request(reference, connection));
                self.effects(by)
            }
            Step::CreateUnsent { by, owner } => {
                self.left.creations -= 1;
                let (reference, fork) = self.create(by, owner)?;
                self.log_step(|| format!("{} fails to ask {} for {}", w(by), w(owner), r(reference)));
                self.protocol(by).not_created(fork);
                self.effects(by)
            }
            Step::Transfer { fork, to } => {
                self.left.transfers -= 1;
                let (by, transfer) = self.transfer(fork, to)?;
                self.log_step(|| {
                    let (parent, new, reference) = (f(fork), f(transfer.fork), r(transfer.reference));
                    format!(
                        "{} transfers {parent} of {reference} to {} as {new}",
                        w(by),
                        w(to)
                    )
                });
                let connection = self.workers[by].connections[to];
                self.send(by, to, Content::Reference(transfer, connection));
                self.effects(by)
            }
            Step::TransferUnsent { fork, to } => {
                self.left.transfers -= 1;
                let (by, transfer) = self.transfer(fork, to)?;
                self.log_step(|| format!("{} fails to transfer {} to {}", w(by), f(fork), w(to)));
                self.fork(transfer.fork).location = ForkLocation::NeverArrived;
                self.protocol(by).cancel_transfer(transfer.fork);
                self.effects(by)
            }
            Step::Drop(fork) => {
                let by = self.fork(fork).holder;
                self.log_step(|| format!("{} drops {}", w(by), f(fork)));
                self.fork(fork).location = ForkLocation::Dropped;
                self.protocol(by).drop_handle(fork);
                self.effects(by)
            }
            Step::Use(fork) => {
                self.left.uses -= 1;
                let Fork {
                    holder, reference, ..
                } = *self.fork(fork);
                let owner = self.oracle.values[&reference].owner;
                self.log_step(|| format!("{} uses {} of {}", w(holder), f(fork), r(reference)));
                let connection = self.workers[holder].connections[owner];
                self.send(holder, owner, Content::Use(fork, connection));
                Ok(())
            }
            Step::StopWaiting(reference) => {
                let owner = self.oracle.values[&reference].owner;
                self.log_step(|| format!("{} stops waiting for {}", w(owner), r(reference)));
                self.value(reference).waited_for = false;
                self.protocol(owner).stop_waiting(reference);
                let status = self.value(reference).status;
                let effects = self.protocol(owner).take_effects();
                // Only the empty slot is freed.
                match effects[..] {
                    [] => Ok(()),
                    [Effect::Free(freed)]
                        if freed == reference && matches!(status, Status::Asked | Status::Freed) =>
                    {
                        Ok(())
                    }
                    _ => Err(format!("{effects:?} at the end of the wait for {}", r(reference))),
                }
            }
            Step::Send { from, to } => {
                let batch = self.protocol(from).next_batch(incarnation(to));
                let batch = batch.ok_or_else(|| format!("{} has no batch for {}", w(from), w(to)))?;
                self.workers[from].due.remove(&to);
                self.workers[from].sent[to] = batch.number;
                self.log_step(|| {
                    let messages: Vec<_> = batch.messages.iter().map(message).collect();
                    let number = batch.number;
                    format!(
                        "{} sends {} batch {number}: {}",
                        w(from),
                        w(to),
                        messages.join(", ")
                    )
                });
                self.send(from, to, Content::Batch(batch));
                Ok(())
            }
            Step::Deliver(which) => self.deliver(which),
            Step::Lose(which) => {
                self.left.losses -= 1;
                let packet = self.in_flight.swap_remove(which);
                self.log_step(|| format!("{} is lost", packet.describe()));
                Ok(())
            }
            Step::Repeat(which) => {
                self.left.repeats -= 1;
                let packet = self.in_flight[which].clone();
                self.log_step(|| format!("{} is repeated", packet.describe()));
                self.in_flight.push(packet);
                Ok(())
            }
            Step::Disconnect { at, from } => self.disconnect(at, from),
            Step::ReportDisconnect { at, from, connection } => self.report_disconnect(at, from, connection),
            Step::Doubt(fork) => {
                self.left.doubts -= 1;
                let Fork {
                    holder, reference, ..
                } = *self.fork(fork);
                self.log_step(|| {
                    format!(
                        "{} times out waiting for the creation of {}",
                        w(holder),
                        r(reference)
                    )
                });
                self.value(reference).in_doubt = true;
                self.protocol(holder).creation_in_doubt(fork);
                self.effects(holder)
            }
            Step::Crash(worker) => {
                self.left.crashes -= 1;
                self.log_step(|| format!("{} crashes", w(worker)));
                self.oracle.up[worker] = false;
                self.lose_packets(|packet| packet.to == worker);
                Ok(())
            }
            Step::DetectCrash { at, of } => {
                self.log_step(|| format!("{} detects the crash of {}", w(at), w(of)));
                self.lose_packets(|packet| packet.from == of && packet.to == at);
                self.workers[at].due.remove(&of);
                self.workers[at].ended.retain(|(to, _)| *to != of);
                self.protocol(at).worker_lost(incarnation(of));
                self.effects(at)
            }
        }
    }

    fn create(&mut self, by: usize, owner: usize) -> Result<(RefId, ForkId), Violation> {
        let created = self.protocol(by).create(incarnation(owner));
        created.ok_or_else(|| format!("{} refuses to ask {}", w(by), w(owner)))
    }

    fn transfer(&mut self, parent: ForkId, to: usize) -> Result<(usize, Transfer), Violation> {
        let Fork {
            holder, reference, ..
        } = *self.fork(parent);
        let connection = self.workers[holder].connections[to];
        let transfer = self
            .protocol(holder)
            .transfer(parent, incarnation(to), connection);
        let transfer = transfer.ok_or_else(|| format!("{} cannot be transferred", f(parent)))?;
        let fork = Fork {
            reference,
            holder: to,
            parent: Some((parent, holder)),
            connection,
            location: ForkLocation::InTransit,
            confirmed: false,
            lost: false,
            stale: false,
            in_doubt: false,
        };
        self.oracle.forks.insert(transfer.fork, fork);
        Ok((holder, transfer))
    }

    /// Carries out the effects of a protocol state.
    pub(super) fn effects(&mut self, at: usize) -> Result<(), Violation> {
        for effect in self.protocol(at).take_effects() {
            self.log_step(|| match effect {
                Effect::Free(reference) => format!("  {} frees {}", w(at), r(reference)),
                Effect::Fail(reference, loss) => format!("  {} fails {}: {loss:?}", w(at), r(reference)),
                Effect::Confirmed(fork) => format!("  {} is confirmed", f(fork)),
                Effect::Lost(fork, loss) => format!("  {} is lost: {loss:?}", f(fork)),
                Effect::Send(to, urgency) => {
                    format!("  {} has messages for {}: {urgency:?}", w(at), w(index(to)))
                }
            });
            match effect {
                Effect::Free(reference) => self.oracle.free(reference)?,
                Effect::Fail(reference, loss) => self.oracle.fail(reference, loss)?,
                Effect::Confirmed(fork) => self.oracle.confirm(fork)?,
                Effect::Lost(fork, loss) => self.oracle.lose(fork, loss)?,
                Effect::Send(to, _) => {
                    self.workers[at].due.insert(index(to));
                }
            }
        }
        Ok(())
    }

    fn add_value(&mut self, reference: RefId, id: ForkId, owner: usize, status: Status) {
        let value = Value {
            owner,
            status,
            in_doubt: false,
            request_lost: false,
            waited_for: false,
        };
        let holder = index(reference.0.by);
        let fork = Fork {
            reference,
            holder,
            parent: None,
            connection: self.workers[holder].connections[owner],
            location: ForkLocation::Held,
            confirmed: false,
            lost: false,
            stale: false,
            in_doubt: false,
        };
        self.oracle.values.insert(reference, value);
        self.oracle.forks.insert(id, fork);
    }

    pub(super) fn protocol(&mut self, of: usize) -> &mut ProtocolState {
        Rc::make_mut(&mut self.workers[of].protocol)
    }

    pub(super) fn fork(&mut self, id: ForkId) -> &mut Fork {
        self.oracle.forks.get_mut(&id).expect("the fork was made")
    }

    pub(super) fn value(&mut self, reference: RefId) -> &mut Value {
        self.oracle
            .values
            .get_mut(&reference)
            .expect("the value was requested")
    }

    pub(super) fn log_step(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(line());
        }
    }
}
