//! Making a call, step by step.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use telegrad_net::{Closed, Flush, Outgoing, SendError};
use telegrad_trace::{Scope, Span};
use telegrad_wire::{CallId, Encoder, FrameKind, Payload, Wire, WireError};

use super::Request;
use crate::context::{Inherited, inherited};
use crate::error::{Error, Result};
use crate::exec::Executor;
use crate::link::{Call, ConnectError, Member, NewCall, Outbound, Purpose, next_poll};
use crate::message::{Crossing, Riders, Route, Section};
use crate::observe::recording;
use crate::worker::Worker;

/// Time to connect for a call that has no limit of its own.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// The attempts to make a call. A second one follows if the link closed before the request was sent.
pub(super) struct Attempts<'a> {
    worker: &'a Arc<Worker>,
    request: &'a Request<'a>,
    purpose: &'a Purpose,
    encode: &'a dyn Fn(&mut Encoder),
    span: Option<&'a Arc<Span>>,
    callee: &'a Arc<Member>,
    inherited: Inherited,
    /// Set when the clock is first read.
    times: Option<Times>,
}

/// The outcome of an attempt that did not fail.
enum Attempt {
    Made(Arc<Outbound>, Arc<Call>),
    /// The link was closed; nothing was sent.
    Closed(Closed),
}

/// The start, limit and deadline of a call.
#[derive(Clone, Copy)]
struct Times {
    started: Instant,
    limit: Option<Duration>,
    deadline: Option<Instant>,
}

impl Times {
    /// Whether the deadline had passed at the start.
    fn are_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= self.started)
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

impl<'a> Attempts<'a> {
    #[inline]
    pub(super) fn new(
        worker: &'a Arc<Worker>,
        request: &'a Request<'a>,
        purpose: &'a Purpose,
        encode: &'a dyn Fn(&mut Encoder),
        span: Option<&'a Arc<Span>>,
    ) -> Result<Self> {
        let members = worker.members()?;
        let callee = members.find(request.to)?;
        if worker.is_closed() {
            return Err(Error::ShutDown);
        }
        Ok(Self {
            worker,
            request,
            purpose,
            encode,
            span,
            callee,
            inherited: inherited(worker.identity.incarnation, members.world()),
            times: None,
        })
    }

    #[inline]
    pub(super) fn make(&mut self) -> Result<(Arc<Outbound>, Arc<Call>)> {
        let first = self.attempt()?;
        let last = match first {
            Attempt::Made(..) => first,
            Attempt::Closed(_) => self.attempt()?,
        };
        match last {
            Attempt::Made(outbound, call) => Ok((outbound, call)),
            Attempt::Closed(closed) => Err(Error::WorkerLost {
                worker: self.callee.info.name.clone(),
                function: self.request.function.name.into(),
                why: closed.why.to_string(),
            }),
        }
    }

    fn attempt(&mut self) -> Result<Attempt> {
        let mut payload = self.encode()?;
        let outbound = self.link()?;
        self.adapt_to_program(&outbound, &mut payload)?;
        let id = CallId(self.worker.next_call_number());
        let mut message = Outgoing::new(FrameKind::Request, id, payload);
        let riders = self.board(&outbound, &mut message)?;
        let Some((times, left)) = self.start_clock() else {
            self.return_riders(&riders);
            return Err(self.timeout());
        };
        let call = self.register(&outbound, id, times, &riders, &mut message);
        match self.send(&outbound, &call, message, left) {
            Ok(()) => Ok(self.sent(outbound, call)),
            Err(why) => self.not_sent(outbound, call, &riders, why),
        }
    }

    /// Encodes the arguments.
    fn encode(&self) -> Result<Payload> {
        self.request
            .payload(self.encode)
            .map_err(|error| self.cannot_send(error))
    }

    /// Returns the link to the callee; connects if there is none.
    fn link(&mut self) -> Result<Arc<Outbound>> {
        if let Some(open) = self.callee.open() {
            return Ok(open);
        }
        // Connecting counts towards the limit of the call.
        let times = match self.times {
            Some(times) => times,
            None => self.read_clock(),
        };
        if times.are_over() {
            return Err(self.timeout());
        }
        let _waits = match self.request.function.class.is_recorded() {
            true => recording::wait_scope(&self.worker.recorder, 0, || {
                format!("wait for a link to {}", self.callee.info.name).into()
            }),
            false => Scope::none(),
        };
        let until = times.deadline.unwrap_or(times.started + CONNECT_LIMIT);
        let made = self.callee.connect(self.worker, until);
        made.map_err(|absent| self.unreachable(absent))
    }

