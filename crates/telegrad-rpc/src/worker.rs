//! One worker: what its handles, its links and its threads share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use telegrad_net::{
    Closed, Flush, Hello, Host, Identity, Link, LinkOptions, Listener, Outgoing, Poller, SendError, Sink,
    Welcome,
};
use telegrad_wire::{CallId, Encoder, FrameKind, HAS_REFERENCES, IS_CONTROL, Wire, WireError};

use crate::activity::Activity;
use crate::call::{Call, LOOK, Outbound, Purpose, RpcFuture, functions_if_not};
use crate::collective::{Gatherings, is_gathering};
use crate::context::CallContext;
use crate::error::{Error, Result};
use crate::executor::Executor;
use crate::members::Members;
use crate::met::Met;
use crate::options::{CallOptions, LinkLayer, Options, Transport};
use crate::registry::{Registration, Registry};
use crate::rref::{Handle, Life, References, Section, hand_over, is_control};
use crate::serve::Inbound;
use crate::timer::{self, Sweep};
use crate::worker_info::{To, WorkerInfo};

/// Time to connect for a call that has no limit of its own.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// How long a worker that dials too early waits for the one it dials to have met the others.
const MEETING_LIMIT: Duration = Duration::from_secs(4);

/// A call to be made.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) to: To<'a>,
    pub(crate) function: &'static Registration,
    pub(crate) options: CallOptions,
    /// The reference that it is made on.
    pub(crate) object: Option<&'a Arc<Handle>>,
}

/// A member of a world, seen from inside.
pub(crate) struct Worker {
    /// Handed to whatever must not keep the worker alive.
    pub(crate) weak: Weak<Worker>,
    pub(crate) identity: Identity,
    pub(crate) transport: Transport,
    pub(crate) rpc_timeout: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) fail_on_leaks: bool,
    link_options: LinkOptions,
    pub(crate) link_layer: Option<LinkLayer>,

    pub(crate) executor: Executor,
    /// Made when the first socket needs watching; workers on in-memory links have none.
    poller: Mutex<Option<Arc<Poller>>>,
    listeners: Mutex<Vec<Listener>>,
    /// Links that others have made to call this worker. Kept alive here.
    pub(crate) inbound: Mutex<Vec<Arc<dyn Link>>>,

    /// Set once, when the members have met.
    members: OnceLock<Members>,
    /// Where they met, kept so that nobody else can take a rank of this world.
    met: Mutex<Option<Met>>,

    pub(crate) activity: Activity,
    pub(crate) gatherings: Gatherings,
    pub(crate) references: References,
    /// Held by the thread that shuts the worker down gracefully.
    pub(crate) shutting_down: Mutex<()>,
    next_call: AtomicU64,
    /// Numbers the connections, to tell what went over which.
    next_link: AtomicU64,
    /// Nanoseconds after `epoch` at which the timer comes by; calls that end later need not tell it.
    next_sweep: AtomicU64,
    epoch: Instant,
    closed: AtomicBool,
}

