//! This worker's part in backward passes.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use rustc_hash::{FxHashMap, FxHashSet};
use telegrad_rpc::Result;
use telegrad_trace::Kind;
use telegrad_wire::{ContextId, Rank};

use super::Node;
use super::recording::{link, noted};
use crate::backend::{AutogradBackend, Root};
use crate::contexts::Shared;
use crate::drive::Mode;
use crate::graph::{Graph, MessageId, Pass, RootId};
use crate::message::{Cargo, Gradients, PassId, PassInfo, Shipment};
use crate::schedule::Unexpected;
use telegrad_error::AutogradError;

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

/// Does a worker's part in passes.
pub(crate) trait Passing {
    /// A new pass that starts here.
    fn pass(&self, here: Rank, retain: bool, mode: Mode) -> PassInfo;
    /// It is over.
    fn pass_over(&self, pass: PassId);
    /// Takes gradients of what this worker has sent, and goes on with them.
    fn take(&self, context: ContextId, pass: PassInfo, shipment: Shipment) -> Result<Progress>;
    /// Notes that these messages matter, or the loss; the messages that they were computed from, by sender.
    fn discover(
        &self,
        context: ContextId,
        pass: PassInfo,
        sent: Option<&[u64]>,
    ) -> Result<Vec<(Rank, Vec<u64>)>>;
    /// It is known which messages matter: goes on without the others.
    fn proceed(&self, context: ContextId, pass: PassInfo) -> Result<Progress>;
    /// The messages that do not matter and are waited for: to whom they went, in a call of which function.
    fn waiting(&self, context: ContextId, pass: PassId) -> Vec<(Rank, String)>;
}

impl<B: AutogradBackend> Passing for Node<B> {
    fn pass(&self, here: Rank, retain: bool, mode: Mode) -> PassInfo {
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

    fn pass_over(&self, pass: PassId) {
        self.running.lock().remove(&pass.number);
    }

    fn take(&self, context: ContextId, pass: PassInfo, shipment: Shipment) -> Result<Progress> {
        let shared = self.shared(context)?;
        let mut progress = Progress::default();
        let mut accepted = Vec::new();
        let accept = || -> Result<()> {
            let mut state = shared.lock();
            let graph = state.graph(context)?;
            progress.held += self.join(graph, pass);
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
                graph.step(pass, &mut progress.held, |part| {
                    part.schedule.gradient(RootId::Sent(of))?;
                    part.incoming.insert(RootId::Sent(of), made);
                    Ok(())
                })?;
                accepted.push(of);
            }
            Ok(())
        };
        let result = accept();
        // What was not accepted has not been received; and not while the context is locked.
        for of in accepted {
            noted("autograd::receive gradient", |here| link(context, here, of));
        }
        result?;
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
        let mut complete = Vec::new();
        {
            let mut state = shared.lock();
            let graph = state.graph(context)?;
            progress.held += self.join(graph, pass);
            let done = graph.step(pass, &mut progress.held, |part| {
                Ok(part.schedule.only(&part.active))
            })?;
            self.pack(graph, pass.id, done, &mut complete);
        }
        progress.shipments = shipments(context, complete);
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
}

impl<B: AutogradBackend> Node<B> {
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
            progress.held += graph.begin(&self.backend, pass, loss);
            graph.step(pass, &mut progress.held, |part| {
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
                let run = graph.step(pass, &mut progress.held, |part| Ok(part.schedule.next()))?;
                if run.is_empty() {
                    break;
                }
                let (roots, leaves) = self.collect(graph, pass, &run)?;
                (run, roots, leaves)
            };
            let found = if roots.is_empty() {
                Ok(Vec::new())
            } else {
                let recorded = telegrad_trace::scope(Kind::Autograd, || "autograd::gradients".into());
                let found = self.backend.vjp(&roots, &leaves);
                if let Err(error) = &found {
                    recorded.fail(|| error.to_string());
                }
                found
            };
            // Also when it has failed: this may be the last of a long graph.
            self.backend.discard(roots);
            let found = found?;
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
            let done = graph.step(pass, &mut progress.held, |part| Ok(part.schedule.ran(&run)))?;
            self.pack(graph, pass.id, done, &mut complete);
        }
        progress.shipments.extend(shipments(context, complete));
        Ok(())
    }

    /// Another context that one of these leaves came in.
    fn foreign(&self, context: ContextId, found: &[(B::LeafId, B::Tensor)]) -> Option<ContextId> {
        let origins = self.origins.lock();
        let mut found = found.iter().filter_map(|(leaf, _)| origins.get(leaf));
        found.find(|origin| **origin != context).copied()
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
            let cargo = |gradient: B::Tensor| Cargo::Leaving(Arc::new(self.backend.sent_of(gradient)));
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

    /// Begins this worker's part in a pass unless it has; how much is held then. Forgets passes that are over.
    fn join(&self, graph: &mut Graph<B>, pass: PassInfo) -> i64 {
        graph.forget_passes_before(pass);
        if graph.passes.contains_key(&pass.id) {
            return 0;
        }
        graph.begin(&self.backend, pass, Vec::new())
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
        pass: PassInfo,
        held: &mut i64,
        f: impl FnOnce(&mut Pass<B>) -> Result<R, Unexpected>,
    ) -> Result<R> {
        let part = self
            .passes
            .get_mut(&pass.id)
            .ok_or_else(|| AutogradError::Unexpected("the pass is over".into()))?;
        let before = part.held(pass.fast);
        let result = f(part);
        *held += part.held(pass.fast) - before;
        result.map_err(|why| match why {
            Unexpected::Unknown => AutogradError::Freed.into(),
            Unexpected::Again => AutogradError::Unexpected("it has come before".into()).into(),
            Unexpected::Unused => {
                AutogradError::Unexpected("what it is for was found not to matter".into()).into()
            }
        })
    }
}

/// What goes to each worker.
fn shipments(context: ContextId, complete: Vec<(Rank, Gradients)>) -> Vec<(Rank, Shipment)> {
    let mut shipments: Vec<(Rank, Shipment)> = Vec::new();
    for (to, gradients) in complete {
        noted("autograd::send gradient", |_| link(context, to, gradients.of));
        match shipments.iter_mut().find(|(rank, _)| *rank == to) {
            Some((_, shipment)) => shipment.0.push(gradients),
            None => shipments.push((to, Shipment(vec![gradients]))),
        }
    }
    shipments
}
