//! One worker: what its handles, its links and its threads share.
//!
//! [`Worker`] is the state; the layers above add what it does: calls are made in `call`, served in `serve`, and `world` joins and
//! leaves. [`World`] is the handle that user code holds.

mod connect;
mod extension;
mod gatherings;
mod meeting_seat;
mod options;
mod rounds;
mod world;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use telegrad_net::{Identity, Link, LinkOptions, Listener, Poller};
use telegrad_trace::Recorder;
use telegrad_wire::{Incarnation, Rank};

use crate::context::{CallContext, Home};
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
pub(crate) use meeting_seat::MeetingSeat;
pub use options::Options;
pub(crate) use options::{CallLimit, CallOptions};
use rounds::Rounds;
pub(crate) use rounds::{Lost, Verdict};
pub use world::World;

/// A member of a world, seen from inside.
pub(crate) struct Worker {
    /// For owners that must not keep the worker alive.
    pub(crate) weak: Weak<Worker>,
    pub(crate) identity: Identity,
    pub(in crate::worker) transport: Transport,
    pub(crate) rpc_timeout: Option<Duration>,
    pub(crate) shutdown_timeout: Option<Duration>,
    pub(crate) fail_on_leaks: bool,
    /// When an unreachable worker counts as lost.
    pub(crate) peer_timeout: Duration,
    link_options: LinkOptions,
    pub(crate) link_layer: Option<LinkLayer>,
    pub(crate) extension: Option<Arc<dyn Extension>>,

    pub(crate) executor: Executor,
    pub(crate) recorder: Arc<Recorder>,
    /// Made when the first socket needs watching; workers on in-memory links have none.
    poller: Mutex<Option<Arc<Poller>>>,
    listeners: Mutex<Vec<Listener>>,
    pub(crate) callers: Mutex<Callers>,
    /// The requests of each caller that are under way, to be looked at.
    served: Mutex<Vec<Weak<Running>>>,

    /// Set once, when the members have met.
    members: OnceLock<Members>,
    /// Kept so that no other worker can take a rank of this world.
    seat: Mutex<Option<MeetingSeat>>,

    pub(crate) activity: Arc<Activity>,
    pub(crate) gatherings: Gatherings,
    pub(crate) rounds: Rounds,
    pub(crate) references: Arc<References>,
    /// Held by the thread that shuts the worker down gracefully.
    pub(crate) shutting_down: Mutex<()>,
    next_call: AtomicU64,
    /// Numbers the connections, to tell what went over which.
    next_link: AtomicU64,
    /// Nanoseconds after `epoch` of the timer's next sweep; calls that end later need not schedule one.
    next_sweep: AtomicU64,
    epoch: Instant,
    is_shown: AtomicBool,
    /// Why it has left, once it has.
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
            seat: Mutex::new(None),
            activity,
            gatherings: Gatherings::default(),
            rounds: Rounds::default(),
            shutting_down: Mutex::new(()),
            next_call: AtomicU64::new(1),
            next_link: AtomicU64::new(1),
            next_sweep: AtomicU64::new(u64::MAX),
            epoch: Instant::now(),
            is_shown: AtomicBool::new(false),
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

    /// Takes over what `init` has opened.
    pub(crate) fn opened(&self, listeners: Vec<Listener>, seat: MeetingSeat) {
        *self.listeners.lock() = listeners;
        *self.seat.lock() = Some(seat);
    }

    /// The members have come together.
    pub(crate) fn has_met(&self) {
        if let Some(seat) = &mut *self.seat.lock() {
            seat.complete();
        }
    }

    /// Now the members know each other.
    pub(crate) fn meet(&self, members: Members) {
        self.references.meet(members.roster.clone());
        // Called once, by `init`.
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

    /// Closes a link that came about while the worker left, with the same goodbye as its other links.
    pub(crate) fn close_if_left(&self, link: &dyn Link) -> bool {
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
        // Under the lock, because closing the worker takes the poller only once.
        if self.is_closed() {
            return Err(std::io::Error::other("the worker has shut down"));
        }
        let poller = Poller::start(Arc::new(self.executor.clone()), self.link_options.spin)?;
        *slot = Some(poller.clone());
        Ok(poller)
    }

    /// A number for a new connection.
    pub(crate) fn link_number(&self) -> u64 {
        self.next_link.fetch_add(1, SeqCst)
    }

    /// Makes sure that the timer sweeps at `deadline`, or before.
    pub(crate) fn sweep_at(&self, deadline: Instant) {
        let at = nanos(deadline.saturating_duration_since(self.epoch));
        if at < self.next_sweep.load(SeqCst) && self.next_sweep.fetch_min(at, SeqCst) > at {
            schedule(deadline, self.weak.clone());
        }
    }

    /// The hook of the extension on messages.
    pub(crate) fn hook(&self) -> Option<&dyn MessageHook> {
        self.extension
            .as_deref()
            .map(|extension| extension as &dyn MessageHook)
    }

    /// The parts that calls use.
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
        let home: Arc<dyn std::any::Any + Send + Sync> = call.home.upgrade()?;
        home.downcast().ok()
    }

