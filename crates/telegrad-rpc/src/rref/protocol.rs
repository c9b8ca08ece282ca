//! Who holds references to what (S28): the protocol, without anything else.
//!
//! A value lives with its *owner*. Each reference to it, wherever it is, is a *fork* with a number of
//! its own, and the owner keeps the list of them. A worker that hands a reference on makes a new fork
//! for the receiver and stands surety for it: its own reference stays, even if the program drops it,
//! until the receiver says that the owner knows of the new one. So there is at every moment a chain of
//! references that the owner knows of:
//!
//! - from user to user, the receiver tells the owner (`Hold`), then the giver (`Accept`);
//! - from the owner, the fork is on the list before it leaves;
//! - to the owner, it is on the list when it arrives.
//!
//! A reference can be handed on before the request to make its value has come. An owner that is told of a
//! value that it does not have asks the creator whether it is still to come (`Expect`): the chain may have
//! been broken by a death, and the value be gone.
//!
//! This module is events in, effects out: no I/O, no clock, no threads. What it promises, as long as
//! the workers named live, and what the tests beside it check in every interleaving:
//!
//! - **R1** A value is not freed while a confirmed reference to it exists anywhere.
//! - **R2** Nor while an unconfirmed one exists whose giver lives, or the request to make it is under way.
//! - **R3** It is freed, once, after no reference to it exists.
//! - **R4** Then nothing about it remains with anybody, but notes of what was lost on its way and is not to
//!   be taken should it come after all.
//! - **R5** A request to make a value is carried out at most once, and never after it has been settled
//!   that it was lost.
//! - **R6** After a worker's end the others have nothing of it: not its references, not what was on its
//!   way to or from it. References to its values are lost, all of them.
//! - **R7** All this whatever messages are lost, repeated, delayed or reordered; what was handed over
//!   may be lost with a connection, but does not come twice.

mod channel;
mod event;
mod message;
#[cfg(test)]
mod model;

use rustc_hash::{FxHashMap, FxHashSet};

use channel::{Came, Channel};
pub(crate) use event::{Count, Effect, Handover, Loss, Received, Urgency};
pub(crate) use message::{Answer, Batch, ForkId, Life, Message, RefId, Unique};

/// What one worker knows of references.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    me: Life,
    next: u64,
    /// The values that live here.
    owned: FxHashMap<RefId, Owned>,
    /// The references that are here.
    held: FxHashMap<ForkId, Held>,
    /// How many of them their owners do not know of yet.
    unconfirmed: usize,
    /// The references that were given to others, who have not accepted them yet.
    given: FxHashMap<ForkId, Given>,
    /// What was asked about, had not come, and is not to be taken when it comes: references, and requests
    /// to make a value, by the first reference to it.
    refused: FxHashSet<ForkId>,
    /// What others gave to this worker and have not heard yet that it arrived.
    accepting: FxHashSet<ForkId>,
    channels: FxHashMap<Life, Channel>,
    dead: FxHashSet<Life>,
    effects: Vec<Effect>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    /// Every reference that is known, and who has it.
    forks: FxHashMap<ForkId, Life>,
    made: Made,
}

/// Whether the request to make a value has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Made {
    /// Others, who got the reference from its creator, were faster.
    Awaited,
    Yes,
    /// It will not come.
    Never,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    reference: RefId,
    owner: Life,
    state: State,
    /// The program has dropped it.
    dropped: bool,
    /// Forks of it that it stands surety for.
    children: usize,
}

