//! Workers, and everything that can happen to them.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::network::{Load, Thing};
use super::story::message;
use super::truth::{Fork, Status, Truth, Value, ValueLocation, Wrong, f, r, w};
use super::{Effect, ForkId, Handover, Incarnation, ProtocolState, RefId};

#[derive(Clone)]
pub(super) struct World {
    pub(super) workers: Vec<ModelWorker>,
    /// What is under way. The order means nothing.
    pub(super) flying: Vec<Thing>,
    pub(super) truth: Truth,
    pub(super) left: Limits,
    /// A line for every step, if anybody wants to read it.
    pub(super) story: Option<Vec<String>>,
}

#[derive(Clone)]
pub(super) struct ModelWorker {
    /// Shared with the worlds before and after in which it is the same.
    pub(super) protocol: Rc<ProtocolState>,
    /// To whom [`Effect::Tell`] said there is something to tell.
    pub(super) due: BTreeSet<usize>,
    /// For each other worker, the number of the last batch that was sent to it.
    pub(super) sent: Vec<u64>,
    /// For each other worker, the number of the last batch that has come from it.
    pub(super) heard: Vec<u64>,
    /// For each other worker, the number of the connection that this one uses. The two ends of a
    /// connection learn of its loss one after the other.
    pub(super) over: Vec<u64>,
    /// Connections that have ended, and to whom, of which the protocol state has not been told yet.
    pub(super) ended: BTreeSet<(usize, u64)>,
}

