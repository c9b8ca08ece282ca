//! The state of a worker, shared by its handles, links and threads.
//!
//! Layers above add the behaviour: `call` makes calls, `serve` serves them, `world` joins and leaves. [`World`] is the handle
//! for user code.

mod connect;
mod extension;
mod gatherings;
mod options;
mod rank_claim;
mod shutdown_rounds;
mod world;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use telegrad_net::{Identity, Link, LinkOptions, Listener, Poller};
use telegrad_trace::Recorder;
use telegrad_wire::{Incarnation, Rank};

use crate::context::{AnyWorker, CallContext};
use crate::error::{Error, Result};
use crate::exec::Executor;
use crate::link::{Call, CallServices, Callers, LinkLayer, Members, Outbound, Running, Transport};
use crate::message::MessageHook;
use crate::observe::{Activity, Latency};
use crate::reference::References;
use crate::time::{Sweep, schedule};
use crate::types::{RefId, WorkerInfo};

pub use extension::Extension;
use gatherings::Gatherings;
pub(crate) use gatherings::{Blob, Gathering};
pub use options::Options;
pub(crate) use options::{CallLimit, CallOptions};
pub(crate) use rank_claim::RankClaim;
use shutdown_rounds::ShutdownRounds;
pub(crate) use shutdown_rounds::{Lost, Verdict};
pub use world::World;

/// The state of one member of a world.
pub(crate) struct Worker {
    /// Cloned by owners that must not keep the worker alive.
    pub(crate) weak: Weak<Worker>,
    pub(crate) identity: Identity,
    pub(in crate::worker) transport: Transport,
    pub(crate) rpc_timeout: Option<Duration>,
    pub(crate) shutdown_timeout: Option<Duration>,
    pub(crate) fail_on_leaks: bool,
    /// Time after which an unreachable worker counts as lost.
    pub(crate) peer_timeout: Duration,
    link_options: LinkOptions,
    pub(crate) link_layer: Option<LinkLayer>,
    pub(crate) extension: Option<Arc<dyn Extension>>,

    pub(crate) executor: Executor,
    pub(crate) recorder: Arc<Recorder>,
    /// Started with the first socket; workers on in-memory links have none.
    poller: Mutex<Option<Arc<Poller>>>,
    listeners: Mutex<Vec<Listener>>,
    pub(crate) callers: Mutex<Callers>,
    /// The running requests of each link, for status queries.
    served: Mutex<Vec<Weak<Running>>>,

    /// Set once, when all members have joined.
    members: OnceLock<Members>,
    /// Keeps the rank of this worker claimed.
    rank_claim: Mutex<Option<RankClaim>>,

    pub(crate) activity: Arc<Activity>,
    pub(crate) gatherings: Gatherings,
    pub(crate) shutdown_rounds: ShutdownRounds,
    pub(crate) references: Arc<References>,
    /// Held by the thread that shuts the worker down gracefully.
    pub(crate) shutting_down: Mutex<()>,
    next_call: AtomicU64,
    /// Numbers the links, to attribute references and calls to them.
    next_link: AtomicU64,
    /// Time of the timer's next sweep, in nanoseconds after `epoch`. Calls with a later deadline need not schedule one.
    next_sweep: AtomicU64,
    epoch: Instant,
    is_visible: AtomicBool,
    /// The reason of the close; set once.
    closed: OnceLock<Box<str>>,
}

impl Worker {
    pub(crate) fn new(weak: Weak<Self>, identity: Identity, options: &Options) -> Self {
        let executor = Executor::new(&identity.name, options.num_worker_threads);
        let activity = Arc::<Activity>::default();
        let references = References::new(
            weak.clone(),
            (&identity.name, identity.incarnation),
            executor.clone(),
            activity.clone(),
            options.reference_retry,
        );
        Self {
            weak,
            transport: options.transport,
            rpc_timeout: options.rpc_timeout,
            shutdown_timeout: options.shutdown_timeout,
            fail_on_leaks: options.fail_on_leaks,
            link_options: LinkOptions {
                max_message: options.max_message,
                window: options.window,
                spin: options.spin,
                share_memory: options.transport != Transport::Unix,
                peer_timeout: options.peer_timeout,
                lanes: options.lanes,
                chunk: options.chunk,
                ..LinkOptions::default()
            },
            link_layer: options.link_layer.clone(),
            peer_timeout: options.peer_timeout,
            extension: options.extension.map(|make| make()),
            executor,
            recorder: Recorder::new(identity.rank, options.clock, identity.incarnation.0),
            references,
            identity,
            poller: Mutex::new(None),
            listeners: Mutex::default(),
            callers: Mutex::default(),
            served: Mutex::default(),
            members: OnceLock::new(),
            rank_claim: Mutex::new(None),
            activity,
            gatherings: Gatherings::default(),
            shutdown_rounds: ShutdownRounds::default(),
            shutting_down: Mutex::new(()),
            next_call: AtomicU64::new(1),
            next_link: AtomicU64::new(1),
            next_sweep: AtomicU64::new(u64::MAX),
            epoch: Instant::now(),
            is_visible: AtomicBool::new(false),
            closed: OnceLock::new(),
        }
    }

