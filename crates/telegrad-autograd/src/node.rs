//! Autograd on one worker: records what crosses, and does the worker's part of every pass.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use telegrad_rpc::{Crossing, Noted, Recorded, Result};
use telegrad_wire::{Arrived, ContextId, Rank, RawTensor, TensorSource};

use crate::backend::{AutogradBackend, Root};
use crate::contexts::{Contexts, Shared, State, StillOpen};
use crate::error::AutogradError;
use crate::graph::{Graph, MessageId, RootId, Sent};
use crate::info::AutogradInfo;
use crate::message::{Cargo, Gradients, PassId, PassInfo, Shipment};
use crate::schedule::Unexpected;

/// Autograd on one worker, with tensors of one library.
pub(crate) struct Node<B: AutogradBackend> {
    pub(crate) backend: B,
    pub(crate) contexts: Contexts<B>,
    next_message: AtomicU64,
    next_pass: AtomicU64,
    /// Passes that started here and are not over.
    running: Mutex<BTreeSet<u64>>,
    /// The contexts in which leaves came here that are open. Locked last.
    origins: Mutex<FxHashMap<B::LeafId, ContextId>>,
}

/// What a step of a pass leads to.
#[derive(Default)]
pub(crate) struct Progress {
    /// Gradients for other workers.
    pub(crate) shipments: Vec<(Rank, Shipment)>,
    /// How much more, or less, is held here than before.
    pub(crate) held: i64,
}

/// What one traversal of the graph starts from, and the leaves that it reaches.
type Run<B> = (Vec<Root<B>>, Vec<<B as AutogradBackend>::LeafId>);

/// What other workers know of a context.
pub(crate) enum Standing {
    Open,
    Failed(String),
    Ended,
}