impl Worker {
    pub(crate) fn new(weak: Weak<Self>, identity: Identity, options: &Options) -> Self {
        let references = References::new(
            weak.clone(),
            identity.incarnation,
            options.reference_retry,
            options.peer_timeout,
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
                peer_timeout: options.peer_timeout,
                traffic: Arc::default(),
            },
            link_layer: options.link_layer.clone(),
            executor: Executor::new(&identity.name, options.num_worker_threads),
            references,
            identity,
            poller: Mutex::new(None),
            listeners: Mutex::default(),
            inbound: Mutex::default(),
            members: OnceLock::new(),
            met: Mutex::new(None),
            activity: Activity::default(),
            gatherings: Gatherings::default(),
            shutting_down: Mutex::new(()),
            next_call: AtomicU64::new(1),
            next_link: AtomicU64::new(1),
            next_sweep: AtomicU64::new(u64::MAX),
            epoch: Instant::now(),
            closed: AtomicBool::new(false),
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
    pub(crate) fn opened(&self, listeners: Vec<Listener>, met: Met) {
        *self.listeners.lock() = listeners;
        *self.met.lock() = Some(met);
    }

    /// The members have come together.
    pub(crate) fn has_met(&self) {
        if let Some(met) = &mut *self.met.lock() {
            met.complete();
        }
    }

    /// Now the members know each other.
    pub(crate) fn meet(&self, members: Members) {
        // Called once, by `init`.
        let _ = self.members.set(members);
        self.activity.changed();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
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
        // Under the lock, because whoever closes the worker takes the poller only once.
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

    /// Makes a call with these arguments; the future of its result.
    pub(crate) fn rpc<T: Wire>(
        self: &Arc<Self>,
        request: Request<'_>,
        args: &impl Wire,
    ) -> Result<RpcFuture<T>> {
        let pin = request.object.cloned();
        let (outbound, call) = self.call(&request, Purpose::Result(pin), &|e| args.encode(e))?;
        Ok(RpcFuture::new(self.clone(), outbound, call))
    }

    /// Has a value of this type made by another worker; a reference to it.
    pub(crate) fn create(
        self: &Arc<Self>,
        request: Request<'_>,
        type_name: &'static str,
        args: &impl Wire,
    ) -> Result<Arc<Handle>> {
        let owner = self.members()?.find(request.to)?;
        let creating = Creating(Some(self.references.create(self, owner, type_name)?), self);
        let purpose = Purpose::Creation {
            ids: creating
                .0
                .as_ref()
                .map(|handle| handle.ids())
                .ok_or(Error::ShutDown)?,
            object: request.object.cloned(),
        };
        self.call(&request, purpose, &|e| args.encode(e))?;
        creating.done().ok_or(Error::ShutDown)
    }

    /// Tells another worker something about references.
    pub(crate) fn tell(
        self: &Arc<Self>,
        request: &Request<'_>,
        (to, number): (Life, u64),
        args: &impl Wire,
    ) -> Result<()> {
        self.call(request, Purpose::Telling { to, number }, &|e| args.encode(e))
            .map(drop)
    }

    /// Makes a call: sends the request and returns without waiting for the reply.
    ///
    /// `encode` appends the arguments. It runs again when the connection turns out to have ended
    /// before anything was sent.
    fn call(
        self: &Arc<Self>,
        request: &Request<'_>,
        purpose: Purpose,
        encode: &dyn Fn(&mut Encoder),
    ) -> Result<(Arc<Outbound>, Arc<Call>)> {
        let Request {
            to,
            function,
            options,
            object,
        } = *request;
        let member = self.members()?.find(to)?;
        if self.is_closed() {
            return Err(Error::ShutDown);
        }
        let started = Instant::now();
        let (limit, deadline) = self.limit(options, started);
        let timeout = || Error::Timeout {
            function: function.name.into(),
            worker: member.info.name.clone(),
            limit: limit.unwrap_or_default(),
            elapsed: started.elapsed(),
        };
        if deadline.is_some_and(|deadline| deadline <= started) {
            return Err(timeout());
        }
        let cannot_send = |source: WireError| Error::Send {
            function: function.name.into(),
            worker: member.info.name.clone(),
            source: Box::new(source),
        };
        let creates = purpose.creates();
        let mut reconnected = false;
        loop {
            let outbound = member.connect(self, deadline.unwrap_or(started + CONNECT_LIMIT))?;
            outbound.check(function)?;
            let id = CallId(self.next_call.fetch_add(1, SeqCst));
            let call = Arc::new(Call::new(
                id,
                function.name,
                started,
                (limit, deadline),
                purpose.clone(),
            ));
            let mut encoder = Encoder::new();
            encoder.array_len(2);
            encoder.str(function.name);
            encode(&mut encoder);
            let mut payload = encoder.finish().map_err(cannot_send)?;
            let life = member.identity().incarnation;
            let handed = hand_over(self, &mut payload, life, outbound.calls.number).map_err(cannot_send)?;
            let section = Section {
                object: object.map(|handle| handle.reference),
                creates,
                handed,
            };
            let mut message = Outgoing::new(FrameKind::Request, id, payload);
            if !section.is_empty() {
                message.header.flags |= HAS_REFERENCES;
                message.payload = section.prepend(message.payload).map_err(cannot_send)?;
            }
            if is_control(function.name) {
                message.header.flags |= IS_CONTROL;
            }
            outbound.calls.insert(call.clone());
            if !purpose.is_waited_for() {
                // Nobody waits for the reply, but it has to be received.
                outbound.link.watch(true);
            }
            // After it is on the books, so that the timer cannot come by in between and miss it.
            let look = started + LOOK;
            self.sweep_at(deadline.map_or(look, |deadline| deadline.min(look)));
            match self.send(&outbound, message, options, deadline) {
                Ok(()) => {
                    if !is_gathering(function) {
                        self.activity.made.fetch_add(1, SeqCst);
                    }
                    return Ok((outbound, call));
                }
                Err(error) => {
                    let still_there = outbound.calls.withdraw(id);
                    if !purpose.is_waited_for() && still_there {
                        outbound.link.watch(false);
                    }
                    self.references.not_given(self, &section.handed);
                    if !purpose.is_waited_for() && !still_there {
                        // The end of the connection has been dealt with: a value that will not be made is an
                        // error to whoever uses it, and what is to be told is told again.
                        return Ok((outbound, call));
                    }
                    match error {
                        // Nothing of it was sent, so it may be sent again. Were it not in the books
                        // any more, it would have been failed as lost already.
                        NotSent::Closed(_) if still_there && !reconnected => reconnected = true,
                        NotSent::Closed(closed) => {
                            return Err(Error::WorkerLost {
                                worker: member.info.name.clone(),
                                function: function.name.into(),
                                why: closed.why.to_string(),
                            });
                        }
                        NotSent::Late => return Err(timeout()),
                        NotSent::Full => {
                            return Err(Error::Overloaded {
                                worker: member.info.name.clone(),
                                function: function.name.into(),
                            });
                        }
                        NotSent::Invalid(source) => return Err(cannot_send(source)),
                        NotSent::Inline => return Err(Error::WaitInInline),
                    }
                }
            }
        }
    }

    /// Sends a request, waiting for room at the callee where needed.
    fn send(
        &self,
        outbound: &Outbound,
        mut message: Outgoing,
        options: CallOptions,
        deadline: Option<Instant>,
    ) -> Result<(), NotSent> {
        loop {
            if let Some(deadline) = deadline {
                let left = deadline.saturating_duration_since(Instant::now()).as_micros();
                message.header.time_left = u64::try_from(left).unwrap_or(u64::MAX).max(1);
            }
            match outbound.link.send(message, Flush::Now, deadline) {
                Ok(()) => return Ok(()),
                Err(SendError::Full(_)) if options.no_wait => return Err(NotSent::Full),
                Err(SendError::Full(back)) => {
                    if !Executor::may_wait() {
                        return Err(NotSent::Inline);
                    }
                    match Executor::blocking(|| outbound.link.wait_for_credit(deadline)) {
                        Ok(true) => message = *back,
                        Ok(false) => return Err(NotSent::Late),
                        Err(closed) => return Err(NotSent::Closed(closed)),
                    }
                }
                Err(SendError::Deadline) => return Err(NotSent::Late),
                Err(SendError::Invalid(error)) => return Err(NotSent::Invalid(error)),
                Err(SendError::Closed(closed)) => return Err(NotSent::Closed(closed)),
                Err(_) => return Err(NotSent::Late),
            }
        }
    }

    /// The limit of a call and when it ends: its own or the worker's, but no later than the call
    /// that this thread serves.
    pub(crate) fn limit(&self, options: CallOptions, now: Instant) -> (Option<Duration>, Option<Instant>) {
        let own = options.timeout.unwrap_or(self.rpc_timeout);
        let own = (!own.is_zero()).then_some(own);
        let outer = CallContext::current().and_then(|call| call.deadline);
        let outer = outer.map(|deadline| deadline.saturating_duration_since(now));
        let limit = match (own, outer) {
            (Some(own), Some(outer)) => Some(own.min(outer)),
            (own, outer) => own.or(outer),
        };
        // A limit beyond what the clock can tell is none.
        (limit, limit.and_then(|limit| now.checked_add(limit)))
    }

    /// Makes sure that the timer comes by at `deadline`, or before.
    pub(crate) fn sweep_at(&self, deadline: Instant) {
        let at = nanos(deadline.saturating_duration_since(self.epoch));
        if at < self.next_sweep.load(SeqCst) && self.next_sweep.fetch_min(at, SeqCst) > at {
            timer::schedule(deadline, self.weak.clone());
        }
    }

    /// Ends the connections with a worker.
    pub(crate) fn part_from(&self, life: Life, why: &str) {
        let members = self.members.get();
        let outbound = members.and_then(|members| members.of_life(life)?.outbound());
        let inbound: Vec<_> = {
            let inbound = self.inbound.lock();
            let from_it = inbound.iter().filter(|link| link.peer().incarnation == life);
            from_it.cloned().collect()
        };
        for link in outbound
            .map(|outbound| outbound.link.clone())
            .into_iter()
            .chain(inbound)
        {
            link.close(why);
        }
    }

    /// Members in the order of their ranks.
    pub(crate) fn infos(&self) -> Vec<WorkerInfo> {
        let members = self.members.get();
        members
            .map(|m| m.by_rank.iter().map(|member| member.info.clone()).collect())
            .unwrap_or_default()
    }

    /// Calls made by this worker that have no result yet.
    pub(crate) fn calls_under_way(&self) -> usize {
        self.outbounds().map(|outbound| outbound.calls.len()).sum()
    }

    fn outbounds(&self) -> impl Iterator<Item = Arc<Outbound>> {
        let members = self.members.get();
        members
            .into_iter()
            .flat_map(|m| &m.by_rank)
            .filter_map(|member| member.outbound())
    }

    /// A link between this worker and `peer` has ended. With the last one the peer counts as lost:
    /// nothing that waits for it to call can be completed.
    pub(crate) fn link_ended(self: &Arc<Self>, peer: &WorkerInfo, number: u64, closed: &Closed) {
        let (ended, still_calls) = {
            let mut inbound = self.inbound.lock();
            let ended: Vec<_> = inbound.extract_if(.., |link| link.closed().is_some()).collect();
            (ended, inbound.iter().any(|link| link.peer().rank == peer.rank))
        };
        // Outside the lock: the end of an in-memory link is felt at once at its other end.
        drop(ended);
        let member = self
            .members
            .get()
            .and_then(|members| members.by_rank.get(peer.rank as usize));
        let outbound = member.and_then(|member| member.outbound());
        let is_called = outbound.is_some_and(|outbound| outbound.link.closed().is_none());
        if !closed.graceful && !self.is_closed() {
            tracing::warn!(worker = self.name(), peer = %peer, why = %closed.why, "a connection was lost");
        }
        if !still_calls && !is_called && !self.is_closed() {
            self.gatherings.lost(peer, &closed.why);
        }
        if let Some(member) = member {
            self.references.connection_ended(self, member, number, closed);
        }
        self.activity.changed();
    }

    /// Ends everything at once. The first call does it; the others find it done.
    pub(crate) fn close(&self, why: &str) {
        if self.closed.swap(true, SeqCst) {
            return;
        }
        self.listeners.lock().clear();
        for outbound in self.outbounds() {
            outbound.link.close(why);
        }
        let inbound = std::mem::take(&mut *self.inbound.lock());
        for link in inbound {
            link.close(why);
        }
        self.gatherings.close();
        self.references.close(self.name());
        if let Some(poller) = self.poller.lock().take() {
            poller.close();
        }
        self.executor.close();
        self.met.lock().take();
        self.activity.changed();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Closed already, unless `init` failed half-way.
        self.close("the worker is gone");
    }
}

/// A reference to a value whose making has not been asked for yet. Given up unless it is, also when
/// encoding the arguments panics.
struct Creating<'a>(Option<Arc<Handle>>, &'a Worker);

impl Creating<'_> {
    fn done(mut self) -> Option<Arc<Handle>> {
        self.0.take()
    }
}

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            self.1.references.not_created(handle);
        }
    }
}