    /// Checks the function against a callee that runs another program, and appends the layout that a fetch expects.
    fn adapt_to_program(&self, outbound: &Outbound, payload: &mut Payload) -> Result<()> {
        let Some(other) = &outbound.other_program else {
            return Ok(());
        };
        other.check(self.request.function, &self.callee.info.name)?;
        let Some(layout) = self.request.expects.filter(|_| other.compares_fetched) else {
            return Ok(());
        };
        let expecting = self.request.payload(&|encoder| layout().encode(encoder));
        *payload = expecting.map_err(|error| self.cannot_send(error))?;
        Ok(())
    }

    /// Puts the riders on the message.
    fn board(&self, outbound: &Outbound, message: &mut Outgoing) -> Result<Riders> {
        let function = self.request.function;
        let route = Route {
            references: &self.worker.references,
            hook: self.worker.hook(),
            to: self.callee.identity().incarnation,
            connection: outbound.calls.number,
            crossing: self.inherited.context.map(|context| Crossing {
                context,
                peer: self.callee.info.rank,
                function: function.name,
                is_reply: false,
                is_known: true,
            }),
        };
        let section = Section {
            object: self.request.object.map(|handle| handle.reference),
            creates: self.purpose.creates(),
            origin: self.span.and_then(|span| span.origin()),
            ..Section::default()
        };
        message.header.flags |= function.class.frame_flags();
        Riders::leaving(&route, section, message, |error| self.cannot_send(error))
    }

    /// Starts the clock of the call, or reads the time left; `None` after the deadline.
    ///
    /// The clock starts when the request is ready to send, or before connecting. It is read once, so both sides agree on
    /// the deadline however long encoding took.
    fn start_clock(&mut self) -> Option<(Times, Option<Duration>)> {
        let (times, left) = match self.times {
            None => {
                let times = self.read_clock();
                (times, times.deadline.and(times.limit))
            }
            Some(times) => (times, left(times.deadline)),
        };
        (!left.is_some_and(|left| left.is_zero())).then_some((times, left))
    }

    fn read_clock(&mut self) -> Times {
        let started = Instant::now();
        let (limit, deadline) =
            self.worker
                .limit_until(self.request.options, started, self.inherited.deadline);
        let times = Times {
            started,
            limit,
            deadline,
        };
        *self.times.insert(times)
    }

    /// Enters the call in the table of its link, and schedules its deadline.
    fn register(
        &self,
        outbound: &Outbound,
        id: CallId,
        times: Times,
        riders: &Riders,
        message: &mut Outgoing,
    ) -> Arc<Call> {
        let call = Arc::new(Call::new(NewCall {
            id,
            function: self.request.function.name,
            class: self.request.function.class,
            started: times.started,
            limit: times.limit,
            deadline: times.deadline,
            purpose: self.purpose,
            context: self.inherited.context,
            tracked: riders.tracked(),
            span: self.span,
            within: self.inherited.within,
        }));
        if let Some(span) = self.span {
            recording::request_sent(span, message);
        }
        outbound.calls.insert(call.clone());
        if !self.purpose.is_for_result() {
            // No thread waits for the reply, so the poller receives it.
            outbound.link.watch(true);
        }
        // After the call is in the table, so that the timer finds it.
        self.worker.sweep_at(next_poll(times.deadline, times.started));
        call
    }