/// What does not depend on the tensor library.
pub(crate) trait Part: Send + Sync + 'static {
    fn open(&self, here: Rank) -> ContextId;
    fn pass(&self, here: Rank, retain: bool) -> PassInfo;
    fn pass_over(&self, pass: PassId);
    fn leaving(&self, crossing: &Crossing<'_>, tensors: &[Box<dyn TensorSource>]) -> Result<Noted>;
    fn stayed(&self, context: ContextId, recorded: &Recorded);
    fn arrived(
        &self,
        crossing: &Crossing<'_>,
        recorded: Option<Recorded>,
        tensors: Vec<RawTensor>,
    ) -> Result<Vec<Arrived>>;
    fn take(&self, context: ContextId, pass: PassInfo, shipment: Shipment) -> Result<Progress>;
    fn discover(
        &self,
        context: ContextId,
        pass: PassInfo,
        sent: Option<&[u64]>,
    ) -> Result<Vec<(Rank, Vec<u64>)>>;
    fn proceed(&self, context: ContextId, pass: PassInfo) -> Result<Progress>;
    fn waiting(&self, context: ContextId, pass: PassId) -> Vec<(Rank, String)>;
    /// Marks a context as failed; whom to tell, if that is news.
    fn fail(&self, context: ContextId, cause: &str) -> Vec<Rank>;
    /// Forgets a context; whom to tell.
    fn end(&self, context: ContextId, still: Option<&StillOpen>) -> Vec<(ContextId, Vec<Rank>)>;
    /// Forgets the contexts of a worker that is gone; whom to tell.
    fn gone(&self, opener: Rank) -> Vec<(ContextId, Vec<Rank>)>;
    /// Contexts in which this worker was called by another.
    fn called_by(&self, worker: Rank) -> Vec<ContextId>;
    fn concerns(&self, worker: Rank) -> bool;
    /// How a context stands; its end will be told to this worker.
    fn standing(&self, context: ContextId, asks: Rank) -> Standing;
    fn info(&self) -> AutogradInfo;
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<B: AutogradBackend> Default for Node<B> {
    fn default() -> Self {
        Self {
            backend: B::default(),
            contexts: Contexts::default(),
            next_message: AtomicU64::new(1),
            next_pass: AtomicU64::new(1),
            running: Mutex::default(),
            origins: Mutex::default(),
        }
    }
}

impl<B: AutogradBackend> Node<B> {
    fn shared(&self, context: ContextId) -> Result<Shared<B>, AutogradError> {
        self.contexts.get(context).ok_or(AutogradError::Ended(context))
    }

    /// Does something with the graph of a context.
    pub(crate) fn with_graph<R>(
        &self,
        context: ContextId,
        f: impl FnOnce(&mut Graph<B>) -> Result<R>,
    ) -> Result<R> {
        let shared = self.shared(context)?;
        let mut state = shared.lock();
        f(state.graph(context)?)
    }

    /// A context other than this one that will need the present value of a leaf in a pass.
    pub(crate) fn who_needs(&self, leaf: B::LeafId, except: ContextId) -> Option<ContextId> {
        let needs = |shared: &Shared<B>| match &mut *shared.lock() {
            State::Open(graph) => graph
                .sent
                .values_mut()
                .any(|sent| sent.leaves(&self.backend).contains(&leaf)),
            State::Failed { .. } | State::Ended => false,
        };
        let others = self.contexts.all().into_iter();
        let mut others = others.filter(|(context, _)| *context != except);
        others
            .find(|(_, shared)| needs(shared))
            .map(|(context, _)| context)
    }

    /// Starts a pass here.
    pub(crate) fn start(&self, context: ContextId, pass: PassInfo, loss: Vec<B::Tensor>) -> Result<Progress> {
        if loss.is_empty() {
            return Err(AutogradError::NoRoots.into());
        }
        for (index, tensor) in loss.iter().enumerate() {
            self.backend
                .check_root(tensor)
                .map_err(|error| AutogradError::Root {
                    index,
                    why: error.to_string(),
                })?;
        }
        let shared = self.shared(context)?;
        let mut progress = Progress::default();
        {
            let mut state = shared.lock();
            let graph = state.graph(context)?;
            graph.forget_passes_before(pass);
            let ones = vec![None; loss.len()];
            graph.begin(&self.backend, pass.id, loss);
            graph.step(pass.id, &mut progress.held, |part| {
                part.incoming.insert(RootId::Loss, ones);
                part.schedule.gradient(RootId::Loss)
            })?;
        }
        self.advance(context, pass, &shared, &mut progress)?;
        Ok(progress)
    }

    /// Runs whatever is worth running.
    fn advance(
        &self,
        context: ContextId,
        pass: PassInfo,
        shared: &Shared<B>,
        progress: &mut Progress,
    ) -> Result<()> {
        let mut complete = Vec::new();
        loop {
            let (run, roots, leaves) = {
                let mut state = shared.lock();
                let graph = state.graph(context)?;
                let run = graph.step(pass.id, &mut progress.held, |part| Ok(part.schedule.next()))?;
                if run.is_empty() {
                    break;
                }
                let (roots, leaves) = self.collect(graph, pass, &run)?;
                (run, roots, leaves)
            };
            let found = if roots.is_empty() {
                Vec::new()
            } else {
                self.backend.vjp(&roots, &leaves)?
            };
            self.backend.discard(roots);
            let mut state = shared.lock();
            let graph = state.graph(context)?;
            for (leaf, _) in &found {
                if let Some(parameter) = self.backend.changed_since(*leaf, &graph.birth) {
                    return Err(AutogradError::Changed { parameter, context }.into());
                }
            }
            if let Some(other) = self.foreign(context, &found) {
                return Err(AutogradError::Foreign { context, other }.into());
            }
            graph.accumulate(&self.backend, pass.id, found)?;
            let done = graph.step(pass.id, &mut progress.held, |part| Ok(part.schedule.ran(&run)))?;
            self.pack(graph, pass.id, done, &mut complete);
        }
        progress.shipments.extend(by_worker(complete));
        Ok(())
    }

    /// Another context that one of these leaves came in.
    fn foreign(&self, context: ContextId, found: &[(B::LeafId, B::Tensor)]) -> Option<ContextId> {
        let origins = self.origins.lock();
        let mut found = found.iter().filter_map(|(leaf, _)| origins.get(leaf));
        found.find(|origin| **origin != context).copied()
    }

    /// Drops what was kept of a context.
    fn discard(&self, graph: Graph<B>) {
        {
            let mut origins = self.origins.lock();
            for leaf in graph.received.keys() {
                origins.remove(leaf);
            }
        }
        graph.discard(&self.backend);
    }

    /// The tensors of these roots with their gradients, and the leaves that they reach.
    fn collect(&self, graph: &mut Graph<B>, pass: PassInfo, run: &[RootId]) -> Result<Run<B>> {
        let (mut roots, mut leaves, mut seen) = (Vec::new(), Vec::new(), FxHashSet::default());
        for root in run {
            let reached = graph
                .leaves_of(&self.backend, pass.id, *root)
                .ok_or(AutogradError::Freed)?;
            leaves.extend(reached.iter().copied().filter(|leaf| seen.insert(*leaf)));
            let part = graph.passes.get_mut(&pass.id).ok_or(AutogradError::Freed)?;
            let gradients = part.incoming.remove(root).unwrap_or_default();
            match root {
                RootId::Loss => roots.extend(std::mem::take(&mut part.loss).into_iter().zip(gradients)),
                RootId::Sent(number) => {
                    let tensors = if pass.retain {
                        graph.sent.get(number).map(|sent| sent.tensors.clone())
                    } else {
                        graph.sent.remove(number).map(|sent| sent.tensors)
                    };
                    let pairs = tensors.ok_or(AutogradError::Freed)?.into_iter().zip(gradients);
                    roots.extend(pairs.filter(|(_, gradient)| gradient.is_some()));
                }
            }
        }
        Ok((roots, leaves))
    }

    /// Makes the gradients of these received messages ready to go.
    fn pack(
        &self,
        graph: &mut Graph<B>,
        pass: PassId,
        done: Vec<MessageId>,
        into: &mut Vec<(Rank, Gradients)>,
    ) {
        for message in done {
            let found = graph
                .passes
                .get_mut(&pass)
                .and_then(|part| part.outgoing.remove(&message));
            let count = graph.arrivals.get(&message).copied().unwrap_or(0);
            let found = found.unwrap_or_else(|| vec![None; count]);
            let cargo = |tensor: B::Tensor| Cargo::Leaving(Arc::new(tensor));
            let gradients = found.into_iter().map(|tensor| tensor.map(cargo)).collect();
            into.push((
                message.from,
                Gradients {
                    of: message.number,
                    gradients,
                },
            ));
        }
    }

    /// Forgets contexts; whom to tell of it.
    fn forget(&self, over: Vec<(ContextId, Shared<B>)>) -> Vec<(ContextId, Vec<Rank>)> {
        let forget_one = |(context, shared): (ContextId, Shared<B>)| {
            let before = std::mem::replace(&mut *shared.lock(), State::Ended);
            let callees = match before {
                State::Open(mut graph) => {
                    let callees = std::mem::take(&mut graph.callees);
                    self.discard(graph);
                    callees.into_iter().collect()
                }
                State::Failed { callees, .. } => callees,
                State::Ended => Vec::new(),
            };
            (context, callees)
        };
        over.into_iter().map(forget_one).collect()
    }

    /// This worker's part in a pass; forgets those that are over.
    fn join(&self, graph: &mut Graph<B>, pass: PassInfo) {
        graph.forget_passes_before(pass);
        if !graph.passes.contains_key(&pass.id) {
            graph.begin(&self.backend, pass.id, Vec::new());
        }
    }
}

impl<B: AutogradBackend> Graph<B> {
    fn forget_passes_before(&mut self, PassInfo { id, oldest, .. }: PassInfo) {
        self.passes
            .retain(|other, _| other.root != id.root || other.number >= oldest);
    }

    /// Changes this worker's part in a pass, and notes how much more or less it holds then.
    fn step<R>(
        &mut self,
        pass: PassId,
        held: &mut i64,
        f: impl FnOnce(&mut crate::graph::Pass<B>) -> Result<R, Unexpected>,
    ) -> Result<R> {
        let part = self
            .passes
            .get_mut(&pass)
            .ok_or_else(|| AutogradError::Unexpected("the pass is over".into()))?;
        let before = part.schedule.held() as i64;
        let result = f(part);
        *held += part.schedule.held() as i64 - before;
        result.map_err(|why| match why {
            Unexpected::Unknown => AutogradError::Freed.into(),
            Unexpected::Again => AutogradError::Unexpected("it has come before".into()).into(),
            Unexpected::Unused => {
                AutogradError::Unexpected("what it is for was found not to matter".into()).into()
            }
        })
    }
}

fn by_worker(complete: Vec<(Rank, Gradients)>) -> Vec<(Rank, Shipment)> {
    let mut shipments: Vec<(Rank, Shipment)> = Vec::new();
    for (to, gradients) in complete {
        match shipments.iter_mut().find(|(rank, _)| *rank == to) {
            Some((_, shipment)) => shipment.0.push(gradients),
            None => shipments.push((to, Shipment(vec![gradients]))),
        }
    }
    shipments
}

impl<B: AutogradBackend> Part for Node<B> {
    fn open(&self, here: Rank) -> ContextId {
        self.contexts.open(here)
    }

    fn pass(&self, here: Rank, retain: bool) -> PassInfo {
        let mut running = self.running.lock();
        let number = self.next_pass.fetch_add(1, SeqCst);
        running.insert(number);
        PassInfo {
            id: PassId { root: here, number },
            oldest: running.first().copied().unwrap_or(number),
            retain,
        }
    }

    fn pass_over(&self, pass: PassId) {
        self.running.lock().remove(&pass.number);
    }

    fn leaving(&self, crossing: &Crossing<'_>, tensors: &[Box<dyn TensorSource>]) -> Result<Noted> {
        // What belongs to a context that is over is a message like any other.
        let Some(shared) = self.contexts.get_or_join(crossing.context) else {
            return Ok(Noted::Over);
        };
        let mut state = shared.lock();
        if matches!(*state, State::Ended) {
            return Ok(Noted::Over);
        }
        let graph = state.graph(crossing.context)?;
        graph.note(crossing, true);
        let (mut places, mut recorded) = (Vec::new(), Vec::new());
        for (place, tensor) in tensors.iter().enumerate() {
            if let Some(tensor) = tensor.as_any().downcast_ref::<B::Tensor>()
                && self.backend.requires_grad(tensor)
            {
                places.push(place as u32);
                recorded.push(tensor.clone());
            }
        }
        if places.is_empty() {
            return Ok(Noted::Nothing);
        }
        let number = self.next_message.fetch_add(1, SeqCst);
        let sent = Sent::new(crossing.peer, crossing.function, recorded);
        graph.sent.insert(number, sent);
        Ok(Noted::Tensors(Recorded {
            number,
            tensors: places,
        }))
    }

    fn stayed(&self, context: ContextId, recorded: &Recorded) {
        let sent = self.contexts.get(context).and_then(|shared| {
            let mut state = shared.lock();
            state.graph(context).ok()?.sent.remove(&recorded.number)
        });
        // Outside the lock.
        if let Some(mut sent) = sent {
            sent.leaves(&self.backend);
            self.backend.discard(sent);
        }
    }

    fn arrived(
        &self,
        crossing: &Crossing<'_>,
        recorded: Option<Recorded>,
        tensors: Vec<RawTensor>,
    ) -> Result<Vec<Arrived>> {
        let plain = |tensors: Vec<RawTensor>| Ok(tensors.into_iter().map(Arrived::Raw).collect());
        let Some(shared) = self.contexts.get_or_join(crossing.context) else {
            return plain(tensors);
        };
        let mut state = shared.lock();
        if matches!(*state, State::Ended) {
            return plain(tensors);
        }
        let graph = state.graph(crossing.context)?;
        graph.note(crossing, false);
        let Some(recorded) = recorded else {
            return plain(tensors);
        };
        let message = MessageId {
            from: crossing.peer,
            number: recorded.number,
        };
        // A peer that gives a number twice gets nonsense, and does no harm.
        let count = graph.arrivals.entry(message).or_default();
        *count = recorded.tensors.len().max(*count);
        let mut arrived: Vec<Arrived> = tensors.into_iter().map(Arrived::Raw).collect();
        for (nth, place) in recorded.tensors.iter().enumerate() {
            // What a peer says of places that are not there is of no consequence.
            let Some(slot) = arrived.get_mut(*place as usize) else {
                continue;
            };
            let made = Arrived::Made(Box::new(()));
            if let Arrived::Raw(raw) = std::mem::replace(slot, made) {
                let (leaf, tensor) = self.backend.make_leaf(raw)?;
                graph.received.insert(leaf, (message, nth));
                self.origins.lock().insert(leaf, crossing.context);
                *slot = Arrived::Made(Box::new(tensor));
            }
        }
        Ok(arrived)
    }

    fn take(&self, context: ContextId, pass: PassInfo, shipment: Shipment) -> Result<Progress> {
        let shared = self.shared(context)?;
        let mut progress = Progress::default();
        {
            let mut state = shared.lock();
            let graph = state.graph(context)?;
            self.join(graph, pass);
            for Gradients { of, gradients } in shipment.0 {
                let sent = graph.sent.get(&of).ok_or(AutogradError::Freed)?;
                if gradients.len() != sent.tensors.len() {
                    let (count, expected) = (gradients.len(), sent.tensors.len());
                    let text = format!("{count} tensors for a message of {expected}");
                    return Err(AutogradError::Unexpected(text).into());
                }
                let made = gradients
                    .into_iter()
                    .zip(&sent.tensors)
                    .map(|(cargo, of)| match cargo {
                        Some(Cargo::Arrived(raw)) => self.backend.make_gradient(raw, of).map(Some),
                        Some(Cargo::Leaving(_)) | None => Ok(None),
                    });
                let made = made.collect::<Result<Vec<_>>>()?;
                graph.step(pass.id, &mut progress.held, |part| {
                    part.schedule.gradient(RootId::Sent(of))?;
                    part.incoming.insert(RootId::Sent(of), made);
                    Ok(())
                })?;
            }
        }
        self.advance(context, pass, &shared, &mut progress)?;
        Ok(progress)
    }

    fn discover(
        &self,
        context: ContextId,
        pass: PassInfo,
        sent: Option<&[u64]>,
    ) -> Result<Vec<(Rank, Vec<u64>)>> {
        self.with_graph(context, |graph| {
            self.join(graph, pass);
            let Some(part) = graph.passes.get_mut(&pass.id) else {
                return Ok(Vec::new());
            };
            let roots: Vec<RootId> = match sent {
                Some(sent) => sent.iter().copied().map(RootId::Sent).collect(),
                None => vec![RootId::Loss],
            };
            let mut found: FxHashMap<Rank, Vec<u64>> = FxHashMap::default();
            for root in roots {
                if !part.active.insert(root) {
                    continue;
                }
                for message in part.schedule.reaches(&root).unwrap_or_default() {
                    if part.needed.insert(*message) {
                        found.entry(message.from).or_default().push(message.number);
                    }
                }
            }
            Ok(found.into_iter().collect())
        })
    }

    fn proceed(&self, context: ContextId, pass: PassInfo) -> Result<Progress> {
        let shared = self.shared(context)?;
        let mut progress = Progress::default();
        {
            let mut state = shared.lock();
            let graph = state.graph(context)?;
            self.join(graph, pass);
            let done = graph.step(pass.id, &mut progress.held, |part| {
                Ok(part.schedule.only(&part.active))
            })?;
            let mut complete = Vec::new();
            self.pack(graph, pass.id, done, &mut complete);
            progress.shipments = by_worker(complete);
        }
        self.advance(context, pass, &shared, &mut progress)?;
        Ok(progress)
    }

    fn waiting(&self, context: ContextId, pass: PassId) -> Vec<(Rank, String)> {
        let waiting = self.with_graph(context, |graph| {
            let Some(part) = graph.passes.get(&pass) else {
                return Ok(Vec::new());
            };
            let unused = part
                .schedule
                .waits_for()
                .filter(|root| !part.active.contains(root));
            let sent = unused.filter_map(|root| match root {
                RootId::Sent(number) => graph.sent.get(&number),
                RootId::Loss => None,
            });
            Ok(sent.map(|sent| (sent.to, sent.function.clone())).collect())
        });
        // Whoever has no such context waits for nothing.
        waiting.unwrap_or_default()
    }

    fn fail(&self, context: ContextId, cause: &str) -> Vec<Rank> {
        let Some(shared) = self.contexts.get(context) else {
            return Vec::new();
        };
        let mut state = shared.lock();
        let State::Open(graph) = &*state else {
            return Vec::new();
        };
        let callees: Vec<Rank> = graph.callees.iter().copied().collect();
        let callers = graph.callers.clone();
        let concerned: FxHashSet<Rank> = graph.callees.union(&graph.callers).copied().collect();
        let failed = State::Failed {
            cause: cause.into(),
            callees,
            callers,
        };
        let before = std::mem::replace(&mut *state, failed);
        drop(state);
        if let State::Open(graph) = before {
            self.discard(graph);
        }
        concerned.into_iter().collect()
    }

    fn end(&self, context: ContextId, still: Option<&StillOpen>) -> Vec<(ContextId, Vec<Rank>)> {
        self.forget(self.contexts.end(context, still))
    }

    fn gone(&self, opener: Rank) -> Vec<(ContextId, Vec<Rank>)> {
        self.forget(self.contexts.gone(opener))
    }

    fn called_by(&self, worker: Rank) -> Vec<ContextId> {
        let all = self.contexts.all().into_iter();
        let called = all.filter(|(_, shared)| shared.lock().was_called_by(worker));
        called.map(|(context, _)| context).collect()
    }

    fn concerns(&self, worker: Rank) -> bool {
        let concerns = |(context, shared): (ContextId, Shared<B>)| {
            let state = shared.lock();
            context.opener() == worker
                || state.was_called_by(worker)
                || matches!(&*state, State::Open(graph) if graph.callees.contains(&worker))
        };
        self.contexts.all().into_iter().any(concerns)
    }

    fn standing(&self, context: ContextId, asks: Rank) -> Standing {
        let Some(shared) = self.contexts.get(context) else {
            return Standing::Ended;
        };
        match &mut *shared.lock() {
            State::Open(graph) => {
                graph.callees.insert(asks);
                Standing::Open
            }
            State::Failed { cause, callees, .. } => {
                callees.push(asks);
                Standing::Failed(cause.clone())
            }
            State::Ended => Standing::Ended,
        }
    }

    fn info(&self) -> AutogradInfo {
        let mut info = AutogradInfo {
            ends_remembered: self.contexts.remembered(),
            ..AutogradInfo::default()
        };
        for (_, shared) in self.contexts.all() {
            info.contexts += 1;
            if let State::Open(graph) = &*shared.lock() {
                info.sent += graph.sent.len();
                info.received += graph.arrivals.len();
                info.gradients += graph.gradients.len();
                info.passes += graph.passes.len();
            }
        }
        info
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl<B: AutogradBackend> Graph<B> {
    /// Notes who takes part.
    fn note(&mut self, crossing: &Crossing<'_>, leaves: bool) {
        // A request that leaves goes to a callee, a reply to a caller; what arrives, the other way round.
        if crossing.is_reply == leaves {
            self.callers.insert(crossing.peer);
        } else {
            self.callees.insert(crossing.peer);
        }
    }
}

#[cfg(test)]
mod tests;