/// Why a request was not sent.
enum NotSent {
    Closed(Closed),
    Late,
    Full,
    Invalid(WireError),
    Inline,
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

impl Host for Worker {
    fn admit(&self, hello: &Hello) -> Result<Welcome, String> {
        // Whoever dials has met everybody; this worker is about to.
        self.activity
            .wait_until(Instant::now() + MEETING_LIMIT, || self.members.get().is_some());
        let Some(members) = self.members.get() else {
            return Err("this worker has not met the others yet".into());
        };
        let me = &self.identity;
        if hello.world != members.world {
            return Err(format!("worker `{}` belongs to another world", me.name));
        }
        if hello.to != *me {
            return Err(format!(
                "here is worker `{}` (rank {}), not `{}`",
                me.name, me.rank, hello.to.name
            ));
        }
        let known = members.by_rank.get(hello.from.rank as usize);
        if known.is_none_or(|member| *member.identity() != hello.from) {
            return Err(format!(
                "`{}` (rank {}) is not a member of this world",
                hello.from.name, hello.from.rank
            ));
        }
        if self.is_closed() {
            return Err(format!("worker `{}` has shut down", me.name));
        }
        if self.references.is_dead(hello.from.incarnation) {
            return Err(format!(
                "worker `{}` counts `{}` as gone and has given up what it held",
                me.name, hello.from.name
            ));
        }
        Ok(Welcome {
            digest: Registry::get().digest(),
            functions: functions_if_not(hello.digest),
        })
    }

    fn sink(&self, hello: &Hello) -> Arc<dyn Sink> {
        let caller = WorkerInfo {
            name: hello.from.name.clone(),
            rank: hello.from.rank,
        };
        let life = hello.from.incarnation;
        Arc::new(Inbound::new(self.weak.clone(), caller, life, self.link_number()))
    }

    fn options(&self) -> LinkOptions {
        self.link_options()
    }

    fn accepted(&self, link: Arc<dyn Link>) {
        self.gatherings.found(link.peer().rank);
        // It may have ended before it got here.
        if link.closed().is_none() {
            self.inbound.lock().push(link.clone());
        }
        if self.is_closed() {
            link.close("the worker has shut down");
        }
    }
}