impl Held {
    fn is_unconfirmed(&self) -> bool {
        matches!(self.state, State::Creating | State::Unconfirmed { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The request to make the value is under way.
    Creating,
    /// The owner is being told.
    Unconfirmed { giver: Life },
    /// The owner knows.
    Confirmed,
    /// There is no owner, or the owner knows of no such value.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Given {
    reference: RefId,
    to: Life,
    /// The connection that it went over.
    over: u64,
    /// What stands surety for it here; nothing on the owner, whose list it is on.
    parent: Option<ForkId>,
}

impl Ledger {
    pub(crate) fn new(me: Life) -> Self {
        Self {
            me,
            next: 0,
            owned: FxHashMap::default(),
            held: FxHashMap::default(),
            unconfirmed: 0,
            given: FxHashMap::default(),
            refused: FxHashSet::default(),
            accepting: FxHashSet::default(),
            channels: FxHashMap::default(),
            dead: FxHashSet::default(),
            effects: Vec::new(),
        }
    }

    /// What has to happen since this was last asked.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// A value that is here from the start, and the first reference to it.
    pub(crate) fn own(&mut self) -> (RefId, ForkId) {
        let (reference, fork) = self.first();
        let forks = FxHashMap::from_iter([(fork, self.me)]);
        let made = Made::Yes;
        self.owned.insert(reference, Owned { forks, made });
        self.hold(fork, reference, self.me, State::Confirmed);
        (reference, fork)
    }

    /// A value that `owner` is about to be asked to make, and the first reference to it. `None` when the
    /// owner is gone.
    pub(crate) fn create(&mut self, owner: Life) -> Option<(RefId, ForkId)> {
        if self.dead.contains(&owner) {
            return None;
        }
        let (reference, fork) = self.first();
        self.hold(fork, reference, owner, State::Creating);
        Some((reference, fork))
    }

    /// The request was not sent: there is nothing to refer to.
    pub(crate) fn not_created(&mut self, fork: ForkId) {
        // Its owner may have died in the meantime.
        if let Some(held) = self.held.remove(&fork) {
            self.unconfirmed -= usize::from(held.is_unconfirmed());
        }
    }

    /// The owner has the request.
    pub(crate) fn created(&mut self, fork: ForkId) {
        if let Some(held) = self.held.get_mut(&fork)
            && held.state == State::Creating
        {
            held.state = State::Confirmed;
            self.unconfirmed -= 1;
            self.effects.push(Effect::Confirmed(fork));
            self.try_release(fork);
        }
    }

    /// The request may have been lost.
    pub(crate) fn creation_in_doubt(&mut self, fork: ForkId) {
        if let Some(held) = self.held.get(&fork)
            && held.state == State::Creating
        {
            let (owner, reference) = (held.owner, held.reference);
            if self.dead.contains(&owner) {
                self.lose(fork, Loss::Owner);
            } else {
                self.tell(owner, Message::Settle { reference, fork });
            }
        }
    }

    /// A request to make a value has come; whether to carry it out (S32).
    pub(crate) fn make(&mut self, reference: RefId, from: Life) -> bool {
        let settled = self.refused.remove(&ForkId(reference.0));
        let owned = self.owned.get(&reference);
        let entitled = reference.creator() == from && !self.dead.contains(&from);
        if settled || !entitled || owned.is_some_and(|owned| owned.made != Made::Awaited) {
            return false;
        }
        let owned = self.await_value(reference);
        owned.made = Made::Yes;
        owned.forks.insert(ForkId(reference.0), from);
        true
    }

    /// Somebody wants to use a value; whether it is here, or may still come.
    pub(crate) fn is_expected(&mut self, reference: RefId) -> bool {
        let expected = self.owned.contains_key(&reference) || self.may_come(reference);
        if expected {
            self.expect_value(reference);
        }
        expected
    }

    /// Nobody waits for this value to come any more.
    pub(crate) fn is_not_waited_for(&mut self, reference: RefId) {
        if let Some(owned) = self.owned.get(&reference)
            && owned.made == Made::Awaited
            && owned.forks.is_empty()
        {
            // Should it still come, it is as if nobody had asked for it before.
            self.owned.remove(&reference);
            self.effects.push(Effect::Free(reference));
        }
    }

    /// Hands a reference on: a new fork for `to`, that goes over the connection `over`. `None` for a
    /// reference that is lost, and a receiver that is gone.
    pub(crate) fn give(&mut self, parent: ForkId, to: Life, over: u64) -> Option<Handover> {
        let fork = ForkId(self.unique());
        let held = self.held.get_mut(&parent)?;
        if held.state == State::Lost || self.dead.contains(&to) {
            return None;
        }
        let (reference, owner) = (held.reference, held.owner);
        let parent = if owner == self.me {
            self.await_value(reference).forks.insert(fork, to);
            None
        } else {
            held.children += 1;
            Some(parent)
        };
        let given = Given {
            reference,
            to,
            over,
            parent,
        };
        self.given.insert(fork, given);
        Some(Handover {
            reference,
            owner,
            fork,
        })
    }

    /// What was given did not arrive, and will not.
    pub(crate) fn not_given(&mut self, fork: ForkId) {
        if let Some(given) = self.given.remove(&fork) {
            match given.parent {
                Some(parent) => self.let_go(parent),
                None => self.release(given.reference, fork),
            }
        }
    }

    /// A reference has arrived from `giver`.
    pub(crate) fn receive(&mut self, handover: Handover, giver: Life) -> Received {
        let Handover {
            reference,
            owner,
            fork,
        } = handover;
        if self.refused.remove(&fork) || self.held.contains_key(&fork) {
            return Received::Refused;
        }
        let (state, received) = if owner == self.me {
            if self.put_on_list(reference, fork, self.me, giver) == Answer::Done {
                (State::Confirmed, Received::Confirmed)
            } else {
                (State::Lost, Received::Lost(Loss::Gone))
            }
        } else if self.dead.contains(&owner) {
            (State::Lost, Received::Lost(Loss::Owner))
        } else if owner == giver {
            (State::Confirmed, Received::Confirmed)
        } else {
            (State::Unconfirmed { giver }, Received::Unconfirmed)
        };
        self.hold(fork, reference, owner, state);
        if received == Received::Unconfirmed {
            self.tell(
                owner,
                Message::Hold {
                    reference,
                    fork,
                    giver,
                },
            );
        } else {
            self.tell(giver, Message::Accept { fork });
        }
        received
    }

    /// The program has dropped a reference.
    pub(crate) fn drop_handle(&mut self, fork: ForkId) {
        if let Some(held) = self.held.get_mut(&fork) {
            held.dropped = true;
            self.try_release(fork);
        }
    }

    /// What to tell a worker now; again and again until it has answered.
    pub(crate) fn batch(&mut self, to: Life) -> Option<Batch> {
        self.channels.get_mut(&to)?.batch()
    }

    /// A worker has answered.
    pub(crate) fn answered(&mut self, by: Life, number: u64, answers: &[Answer]) {
        let Some(channel) = self.channels.get_mut(&by) else {
            return;
        };
        let messages = channel.answered(number, answers.len());
        for (message, answer) in messages.into_iter().zip(answers) {
            self.conclude(message, *answer, by);
        }
        if self.untold(by) > 0 {
            self.effects.push(Effect::Tell(by, Urgency::Now));
        }
    }

    /// A worker tells something. No answer: it does not wait for one any more, or counts as gone.
    pub(crate) fn told(&mut self, by: Life, batch: &Batch) -> Option<Vec<Answer>> {
        if self.dead.contains(&by) {
            return None;
        }
        match self.channels.entry(by).or_default().came(batch.number) {
            Came::Again(answers) => return Some(answers.to_vec()),
            Came::Old => return None,
            Came::New => {}
        }
        let answers: Vec<_> = batch
            .messages
            .iter()
            .map(|message| self.act_on(*message, by))
            .collect();
        self.channels
            .entry(by)
            .or_default()
            .answer(batch.number, answers.clone());
        Some(answers)
    }

    /// The connection `over` to a worker that may well live has ended.
    pub(crate) fn connection_lost(&mut self, to: Life, over: u64) {
        let in_doubt = self
            .given
            .iter()
            .filter(|(_, given)| given.to == to && given.over == over);
        let mut in_doubt: Vec<_> = in_doubt.map(|(fork, _)| *fork).collect();
        in_doubt.sort_unstable();
        for fork in in_doubt {
            self.tell(to, Message::Ask { fork });
        }
    }

    /// A worker is gone and will not be back.
    pub(crate) fn died(&mut self, worker: Life) {
        if worker == self.me || !self.dead.insert(worker) {
            return;
        }
        self.channels.remove(&worker);
        self.refused.retain(|fork| fork.0.by != worker);
        // Forks are numbered by those who give them.
        self.accepting.retain(|fork| fork.0.by != worker);
        for fork in sorted(self.given.iter().filter(|(_, given)| given.to == worker)) {
            self.not_given(fork);
        }
        for fork in sorted(self.held.iter().filter(|(_, held)| held.owner == worker)) {
            self.lose(fork, Loss::Owner);
        }
        for reference in sorted(self.owned.iter()) {
            self.release_of(reference, worker);
        }
    }

    /// Why a reference is useless, if it is.
    pub(crate) fn loss(&self, fork: ForkId) -> Option<Loss> {
        let lost = self.held.get(&fork).filter(|held| held.state == State::Lost)?;
        let owner_lost = self.dead.contains(&lost.owner);
        Some(if owner_lost { Loss::Owner } else { Loss::Gone })
    }

    /// Whether a worker counts as gone.
    pub(crate) fn is_dead(&self, worker: Life) -> bool {
        self.dead.contains(&worker)
    }

    /// Whether anything is to be told to, or expected from, this worker.
    pub(crate) fn concerns(&self, worker: Life) -> bool {
        self.untold(worker) > 0
            || self.given.values().any(|given| given.to == worker)
            || self.held.values().any(|held| held.owner == worker)
            || self.owned.iter().any(|(reference, owned)| {
                reference.creator() == worker && owned.made == Made::Awaited
                    || owned.forks.values().any(|holder| *holder == worker)
            })
    }

    /// Messages to a worker that it has not answered.
    pub(crate) fn untold(&self, to: Life) -> usize {
        self.channels.get(&to).map_or(0, Channel::len)
    }

    /// Workers with messages that they have not answered.
    pub(crate) fn to_tell(&self) -> Vec<Life> {
        let with_messages = self.channels.iter().filter(|(_, channel)| channel.len() > 0);
        with_messages.map(|(life, _)| *life).collect()
    }

    /// The values that live here, or are waited for.
    pub(crate) fn owned(&self) -> impl Iterator<Item = RefId> {
        self.owned.keys().copied()
    }

    /// Everybody who has a reference to a value, as often as they have.
    pub(crate) fn holders(&self, reference: RefId) -> Vec<Life> {
        let owned = self.owned.get(&reference);
        owned.map_or_else(Vec::new, |owned| owned.forks.values().copied().collect())
    }

    pub(crate) fn count(&self) -> Count {
        Count {
            owned: self.owned.len(),
            held: self.held.len(),
            unconfirmed: self.unconfirmed,
            given: self.given.len(),
            untold: self.channels.values().map(Channel::len).sum(),
        }
    }

    /// Acts on what a worker tells.
    fn act_on(&mut self, message: Message, by: Life) -> Answer {
        match message {
            Message::Hold {
                reference,
                fork,
                giver,
            } => return self.put_on_list(reference, fork, by, giver),
            Message::Settle { reference, fork } => {
                let entitled = reference.creator() == by;
                let owned = self.await_value(reference);
                if owned.made == Made::Awaited && entitled {
                    owned.made = Made::Never;
                    owned.forks.insert(fork, by);
                    // The value may be gone again before the request comes after all.
                    self.refused.insert(fork);
                    self.effects.push(Effect::Fail(reference, Loss::Request));
                }
            }
            Message::Release { reference, fork } => {
                let owned = self.owned.get(&reference);
                if owned.is_some_and(|owned| owned.forks.get(&fork) == Some(&by)) {
                    self.release(reference, fork);
                }
            }
            Message::Accept { fork } => {
                if self.given.get(&fork).is_some_and(|given| given.to == by)
                    && let Some(parent) = self.given.remove(&fork).and_then(|given| given.parent)
                {
                    self.let_go(parent);
                }
            }
            Message::Ask { fork } => {
                if !self.accepting.contains(&fork) && !self.held.contains_key(&fork) {
                    self.refused.insert(fork);
                    return Answer::Never;
                }
            }
            Message::Forget { fork } => {
                self.refused.remove(&fork);
            }
            Message::Expect { reference } => {
                let first = self.held.get(&ForkId(reference.0));
                if first.is_none_or(|held| held.state != State::Creating) {
                    return Answer::Never;
                }
            }
        }
        Answer::Done
    }

    /// Goes on after what another worker has said to a message.
    fn conclude(&mut self, message: Message, answer: Answer, by: Life) {
        match (message, answer) {
            (Message::Hold { fork, giver, .. }, answer) => {
                if let Some(held) = self.held.get_mut(&fork)
                    && held.state == (State::Unconfirmed { giver })
                {
                    self.unconfirmed -= 1;
                    if answer == Answer::Done {
                        held.state = State::Confirmed;
                        self.effects.push(Effect::Confirmed(fork));
                    } else {
                        held.state = State::Lost;
                        self.effects.push(Effect::Lost(fork, Loss::Gone));
                    }
                    self.tell(giver, Message::Accept { fork });
                    self.try_release(fork);
                }
            }
            (Message::Settle { fork, .. }, _) if self.held.contains_key(&fork) => self.created(fork),
            // Given up in the meantime; but the owner has it on its list now.
            (Message::Settle { reference, fork }, _) => self.tell(by, Message::Release { reference, fork }),
            (Message::Accept { fork }, _) => {
                self.accepting.remove(&fork);
            }
            (Message::Ask { fork }, Answer::Never) if self.given.contains_key(&fork) => self.not_given(fork),
            // It has been accepted in the meantime, so it will not come a second time.
            (Message::Ask { fork }, Answer::Never) => self.tell(by, Message::Forget { fork }),
            (Message::Expect { reference }, Answer::Never) => {
                if let Some(owned) = self.owned.get_mut(&reference)
                    && owned.made == Made::Awaited
                {
                    owned.made = Made::Never;
                    self.effects.push(Effect::Fail(reference, Loss::Gone));
                    self.try_free(reference);
                }
            }
            (
                Message::Release { .. }
                | Message::Ask { .. }
                | Message::Forget { .. }
                | Message::Expect { .. },
                _,
            ) => {}
        }
    }

    fn tell(&mut self, to: Life, message: Message) {
        if to == self.me {
            let answer = self.act_on(message, to);
            self.conclude(message, answer, to);
        } else if !self.dead.contains(&to) {
            if let Message::Accept { fork } = message {
                self.accepting.insert(fork);
            }
            let channel = self.channels.entry(to).or_default();
            channel.push(message);
            if !channel.is_under_way() {
                let urgency = match message {
                    Message::Release { .. }
                    | Message::Accept { .. }
                    | Message::Forget { .. }
                    // As a rule the value comes before the answer.
                    | Message::Expect { .. } => Urgency::Soon,
                    Message::Hold { .. } | Message::Settle { .. } | Message::Ask { .. } => Urgency::Now,
                };
                self.effects.push(Effect::Tell(to, urgency));
            }
        }
    }

    fn unique(&mut self) -> Unique {
        self.next += 1;
        Unique {
            by: self.me,
            number: self.next,
        }
    }

    /// A new value and the first reference to it, which have the same number.
    fn first(&mut self) -> (RefId, ForkId) {
        let unique = self.unique();
        (RefId(unique), ForkId(unique))
    }

    fn hold(&mut self, fork: ForkId, reference: RefId, owner: Life, state: State) {
        let held = Held {
            reference,
            owner,
            state,
            dropped: false,
            children: 0,
        };
        self.unconfirmed += usize::from(held.is_unconfirmed());
        self.held.insert(fork, held);
    }

    /// Whether a value that is not here may still be made.
    fn may_come(&self, reference: RefId) -> bool {
        let creator = reference.creator();
        // What this worker asked itself to make is here from when it is asked to.
        !self.dead.contains(&creator) && (creator != self.me || self.held.contains_key(&ForkId(reference.0)))
    }

    fn await_value(&mut self, reference: RefId) -> &mut Owned {
        self.owned.entry(reference).or_insert_with(|| Owned {
            forks: FxHashMap::default(),
            made: Made::Awaited,
        })
    }

    /// Like [`await_value`](Self::await_value), for a value that somebody else refers to. It may have been
    /// here and gone, if whoever stood surety for that reference has died since: the creator knows.
    fn expect_value(&mut self, reference: RefId) -> &mut Owned {
        if !self.owned.contains_key(&reference) {
            self.tell(reference.creator(), Message::Expect { reference });
        }
        self.await_value(reference)
    }

    /// A reference exists that was given by `giver`, who stands surety for it only as long as it lives.
    fn put_on_list(&mut self, reference: RefId, fork: ForkId, holder: Life, giver: Life) -> Answer {
        let known = self.owned.contains_key(&reference);
        if !known && (self.dead.contains(&giver) || !self.may_come(reference)) {
            return Answer::Gone;
        }
        self.expect_value(reference).forks.insert(fork, holder);
        Answer::Done
    }

    /// A fork of this reference no longer needs it.
    fn let_go(&mut self, parent: ForkId) {
        if let Some(held) = self.held.get_mut(&parent) {
            held.children -= 1;
            self.try_release(parent);
        }
    }

    /// Gives a reference up once nothing keeps it.
    fn try_release(&mut self, fork: ForkId) {
        let Some(held) = self.held.get(&fork) else {
            return;
        };
        if !held.dropped || held.children > 0 {
            return;
        }
        match held.state {
            // It has to be on the list before it can be taken off.
            State::Creating | State::Unconfirmed { .. } => return,
            State::Confirmed => {
                let (reference, owner) = (held.reference, held.owner);
                self.tell(owner, Message::Release { reference, fork });
            }
            State::Lost => {}
        }
        self.held.remove(&fork);
    }

    fn lose(&mut self, fork: ForkId, loss: Loss) {
        if let Some(held) = self.held.get_mut(&fork)
            && held.state != State::Lost
        {
            let giver = match held.state {
                State::Unconfirmed { giver } => Some(giver),
                _ => None,
            };
            self.unconfirmed -= usize::from(held.is_unconfirmed());
            held.state = State::Lost;
            self.effects.push(Effect::Lost(fork, loss));
            if let Some(giver) = giver {
                self.tell(giver, Message::Accept { fork });
            }
            self.try_release(fork);
        }
    }

    /// Takes a reference off the list.
    fn release(&mut self, reference: RefId, fork: ForkId) {
        if let Some(owned) = self.owned.get_mut(&reference) {
            owned.forks.remove(&fork);
            self.try_free(reference);
        }
    }

    /// Takes everything of a worker that is gone off the list.
    fn release_of(&mut self, reference: RefId, worker: Life) {
        let Some(owned) = self.owned.get_mut(&reference) else {
            return;
        };
        owned.forks.retain(|_, holder| *holder != worker);
        if owned.made == Made::Awaited && reference.creator() == worker {
            owned.made = Made::Never;
            self.effects.push(Effect::Fail(reference, Loss::Creator));
        }
        self.try_free(reference);
    }

    fn try_free(&mut self, reference: RefId) {
        if let Some(owned) = self.owned.get(&reference)
            && owned.forks.is_empty()
            && owned.made != Made::Awaited
        {
            self.owned.remove(&reference);
            self.effects.push(Effect::Free(reference));
        }
    }
}

/// In an order that does not depend on the map.
fn sorted<'a, K: Copy + Ord + 'a, V: 'a>(entries: impl Iterator<Item = (&'a K, &'a V)>) -> Vec<K> {
    let mut keys: Vec<_> = entries.map(|(key, _)| *key).collect();
    keys.sort_unstable();
    keys
}