/// How often each thing may happen. What is not limited here comes to an end by itself.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Limits {
    pub(super) creations: u32,
    pub(super) gifts: u32,
    pub(super) uses: u32,
    pub(super) losses: u32,
    pub(super) repeats: u32,
    pub(super) broken: u32,
    pub(super) doubts: u32,
    pub(super) crashes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A worker makes a value of its own.
    Own(usize),
    /// A worker asks another, or itself, to make a value.
    Create {
        by: usize,
        owner: usize,
    },
    /// The same, but the request cannot be sent.
    CreateUnsent {
        by: usize,
        owner: usize,
    },
    Give {
        fork: ForkId,
        to: usize,
    },
    /// The same, but it cannot be sent.
    GiveUnsent {
        fork: ForkId,
        to: usize,
    },
    Drop(ForkId),
    Use(ForkId),
    /// Calls stop waiting for a value to be made.
    StopWaiting(RefId),
    Tell {
        from: usize,
        to: usize,
    },
    Deliver(usize),
    Lose(usize),
    Repeat(usize),
    /// A worker learns that its connection to another is gone.
    Disconnect {
        at: usize,
        from: usize,
    },
    /// Its protocol state is told, when it may have gone on over the next connection already.
    Notice {
        at: usize,
        from: usize,
        over: u64,
    },
    /// A worker does not want to wait for the reply to its request any longer.
    Doubt(ForkId),
    Crash(usize),
    /// A worker learns that another has crashed.
    Learn {
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
            heard: vec![0; workers],
            over: vec![0; workers],
            ended: BTreeSet::new(),
        };
        let truth = Truth {
            up: vec![true; workers],
            ..Truth::default()
        };
        Self {
            workers: (0..workers).map(worker).collect(),
            flying: Vec::new(),
            truth,
            left,
            story: None,
        }
    }

    pub(super) fn take(&mut self, step: Step) -> Result<(), Wrong> {
        match step {
            Step::Own(by) => {
                self.left.creations -= 1;
                let (reference, fork) = self.protocol(by).own();
                self.tell_story(|| format!("{} owns {}", w(by), r(reference)));
                self.add_value(reference, fork, by, Status::Made);
                self.truth.confirm(fork)?;
                self.effects(by)
            }
            Step::Create { by, owner } => {
                self.left.creations -= 1;
                let (reference, fork) = self.create(by, owner)?;
                self.tell_story(|| format!("{} asks {} to make {}", w(by), w(owner), r(reference)));
                self.add_value(reference, fork, owner, Status::Asked);
                let over = self.workers[by].over[owner];
                self.send(by, owner, Load::Request(reference, over));
                self.effects(by)
            }
            Step::CreateUnsent { by, owner } => {
                self.left.creations -= 1;
                let (reference, fork) = self.create(by, owner)?;
                self.tell_story(|| format!("{} fails to ask {} for {}", w(by), w(owner), r(reference)));
                self.protocol(by).not_created(fork);
                self.effects(by)
            }
            Step::Give { fork, to } => {
                self.left.gifts -= 1;
                let (by, handover) = self.give(fork, to)?;
                self.tell_story(|| {
                    let (parent, new, reference) = (f(fork), f(handover.fork), r(handover.reference));
                    format!("{} gives {parent} of {reference} to {} as {new}", w(by), w(to))
                });
                let over = self.workers[by].over[to];
                self.send(by, to, Load::Reference(handover, over));
                self.effects(by)
            }
            Step::GiveUnsent { fork, to } => {
                self.left.gifts -= 1;
                let (by, handover) = self.give(fork, to)?;
                self.tell_story(|| format!("{} fails to give {} to {}", w(by), f(fork), w(to)));
                self.fork(handover.fork).place = ValueLocation::Nowhere;
                self.protocol(by).not_given(handover.fork);
                self.effects(by)
            }
            Step::Drop(fork) => {
                let by = self.fork(fork).holder;
                self.tell_story(|| format!("{} drops {}", w(by), f(fork)));
                self.fork(fork).place = ValueLocation::Dropped;
                self.protocol(by).drop_handle(fork);
                self.effects(by)
            }
            Step::Use(fork) => {
                self.left.uses -= 1;
                let Fork {
                    holder, reference, ..
                } = *self.fork(fork);
                let owner = self.truth.values[&reference].owner;
                self.tell_story(|| format!("{} uses {} of {}", w(holder), f(fork), r(reference)));
                let over = self.workers[holder].over[owner];
                self.send(holder, owner, Load::Use(fork, over));
                Ok(())
            }
            Step::StopWaiting(reference) => {
                let owner = self.truth.values[&reference].owner;
                self.tell_story(|| format!("{} stops waiting for {}", w(owner), r(reference)));
                self.value(reference).waited_for = false;
                self.protocol(owner).is_not_waited_for(reference);
                let status = self.value(reference).status;
                let effects = self.protocol(owner).take_effects();
                // Only the place where the value would have been is freed.
                match effects[..] {
                    [] => Ok(()),
                    [Effect::Free(freed)]
                        if freed == reference && matches!(status, Status::Asked | Status::Freed) =>
                    {
                        Ok(())
                    }
                    _ => Err(format!("{effects:?} as {} is not waited for", r(reference))),
                }
            }
            Step::Tell { from, to } => {
                let batch = self.protocol(from).batch(incarnation(to));
                let batch = batch.ok_or_else(|| format!("{} has nothing to tell {}", w(from), w(to)))?;
                self.workers[from].due.remove(&to);
                self.workers[from].sent[to] = batch.number;
                self.tell_story(|| {
                    let messages: Vec<_> = batch.messages.iter().map(message).collect();
                    let number = batch.number;
                    format!(
                        "{} tells {} in batch {number}: {}",
                        w(from),
                        w(to),
                        messages.join(", ")
                    )
                });
                self.send(from, to, Load::Batch(batch));
                Ok(())
            }
            Step::Deliver(which) => self.deliver(which),
            Step::Lose(which) => {
                self.left.losses -= 1;
                let thing = self.flying.swap_remove(which);
                self.tell_story(|| format!("{} is lost", thing.describe()));
                Ok(())
            }
            Step::Repeat(which) => {
                self.left.repeats -= 1;
                let thing = self.flying[which].clone();
                self.tell_story(|| format!("{} is repeated", thing.describe()));
                self.flying.push(thing);
                Ok(())
            }
            Step::Disconnect { at, from } => self.disconnect(at, from),
            Step::Notice { at, from, over } => self.notice(at, from, over),
            Step::Doubt(fork) => {
                self.left.doubts -= 1;
                let Fork {
                    holder, reference, ..
                } = *self.fork(fork);
                self.tell_story(|| format!("{} doubts that {} will be made", w(holder), r(reference)));
                self.value(reference).in_doubt = true;
                self.protocol(holder).creation_in_doubt(fork);
                self.effects(holder)
            }
            Step::Crash(worker) => {
                self.left.crashes -= 1;
                self.tell_story(|| format!("{} crashes", w(worker)));
                self.truth.up[worker] = false;
                self.vanish(|thing| thing.to == worker);
                Ok(())
            }
            Step::Learn { at, of } => {
                self.tell_story(|| format!("{} learns that {} has crashed", w(at), w(of)));
                self.vanish(|thing| thing.from == of && thing.to == at);
                self.workers[at].due.remove(&of);
                self.workers[at].ended.retain(|(to, _)| *to != of);
                self.protocol(at).died(incarnation(of));
                self.effects(at)
            }
        }
    }

    fn create(&mut self, by: usize, owner: usize) -> Result<(RefId, ForkId), Wrong> {
        let created = self.protocol(by).create(incarnation(owner));
        created.ok_or_else(|| format!("{} does not want to ask {}", w(by), w(owner)))
    }

    fn give(&mut self, parent: ForkId, to: usize) -> Result<(usize, Handover), Wrong> {
        let Fork {
            holder, reference, ..
        } = *self.fork(parent);
        let over = self.workers[holder].over[to];
        let handover = self.protocol(holder).give(parent, incarnation(to), over);
        let handover = handover.ok_or_else(|| format!("{} cannot be given", f(parent)))?;
        let fork = Fork {
            reference,
            holder: to,
            parent: Some((parent, holder)),
            over,
            place: ValueLocation::Flying,
            confirmed: false,
            lost: false,
            stale: false,
            in_doubt: false,
        };
        self.truth.forks.insert(handover.fork, fork);
        Ok((holder, handover))
    }

    /// Lets what a protocol state wants to happen happen.
    pub(super) fn effects(&mut self, at: usize) -> Result<(), Wrong> {
        for effect in self.protocol(at).take_effects() {
            self.tell_story(|| match effect {
                Effect::Free(reference) => format!("  {} frees {}", w(at), r(reference)),
                Effect::Fail(reference, loss) => format!("  {} gives up {}: {loss:?}", w(at), r(reference)),
                Effect::Confirmed(fork) => format!("  {} is confirmed", f(fork)),
                Effect::Lost(fork, loss) => format!("  {} is lost: {loss:?}", f(fork)),
                Effect::Tell(to, urgency) => {
                    format!("  {} has something to tell {}: {urgency:?}", w(at), w(index(to)))
                }
            });
            match effect {
                Effect::Free(reference) => self.truth.free(reference)?,
                Effect::Fail(reference, loss) => self.truth.fail(reference, loss)?,
                Effect::Confirmed(fork) => self.truth.confirm(fork)?,
                Effect::Lost(fork, loss) => self.truth.lose(fork, loss)?,
                Effect::Tell(to, _) => {
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
            vanished: false,
            waited_for: false,
        };
        let holder = index(reference.0.by);
        let fork = Fork {
            reference,
            holder,
            parent: None,
            over: self.workers[holder].over[owner],
            place: ValueLocation::Here,
            confirmed: false,
            lost: false,
            stale: false,
            in_doubt: false,
        };
        self.truth.values.insert(reference, value);
        self.truth.forks.insert(id, fork);
    }

    pub(super) fn protocol(&mut self, of: usize) -> &mut ProtocolState {
        Rc::make_mut(&mut self.workers[of].protocol)
    }

    pub(super) fn fork(&mut self, id: ForkId) -> &mut Fork {
        self.truth.forks.get_mut(&id).expect("it was given once")
    }

    pub(super) fn value(&mut self, reference: RefId) -> &mut Value {
        self.truth.values.get_mut(&reference).expect("it was asked for")
    }

    pub(super) fn tell_story(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(line());
        }
    }
}
