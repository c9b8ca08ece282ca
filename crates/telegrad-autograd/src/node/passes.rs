//! This worker's part in backward passes.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use rustc_hash::{FxHashMap, FxHashSet};
use telegrad_rpc::Result;
use telegrad_trace::Kind;
use telegrad_wire::{ContextId, Rank};

use telegrad_error::AutogradError;

use super::Node;
use super::tracking::{link, trace_crossing};
use crate::backend::{AutogradBackend, Root};
use crate::contexts::SharedContext;
use crate::graph::{Graph, MessageId, PassState, RootId};
use crate::message::{GradientBatch, MessageGradients, PassId, PassInfo, WireGradient};
use crate::mode::Mode;
use crate::schedule::Rejection;

/// The result of a step of a pass.
#[derive(Default)]
pub(crate) struct Progress {
    /// Gradients to send to other workers.
    pub(crate) batches: Vec<(Rank, GradientBatch)>,
    /// The change in the number of held gradients; see [`Schedule::held`](crate::schedule::Schedule::held).
    pub(crate) held: i64,
}

/// The roots of one traversal of the graph, and the leaves that it reaches.
type Traversal<B> = (Vec<Root<B>>, Vec<<B as AutogradBackend>::LeafId>);

impl<B: AutogradBackend> Node<B> {
    /// Returns the name and options of a new pass that starts here.
    pub(crate) fn new_pass(&self, here: Rank, retain: bool, mode: Mode) -> PassInfo {
        let mut running = self.running.lock();
        let number = self.next_pass.fetch_add(1, SeqCst);
        running.insert(number);
        PassInfo {
            id: PassId { root: here, number },
            oldest: running.first().copied().unwrap_or(number),
            retain,
            fast: mode == Mode::Fast,
        }
    }

    /// Marks a pass that started here as ended.
    pub(crate) fn end_pass(&self, pass: PassId) {
        self.running.lock().remove(&pass.number);
    }

