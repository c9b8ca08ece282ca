//! The state of barriers and gathers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telegrad_wire::{Decoder, Encoder, Rank, RawTensor, Reference, Wire, WireError};

use crate::error::{Error, Result};
use crate::reference::AnyReference;
use crate::types::WorkerInfo;

/// An encoded value with its tensors.
#[derive(Clone, Debug, Default, Wire)]
pub(crate) struct Blob {
    body: Vec<u8>,
    tensors: Vec<RawTensor>,
    references: Vec<AnyReference>,
}

impl Blob {
    pub(crate) fn of(value: &impl Wire) -> Result<Self, WireError> {
        let mut encoder = Encoder::new();
        value.encode(&mut encoder);
        let payload = encoder.finish()?;
        let mut tensors = Vec::with_capacity(payload.tensors.len());
        for tensor in payload.tensors {
            tensors.push(RawTensor::copy_of(&*tensor)?);
        }
        let references = payload.references.into_iter();
        let references = references.filter_map(|reference| reference.downcast().ok().map(AnyReference));
        Ok(Self {
            body: payload.body,
            tensors,
            references: references.collect(),
        })
    }

    pub(crate) fn open<T: Wire>(self) -> Result<T, WireError> {
        let references = self
            .references
            .into_iter()
            .map(|AnyReference(handle)| handle as Reference);
        let references = references.collect();
        T::decode(&mut Decoder::with_tables(&self.body, self.tensors, references))
    }
}

/// The gathers of a worker. Rank 0 holds the open ones of all members.
#[derive(Default)]
pub(crate) struct Gatherings {
    /// Numbers the gathers. All members take part in each, so their numbers agree.
    next: AtomicU64,
    open: Mutex<FxHashMap<u64, Gathering>>,
    /// Members without a connection, and the reasons, until they call again. A gather that waits for one of them fails.
    lost: Mutex<FxHashMap<Rank, String>>,
    closed: AtomicBool,
}

#[derive(Default)]
pub(crate) struct Gathering {
    values: FxHashMap<Rank, Blob>,
    wakers: Vec<Waker>,
    /// Number of members that have neither taken the result nor withdrawn.
    remaining: usize,
    /// The first member that withdrew. The gather fails then, so that all members agree on the outcome.
    withdrawn: Option<(Rank, String)>,
    /// The reason of the failure, the same for all members.
    failed: Option<String>,
    /// Whether a member has taken the result, so that all others will.
    done: bool,
}

impl Gathering {
    /// Returns the values by rank; the last member takes them without a copy.
    pub(crate) fn take_values(&mut self) -> Vec<Blob> {
        let mut values: Vec<_> = if self.remaining == 0 {
            std::mem::take(&mut self.values).into_iter().collect()
        } else {
            let values = self.values.iter();
            values.map(|(rank, blob)| (*rank, blob.clone())).collect()
        };
        values.sort_by_key(|(rank, _)| *rank);
        values.into_iter().map(|(_, blob)| blob).collect()
    }

    /// Notes a withdrawal; returns whether it is the first.
    fn withdraw(&mut self, member: &WorkerInfo) -> bool {
        if self.failed.is_some() || self.withdrawn.is_some() {
            return false;
        }
        self.withdrawn = Some((member.rank, member.name.clone()));
        // Only the ranks are still needed.
        self.values.values_mut().for_each(|blob| *blob = Blob::default());
        true
    }

    /// Returns the reason if the gather cannot complete.
    fn failure(&mut self, lost: &FxHashMap<Rank, String>, all_came: bool) -> Option<String> {
        if self.failed.is_none() {
            let is_missing = |rank: &Rank| !self.values.contains_key(rank);
            let missing = lost.iter().find(|(rank, _)| is_missing(rank)).map(|(_, why)| why);
            let lost_first = self.withdrawn.as_ref().and_then(|(rank, _)| lost.get(rank));
            self.failed = lost_first.or(missing).cloned();
        }
        if self.failed.is_none() && all_came {
            let why = |(_, name): &(Rank, String)| {
                format!("worker `{name}` stopped waiting before all members had joined")
            };
            self.failed = self.withdrawn.as_ref().map(why);
        }
        self.failed.clone()
    }
}