    /// Numbers a new call.
    pub(crate) fn call_number(&self) -> u64 {
        self.next_call.fetch_add(1, SeqCst)
    }

    /// The number of the world; 0 until the members have met.
    pub(crate) fn world_number(&self) -> u64 {
        self.members.get().map_or(0, Members::world)
    }

    /// The connections with a worker. They may have ended.
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

    /// The member that leads a shutdown: the living one of the lowest rank.
    pub(crate) fn leader(&self) -> Rank {
        let members = self.members.get();
        let leader = members.and_then(|members| self.rounds.leader(members.count()));
        leader.unwrap_or(self.identity.rank)
    }

    /// Members in the order of their ranks.
    pub(crate) fn infos(&self) -> Vec<WorkerInfo> {
        let members = self.members.get();
        members.map(Members::infos).unwrap_or_default()
    }

    /// Remembers where the requests of a caller are found.
    pub(crate) fn served(&self, requests: &Arc<Running>) {
        let mut served = self.served.lock();
        // Not every time: a thousand callers come one after the other.
        if served.len() == served.capacity() {
            served.retain(|requests| requests.strong_count() > 0);
        }
        served.push(Arc::downgrade(requests));
    }

    /// The requests that are under way, but for those that run on the thread that has read them, each with the value that it
    /// makes if it does.
    pub(crate) fn requests(&self) -> Vec<(Arc<CallContext>, Option<RefId>)> {
        let served: Vec<_> = self.served.lock().iter().filter_map(Weak::upgrade).collect();
        let answered = served.iter().flat_map(|requests| requests.all());
        let mut all: Vec<_> = answered.map(|context| (context, None)).collect();
        let making = self.references.making().into_iter();
        all.extend(making.map(|(reference, context)| (context, Some(reference))));
        all
    }

    /// The calls of this worker that have no result yet, with their callees.
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

    /// For how long it has been there.
    pub(crate) fn uptime(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// How long calls took, by callee.
    pub(crate) fn latencies(&self) -> Vec<Latency> {
        let members = self.members.get().into_iter().flat_map(Members::known);
        members.filter_map(|member| member.latency()).collect()
    }

    /// Notes that tools on this host can see what it does.
    pub(crate) fn set_shown(&self) {
        self.is_shown.store(true, SeqCst);
    }

    /// Whether tools on this host can see what it does.
    fn is_shown(&self) -> bool {
        self.is_shown.load(SeqCst)
    }

    /// Calls made by this worker that have no result yet.
    pub(crate) fn calls_under_way(&self) -> usize {
        self.outbounds().map(|outbound| outbound.calls.len()).sum()
    }

    /// Calls that were given up, and whose answers have not come yet.
    pub(crate) fn calls_given_up(&self) -> usize {
        self.outbounds().map(|outbound| outbound.calls.abandoned()).sum()
    }

    fn outbounds(&self) -> impl Iterator<Item = Arc<Outbound>> {
        let members = self.members.get();
        members
            .into_iter()
            .flat_map(Members::known)
            .filter_map(|member| member.outbound())
    }

    /// Drops the links of a caller that have ended; returns whether any other is left.
    pub(crate) fn drop_ended_links(&self, caller: Rank) -> bool {
        let (ended, still_calls) = {
            let mut callers = self.callers.lock();
            (callers.take_ended(caller), !callers.of(caller).is_empty())
        };
        drop(ended);
        still_calls
    }

    /// Ends everything at once. The first call does it; the others find it done.
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
        self.rounds.close();
        self.references.close();
        if let Some(poller) = self.poller.lock().take() {
            poller.close(why);
        }
        self.executor.close();
        self.recorder.close();
        self.seat.lock().take();
        self.activity.changed();
    }
}

impl Home for Worker {
    fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Closed already, unless `init` failed half-way.
        self.close("the worker is gone");
    }
}

impl Sweep for Worker {
    fn sweep(&self, now: Instant) -> Option<Instant> {
        // From here on new calls tell the timer themselves.
        self.next_sweep.store(u64::MAX, SeqCst);
        let next = self
            .outbounds()
            .filter_map(|outbound| outbound.sweep(now))
            .min()?;
        let at = nanos(next.saturating_duration_since(self.epoch));
        // When a new call has asked for an earlier time meanwhile, it has told the timer.
        (self.next_sweep.fetch_min(at, SeqCst) > at).then_some(next)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