    /// Takes gradients of messages that this worker sent, and runs what they complete.
    pub(crate) fn take(&self, context: ContextId, pass: PassInfo, batch: GradientBatch) -> Result<Progress> {
        let shared = self.shared(context)?;
        let mut progress = Progress::default();
        let mut accepted = Vec::new();
        let accept = || -> Result<()> {
            let mut state = shared.lock();
            let graph = state.graph(context)?;
            progress.held += self.join(graph, pass);
            for MessageGradients { of, gradients } in batch.0 {
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
                        Some(WireGradient::Incoming(raw)) => self.backend.make_gradient(raw, of).map(Some),
                        Some(WireGradient::Outgoing(_)) | None => Ok(None),
                    });
                let made = made.collect::<Result<Vec<_>>>()?;
                graph.step(pass, &mut progress.held, |state| {
                    state.schedule.gradient(RootId::Sent(of))?;
                    state.incoming.insert(RootId::Sent(of), made);
                    Ok(())
                })?;
                accepted.push(of);
            }
            Ok(())
        };
        let result = accept();
        // Without the lock, and for accepted gradients only.
        for of in accepted {
            trace_crossing("autograd::receive gradient", |here| link(context, here, of));
        }
        result?;
        self.advance(context, pass, &shared, &mut progress)?;
        Ok(progress)
    }

    /// Marks sent messages (or the loss, for `None`) as active; returns the messages that they were computed from, by
    /// sender.
    pub(crate) fn discover(
        &self,
        context: ContextId,
        pass: PassInfo,
        sent: Option<&[u64]>,
    ) -> Result<Vec<(Rank, Vec<u64>)>> {
        self.with_graph(context, |graph| {
            self.join(graph, pass);
            let Some(state) = graph.passes.get_mut(&pass.id) else {
                return Ok(Vec::new());
            };
            let roots: Vec<RootId> = match sent {
                Some(sent) => sent.iter().copied().map(RootId::Sent).collect(),
                None => vec![RootId::Loss],
            };
            let mut found: FxHashMap<Rank, Vec<u64>> = FxHashMap::default();
            for root in roots {
                if !state.active.insert(root) {
                    continue;
                }
                for message in state.schedule.reaches(&root).unwrap_or_default() {
                    if state.needed.insert(*message) {
                        found.entry(message.from).or_default().push(message.number);
                    }
                }
            }
            Ok(found.into_iter().collect())
        })
    }

    /// Continues a pass with the active messages alone.
    pub(crate) fn proceed(&self, context: ContextId, pass: PassInfo) -> Result<Progress> {
        let shared = self.shared(context)?;
        let mut progress = Progress::default();
        let mut complete = Vec::new();
        {
            let mut state = shared.lock();
            let graph = state.graph(context)?;
            progress.held += self.join(graph, pass);
            let done = graph.step(pass, &mut progress.held, |state| {
                Ok(state.schedule.restrict_to(&state.active))
            })?;
            self.pack(graph, pass.id, done, &mut complete);
        }
        progress.batches = batches(context, complete);
        self.advance(context, pass, &shared, &mut progress)?;
        Ok(progress)
    }

    /// Lists the inactive messages that the pass waits for: receiver and called function of each.
    pub(crate) fn unused(&self, context: ContextId, pass: PassId) -> Vec<(Rank, String)> {
        let unused = self.with_graph(context, |graph| {
            let Some(state) = graph.passes.get(&pass) else {
                return Ok(Vec::new());
            };
            let unused = state
                .schedule
                .awaited()
                .filter(|root| !state.active.contains(root));
            let sent = unused.filter_map(|root| match root {
                RootId::Sent(number) => graph.sent.get(&number),
                RootId::Loss => None,
            });
            Ok(sent.map(|sent| (sent.to, sent.function.clone())).collect())
        });
        // Without the context there is nothing to wait for.
        unused.unwrap_or_default()
    }

    /// Starts a pass on this worker, from these losses.
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
            progress.held += graph.begin_pass(&self.backend, pass, loss);
            graph.step(pass, &mut progress.held, |state| {
                state.incoming.insert(RootId::Loss, ones);
                state.schedule.gradient(RootId::Loss)
            })?;
        }
        self.advance(context, pass, &shared, &mut progress)?;
        Ok(progress)
    }

    /// Runs the roots that the schedule releases, until it releases none.
    fn advance(
        &self,
        context: ContextId,
        pass: PassInfo,
        shared: &SharedContext<B>,
        progress: &mut Progress,
    ) -> Result<()> {
        let mut complete = Vec::new();
        loop {
            let (run, roots, leaves) = {
                let mut state = shared.lock();
                let graph = state.graph(context)?;
                let run = graph.step(pass, &mut progress.held, |state| Ok(state.schedule.next_batch()))?;
                if run.is_empty() {
                    break;
                }
                let (roots, leaves) = self.collect(graph, pass, &run)?;
                (run, roots, leaves)
            };
            let found = if roots.is_empty() {
                Ok(Vec::new())
            } else {
                let scope = telegrad_trace::scope(Kind::Autograd, || "autograd::gradients".into());
                let found = self.backend.vjp(&roots, &leaves);
                if let Err(error) = &found {
                    scope.fail(|| error.to_string());
                }
                found
            };
            // After a failure too: this may be the last reference to a long graph.
            self.backend.discard(roots);
            let found = found?;
            let mut state = shared.lock();
            let graph = state.graph(context)?;
            for (leaf, _) in &found {
                if let Some(parameter) = self.backend.changed_since(*leaf, &graph.joined) {
                    return Err(AutogradError::Changed { parameter, context }.into());
                }
            }
            if let Some(other) = self.foreign_context(context, &found) {
                return Err(AutogradError::Foreign { context, other }.into());
            }
            graph.accumulate(&self.backend, pass.id, found)?;
            let done = graph.step(pass, &mut progress.held, |state| Ok(state.schedule.finish(&run)))?;
            self.pack(graph, pass.id, done, &mut complete);
        }
        progress.batches.extend(batches(context, complete));
        Ok(())
    }

    /// Finds another context that one of these leaves was received in.
    fn foreign_context(&self, context: ContextId, found: &[(B::LeafId, B::Tensor)]) -> Option<ContextId> {
        let origins = self.origins.lock();
        let mut found = found.iter().filter_map(|(leaf, _)| origins.get(leaf));
        found.find(|origin| **origin != context).copied()
    }

    /// Takes out the tensors of these roots with their gradients; also returns the leaves that they reach.
    fn collect(&self, graph: &mut Graph<B>, pass: PassInfo, run: &[RootId]) -> Result<Traversal<B>> {
        let (mut roots, mut leaves, mut seen) = (Vec::new(), Vec::new(), FxHashSet::default());
        for root in run {
            let reached = graph
                .leaves_of(&self.backend, pass.id, *root)
                .ok_or(AutogradError::Freed)?;
            leaves.extend(reached.iter().copied().filter(|leaf| seen.insert(*leaf)));
            let state = graph.passes.get_mut(&pass.id).ok_or(AutogradError::Freed)?;
            let gradients = state.incoming.remove(root).unwrap_or_default();
            match root {
                RootId::Loss => roots.extend(std::mem::take(&mut state.loss).into_iter().zip(gradients)),
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

    /// Takes out the complete gradients of received messages, to send back.
    fn pack(
        &self,
        graph: &mut Graph<B>,
        pass: PassId,
        done: Vec<MessageId>,
        into: &mut Vec<(Rank, MessageGradients)>,
    ) {
        for message in done {
            let found = graph
                .passes
                .get_mut(&pass)
                .and_then(|state| state.outgoing.remove(&message));
            let count = graph.arrivals.get(&message).copied().unwrap_or(0);
            let found = found.unwrap_or_else(|| vec![None; count]);
            let outgoing = |gradient: B::Tensor| {
                WireGradient::Outgoing(Arc::new(self.backend.compress_gradient(gradient)))
            };
            let gradients = found.into_iter().map(|tensor| tensor.map(outgoing)).collect();
            into.push((
                message.from,
                MessageGradients {
                    of: message.number,
                    gradients,
                },
            ));
        }
    }

    /// Joins a pass, if this worker has not, and forgets ended passes; returns the change in held gradients.
    fn join(&self, graph: &mut Graph<B>, pass: PassInfo) -> i64 {
        graph.forget_passes_before(pass);
        if graph.passes.contains_key(&pass.id) {
            return 0;
        }
        graph.begin_pass(&self.backend, pass, Vec::new())
    }
}

impl<B: AutogradBackend> Graph<B> {
    fn forget_passes_before(&mut self, PassInfo { id, oldest, .. }: PassInfo) {
        self.passes
            .retain(|other, _| other.root != id.root || other.number >= oldest);
    }

    /// Changes this worker's part of a pass, and adds the change in held gradients to `held`.
    fn step<R>(
        &mut self,
        pass: PassInfo,
        held: &mut i64,
        f: impl FnOnce(&mut PassState<B>) -> Result<R, Rejection>,
    ) -> Result<R> {
        let state = self
            .passes
            .get_mut(&pass.id)
            .ok_or_else(|| AutogradError::Unexpected("the pass has ended".into()))?;
        let before = state.held(pass.fast);
        let result = f(state);
        *held += state.held(pass.fast) - before;
        result.map_err(|why| match why {
            Rejection::Unknown => AutogradError::Freed.into(),
            Rejection::Duplicate => AutogradError::Unexpected("it was received before".into()).into(),
            Rejection::Unused => {
                AutogradError::Unexpected("the loss does not depend on its message".into()).into()
            }
        })
    }
}

/// Groups gradients by receiver.
fn batches(context: ContextId, complete: Vec<(Rank, MessageGradients)>) -> Vec<(Rank, GradientBatch)> {
    let mut batches: Vec<(Rank, GradientBatch)> = Vec::new();
    for (to, gradients) in complete {
        trace_crossing("autograd::send gradient", |_| link(context, to, gradients.of));
        match batches.iter_mut().find(|(rank, _)| *rank == to) {
            Some((_, batch)) => batch.0.push(gradients),
            None => batches.push((to, GradientBatch(vec![gradients]))),
        }
    }
    batches
}