impl Gatherings {
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, SeqCst)
    }

    /// Returns the names of the `members` that have not joined a gather.
    pub(crate) fn missing(&self, number: u64, members: &[WorkerInfo]) -> Vec<String> {
        let open = self.open.lock();
        let here = |info: &WorkerInfo| {
            open.get(&number)
                .is_some_and(|g| g.values.contains_key(&info.rank))
        };
        members
            .iter()
            .filter(|info| !here(info))
            .map(|info| info.name.clone())
            .collect()
    }

    /// Returns the ranks that have joined each incomplete gather.
    pub(crate) fn incomplete(&self) -> Vec<Vec<Rank>> {
        let open = self.open.lock();
        let waiting = open.values().filter(|gathering| !gathering.done);
        let came = waiting.map(|gathering| {
            let mut came: Vec<Rank> = gathering.values.keys().copied().collect();
            came.sort_unstable();
            came
        });
        let mut all: Vec<_> = came.collect();
        all.sort_unstable();
        all
    }

    /// Notes the loss of a member; gathers that wait for it fail.
    pub(crate) fn lost(&self, member: &WorkerInfo, why: &str) {
        self.lost
            .lock()
            .insert(member.rank, format!("worker {member} was lost: {why}"));
        self.wake();
    }

    /// Notes that a member is reachable, whether or not it counted as lost.
    pub(crate) fn mark_reachable(&self, member: Rank) {
        self.lost.lock().remove(&member);
    }

    /// Fails all open gathers.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.wake();
    }

    fn wake(&self) {
        let wakers: Vec<_> = self
            .open
            .lock()
            .values_mut()
            .flat_map(|g| std::mem::take(&mut g.wakers))
            .collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn poll<T>(
        &self,
        number: u64,
        size: usize,
        waker: &Waker,
        take: impl Fn(&mut Gathering) -> T,
    ) -> Poll<Result<T>> {
        let mut open = self.open.lock();
        let Some(gathering) = open.get_mut(&number) else {
            return Poll::Ready(Err(Error::ShutDown));
        };
        let all_came = gathering.values.len() == size;
        if !all_came && self.closed.load(SeqCst) {
            return Poll::Ready(Err(Error::ShutDown));
        }
        if let Some(why) = gathering.failure(&self.lost.lock(), all_came) {
            return Poll::Ready(Err(Error::other(why)));
        }
        if !all_came {
            gathering.wakers.push(waker.clone());
            return Poll::Pending;
        }
        gathering.done = true;
        gathering.remaining -= 1;
        let taken = take(gathering);
        if gathering.remaining == 0 {
            open.remove(&number);
        }
        Poll::Ready(Ok(taken))
    }
}

impl Gatherings {
    /// Joins a gather of `size` members; returns the result of `take` when all have joined.
    pub(crate) async fn join<T>(
        &self,
        number: u64,
        size: usize,
        member: &WorkerInfo,
        value: Blob,
        take: impl Fn(&mut Gathering) -> T,
    ) -> Result<T> {
        self.mark_reachable(member.rank);
        let wakers = {
            let mut open = self.open.lock();
            let gathering = open.entry(number).or_insert_with(|| Gathering {
                remaining: size,
                ..Default::default()
            });
            gathering.values.insert(member.rank, value);
            if gathering.values.len() == size {
                std::mem::take(&mut gathering.wakers)
            } else {
                Vec::new()
            }
        };
        wakers.into_iter().for_each(Waker::wake);
        let mut guard = GatherGuard {
            gatherings: self,
            number,
            member,
            completed: false,
        };
        let result = std::future::poll_fn(|cx| self.poll(number, size, cx.waker(), &take)).await;
        guard.completed = result.is_ok();
        result
    }
}

/// Withdraws a member from a gather when it is dropped before completion, because the member was lost or no longer waits.
struct GatherGuard<'a> {
    gatherings: &'a Gatherings,
    number: u64,
    member: &'a WorkerInfo,
    completed: bool,
}

impl Drop for GatherGuard<'_> {
    fn drop(&mut self) {
        let mut open = self.gatherings.open.lock();
        if self.completed {
            return;
        }
        let mut first = false;
        if let Some(gathering) = open.get_mut(&self.number) {
            first = !gathering.done && gathering.withdraw(self.member);
            gathering.remaining = gathering.remaining.saturating_sub(1);
            if gathering.remaining == 0 {
                open.remove(&self.number);
            }
        }
        drop(open);
        // A lost member fails the others at once.
        if first {
            self.gatherings.wake();
        }
    }
}