    pub(crate) fn members(&self) -> Result<&Members> {
        self.members
            .get()
            .ok_or_else(|| Error::Init("the members have not met yet".into()))
    }

    pub(crate) fn name(&self) -> &str {
        &self.identity.name
    }

    /// Takes ownership of the listeners and the claim of the rank.
    pub(crate) fn set_listeners(&self, listeners: Vec<Listener>, rank_claim: RankClaim) {
        *self.listeners.lock() = listeners;
        *self.rank_claim.lock() = Some(rank_claim);
    }

    /// Notes that all members have joined.
    pub(crate) fn complete_rendezvous(&self) {
        if let Some(rank_claim) = &mut *self.rank_claim.lock() {
            rank_claim.complete();
        }
    }

    /// Sets the members of the world.
    pub(crate) fn set_members(&self, members: Members) {
        self.references.meet(members.roster.clone());
        // Cannot fail: `init` calls this once.
        let _ = self.members.set(members);
        let worker = self.weak.clone();
        self.recorder.set_worker_names(move |rank| {
            let worker = worker.upgrade()?;
            Some(worker.members().ok()?.get(rank)?.info.name.clone())
        });
        self.activity.changed();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }

    /// Closes a link made while the worker closed, with the same goodbye as its other links; returns whether it did.
    pub(crate) fn close_late_link(&self, link: &dyn Link) -> bool {
        let why = self.closed.get();
        if let Some(why) = why {
            link.close(why);
        }
        why.is_some()
    }

    pub(crate) fn link_options(&self) -> LinkOptions {
        self.link_options.clone()
    }

    pub(crate) fn traffic(&self) -> &telegrad_net::Traffic {
        &self.link_options.traffic
    }

    pub(crate) fn poller(&self) -> std::io::Result<Arc<Poller>> {
        let mut slot = self.poller.lock();
        if let Some(poller) = &*slot {
            return Ok(poller.clone());
        }
        // Checked under the lock, because `close` takes the poller only once.
        if self.is_closed() {
            return Err(std::io::Error::other("the worker has shut down"));
        }
        let poller = Poller::start(Arc::new(self.executor.clone()), self.link_options.spin)?;
        *slot = Some(poller.clone());
        Ok(poller)
    }

    /// Returns the number for a new link.
    pub(crate) fn next_link_number(&self) -> u64 {
        self.next_link.fetch_add(1, SeqCst)
    }

    /// Schedules a sweep of the timer at `deadline` or earlier.
    pub(crate) fn sweep_at(&self, deadline: Instant) {
        let at = nanos(deadline.saturating_duration_since(self.epoch));
        if at < self.next_sweep.load(SeqCst) && self.next_sweep.fetch_min(at, SeqCst) > at {
            schedule(deadline, self.weak.clone());
        }
    }

    /// Returns the extension's hook on messages.
    pub(crate) fn hook(&self) -> Option<&dyn MessageHook> {
        self.extension
            .as_deref()
            .map(|extension| extension as &dyn MessageHook)
    }

    /// Returns the parts of the worker that calls use.
    fn call_services(&self) -> CallServices {
        CallServices {
            events: self.weak.clone(),
            references: self.references.clone(),
            activity: self.activity.clone(),
            executor: self.executor.clone(),
        }
    }

    /// Returns the worker that serves this call.
    pub(crate) fn serving(call: &CallContext) -> Option<Arc<Self>> {
        let worker: Arc<dyn std::any::Any + Send + Sync> = call.worker.upgrade()?;
        worker.downcast().ok()
    }

    /// Returns the number for a new call.
    pub(crate) fn next_call_number(&self) -> u64 {
        self.next_call.fetch_add(1, SeqCst)
    }

    /// Returns the number of the world; 0 until the members are known.
    pub(crate) fn world_number(&self) -> u64 {
        self.members.get().map_or(0, Members::world)
    }

    /// Returns the links with a worker in both directions, closed ones included.
    pub(crate) fn links_with(&self, incarnation: Incarnation) -> Vec<Arc<dyn Link>> {
        let Some(member) = self
            .members
            .get()
            .and_then(|members| members.of_incarnation(incarnation))
        else {
            return Vec::new();
        };
        let mut links = self.callers.lock().of(member.info.rank).to_vec();
        links.extend(member.outbound().map(|outbound| outbound.link.clone()));
        links
    }