    /// Sends the request; waits for credit if the options allow it.
    fn send(
        &self,
        outbound: &Outbound,
        call: &Call,
        mut message: Outgoing,
        mut until_then: Option<Duration>,
    ) -> Result<(), NotSent> {
        let deadline = self.times.and_then(|times| times.deadline);
        loop {
            if let Some(left) = until_then {
                message.header.time_left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX).max(1);
            }
            match outbound.link.send(message, Flush::Now, deadline) {
                Ok(()) => return Ok(()),
                Err(SendError::Full(_)) if self.request.options.no_wait => return Err(NotSent::Full),
                Err(SendError::Full(back)) => {
                    self.wait_for_credit(outbound, call, back.header.span, deadline)?;
                    (message, until_then) = (*back, left(deadline));
                }
                Err(SendError::Deadline) => return Err(NotSent::Late),
                Err(SendError::Invalid(error)) => return Err(NotSent::Invalid(error)),
                Err(SendError::Closed(closed)) => return Err(NotSent::Closed(closed)),
                Err(_) => return Err(NotSent::Late),
            }
        }
    }

    fn wait_for_credit(
        &self,
        outbound: &Outbound,
        call: &Call,
        span: u64,
        deadline: Option<Instant>,
    ) -> Result<(), NotSent> {
        Executor::may_wait().map_err(|_| NotSent::Inline)?;
        let name = || format!("wait for credit at {}", outbound.calls.peer).into();
        let waits = recording::wait_scope(&self.worker.recorder, span, name);
        let wait = || Executor::blocking(|| outbound.link.wait_for_credit(deadline));
        let has_credit = call.waiting_for_credit(wait);
        drop(waits);
        if let Some(span) = &call.span {
            recording::request_sent_after_wait(span);
        }
        match has_credit {
            Ok(true) => Ok(()),
            Ok(false) => Err(NotSent::Late),
            Err(closed) => Err(NotSent::Closed(closed)),
        }
    }

    fn sent(&self, outbound: Arc<Outbound>, call: Arc<Call>) -> Attempt {
        if call.class.is_counted() {
            self.worker.activity.made.fetch_add(1, SeqCst);
        }
        Attempt::Made(outbound, call)
    }

    /// Withdraws a call that was not sent.
    fn not_sent(
        &self,
        outbound: Arc<Outbound>,
        call: Arc<Call>,
        riders: &Riders,
        why: NotSent,
    ) -> Result<Attempt> {
        let still_there = outbound.withdraw(&call);
        self.return_riders(riders);
        if !self.purpose.is_for_result() && !still_there {
            // The closed link has failed the call already: a value that was to be created holds the error, and reference
            // messages are sent again.
            return Ok(Attempt::Made(outbound, call));
        }
        let function = self.request.function.name;
        let worker = || self.callee.info.name.clone();
        match why {
            // Nothing was sent, so a retry is safe. A call that has left the table has failed already.
            NotSent::Closed(closed) if still_there => Ok(Attempt::Closed(closed)),
            NotSent::Closed(closed) => Err(Error::WorkerLost {
                worker: worker(),
                function: function.into(),
                why: closed.why.to_string(),
            }),
            NotSent::Late => Err(self.timeout()),
            NotSent::Full => Err(Error::Overloaded {
                worker: worker(),
                function: function.into(),
            }),
            NotSent::Invalid(source) => Err(self.cannot_send(source)),
            NotSent::Inline => Err(Error::WaitInInline),
        }
    }

    fn return_riders(&self, riders: &Riders) {
        riders.stayed(&self.worker.references, self.worker.hook());
    }

    fn timeout(&self) -> Error {
        let times = self.times;
        Error::Timeout {
            function: self.request.function.name.into(),
            worker: self.callee.info.name.clone(),
            limit: times.and_then(|times| times.limit).unwrap_or_default(),
            elapsed: times.map_or(Duration::ZERO, |times| times.started.elapsed()),
        }
    }

    fn cannot_send(&self, source: WireError) -> Error {
        Error::Send {
            function: self.request.function.name.into(),
            worker: self.callee.info.name.clone(),
            source: Box::new(source),
        }
    }

    /// Returns the error of a failed connection. For a call on a reference, a lost owner means a lost value.
    fn unreachable(&self, absent: ConnectError) -> Error {
        match (absent, self.request.object) {
            (ConnectError::NotTried(error), _) => error,
            (ConnectError::Unreachable { why, certain: true }, Some(handle)) => handle.owner_lost(why),
            (ConnectError::Unreachable { why, .. }, _) => Error::Unreachable {
                worker: self.callee.info.name.clone(),
                why,
            },
        }
    }
}

/// Returns the time left until the deadline.
fn left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}