    /// Returns the leader of a shutdown: the living member of the lowest rank.
    pub(crate) fn leader(&self) -> Rank {
        let members = self.members.get();
        let leader = members.and_then(|members| self.shutdown_rounds.leader(members.count()));
        leader.unwrap_or(self.identity.rank)
    }

    /// Returns the members by rank.
    pub(crate) fn infos(&self) -> Vec<WorkerInfo> {
        let members = self.members.get();
        members.map(Members::infos).unwrap_or_default()
    }

    /// Adds the running requests of a new link, for status queries.
    pub(crate) fn track_requests(&self, requests: &Arc<Running>) {
        let mut served = self.served.lock();
        // Only before the list grows: a thousand callers may connect in a row.
        if served.len() == served.capacity() {
            served.retain(|requests| requests.strong_count() > 0);
        }
        served.push(Arc::downgrade(requests));
    }

    /// Returns the accepted and unfinished requests, each with the value that it creates, if any.
    ///
    /// Requests that run on the reading thread are not included.
    pub(crate) fn requests(&self) -> Vec<(Arc<CallContext>, Option<RefId>)> {
        let served: Vec<_> = self.served.lock().iter().filter_map(Weak::upgrade).collect();
        let answered = served.iter().flat_map(|requests| requests.all());
        let mut all: Vec<_> = answered.map(|context| (context, None)).collect();
        let making = self.references.making().into_iter();
        all.extend(making.map(|(reference, context)| (context, Some(reference))));
        all
    }

    /// Returns this worker's calls without a result, with their callees.
    pub(crate) fn pending_calls(&self) -> Vec<(Rank, Arc<Call>)> {
        let of = |outbound: Arc<Outbound>| {
            let callee = outbound.link.peer().rank;
            outbound
                .calls
                .pending()
                .into_iter()
                .map(move |call| (callee, call))
        };
        self.outbounds().flat_map(of).collect()
    }

    /// Returns the time since the worker was made.
    pub(crate) fn uptime(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Returns the latencies of calls, by callee.
    pub(crate) fn latencies(&self) -> Vec<Latency> {
        let members = self.members.get().into_iter().flat_map(Members::known);
        members.filter_map(|member| member.latency()).collect()
    }

    /// Notes that the process's status socket serves this worker.
    pub(crate) fn set_visible(&self) {
        self.is_visible.store(true, SeqCst);
    }

    /// Whether the process's status socket serves this worker.
    fn is_visible(&self) -> bool {
        self.is_visible.load(SeqCst)
    }

    /// Counts this worker's calls without a result.
    pub(crate) fn pending_call_count(&self) -> usize {
        self.outbounds().map(|outbound| outbound.calls.len()).sum()
    }

    /// Counts the abandoned calls whose replies have not arrived.
    pub(crate) fn abandoned_call_count(&self) -> usize {
        self.outbounds().map(|outbound| outbound.calls.abandoned()).sum()
    }

    fn outbounds(&self) -> impl Iterator<Item = Arc<Outbound>> {
        let members = self.members.get();
        members
            .into_iter()
            .flat_map(Members::known)
            .filter_map(|member| member.outbound())
    }

    /// Drops the closed links of a caller; returns whether an open one is left.
    pub(crate) fn drop_ended_links(&self, caller: Rank) -> bool {
        let (ended, still_calls) = {
            let mut callers = self.callers.lock();
            (callers.take_ended(caller), !callers.of(caller).is_empty())
        };
        drop(ended);
        still_calls
    }

    /// Closes the worker at once. Further calls do nothing.
    pub(crate) fn close(&self, why: &str) {
        if self.closed.set(why.into()).is_err() {
            return;
        }
        self.listeners.lock().clear();
        for outbound in self.outbounds() {
            outbound.link.close(why);
        }
        let callers = std::mem::take(&mut *self.callers.lock());
        for link in callers.into_links() {
            link.close(why);
        }
        self.gatherings.close();
        self.shutdown_rounds.close();
        self.references.close();
        if let Some(poller) = self.poller.lock().take() {
            poller.close(why);
        }
        self.executor.close();
        self.recorder.close();
        self.rank_claim.lock().take();
        self.activity.changed();
    }
}

impl AnyWorker for Worker {
    fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Usually closed already, unless `init` failed.
        self.close("the worker was dropped");
    }
}

impl Sweep for Worker {
    fn sweep(&self, now: Instant) -> Option<Instant> {
        // From here on, new calls schedule their own sweeps.
        self.next_sweep.store(u64::MAX, SeqCst);
        let next = self
            .outbounds()
            .filter_map(|outbound| outbound.sweep(now))
            .min()?;
        let at = nanos(next.saturating_duration_since(self.epoch));
        // A new call with an earlier deadline has scheduled its own sweep meanwhile.
        (self.next_sweep.fetch_min(at, SeqCst) > at).then_some(next)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
