//! The contract of a link.

use std::sync::Arc;
use std::time::{Duration, Instant};

use telegrad_wire::WireError;
use thiserror::Error;

use crate::{Identity, Incoming, Outgoing, Traffic};

/// One end of a connection between two workers. Messages that fit the control lane arrive in the
/// order in which they were sent. Large ones may overtake each other: they share the bulk lanes.
pub trait Link: Send + Sync {
    /// The worker at the other end.
    fn peer(&self) -> &Identity;

    /// Sends a message. A request without credit comes back as [`SendError::Full`]. The calling thread writes a
    /// large message until `deadline` at most; the rest is written in the background.
    fn send(&self, message: Outgoing, flush: Flush, deadline: Option<Instant>) -> Result<(), SendError>;

    /// Writes messages sent with [`Flush::Later`].
    fn flush(&self);

    /// Waits until there is credit for a request. False when `deadline` came first.
    fn wait_for_credit(&self, deadline: Option<Instant>) -> Result<bool, Closed>;

    /// Waits until `waiting` is done or `deadline` has come. The thread receives messages meanwhile where that
    /// helps: a lone caller reads its own reply.
    fn wait(&self, waiting: &dyn Waiting, deadline: Option<Instant>);

    /// Receives available messages, without waiting.
    fn poll(&self);

    /// Makes the reading thread check `Waiting::done` again, after a change by other means than this link.
    fn interrupt(&self);

    /// While watched (calls nest), messages are received in the background, without a waiting thread.
    fn watch(&self, on: bool);

    /// Closes the link, and sends the peer the reason if it still reads.
    fn close(&self, why: &str);

    /// Why the link closed, if it has.
    fn closed(&self) -> Option<Closed>;
}

/// Takes messages that arrive on a link.
pub trait Sink: Send + Sync {
    /// Takes one message. Runs on the thread that read it, and must not wait.
    fn receive(&self, link: &Arc<dyn Link>, message: Incoming<'_>);

    /// Called once, when the link has closed; nothing arrives after it.
    fn closed(&self, closed: &Closed);
}

/// A condition that a thread waits for.
pub trait Waiting {
    /// Whether the wait is over.
    fn done(&self) -> bool;

    /// Sleeps until done or `deadline`, without receiving.
    fn park(&self, deadline: Option<Instant>);
}

/// When a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// At once, with all that is queued.
    Now,
    /// With the next [`Link::flush`], so that many small messages share one system call.
    Later,
}

/// Why a message was not sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no credit for the request, which comes back.
    #[error("there is no credit for another request")]
    Full(Box<Outgoing>),
    /// The link has ended.
    #[error("{0}")]
    Closed(Closed),
    /// The message cannot be sent over any link.
    #[error(transparent)]
    Invalid(#[from] WireError),
    /// Other messages occupied the bulk lanes until the deadline.
    #[error("the bulk lanes were busy until the deadline")]
    Deadline,
}

/// Why a link closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{why}")]
pub struct Closed {
    /// The peer sent a goodbye, or this side closed on purpose.
    pub graceful: bool,
    /// The reason, for people.
    pub why: Arc<str>,
}

/// Options of a link.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// Longest message, in bytes. Checked before anything is allocated for it.
    pub max_message: u64,
    /// Bytes of requests that may be on their way to one peer, or queued there.
    pub window: u64,
    /// How long a waiting thread polls before it sleeps; see [`Spin`](crate::Spin).
    pub spin: Duration,
    /// Whether to share memory with workers on the same host.
    pub share_memory: bool,
    /// When an unreachable TCP peer counts as lost.
    pub peer_timeout: Duration,
    /// Most connections for large messages, 1 to [`MAX_LANES`](crate::MAX_LANES). The dialling side decides for both.
    /// Further ones are opened once a message is large enough to gain from them. TCP only: within a host one
    /// connection is as fast.
    pub lanes: usize,
    /// Size of the chunks into which large messages are cut to share the lanes, in bytes, at least
    /// [`MIN_CHUNK`](crate::MIN_CHUNK).
    pub chunk: u64,
    /// Most bytes of a message that are copied into shared memory, which the receiver keeps. The tensors of a longer
    /// message are copied through shared memory, chunk by chunk, into the receiver's own memory.
    pub lend_up_to: u64,
    /// Counts bytes and frames.
    pub traffic: Arc<Traffic>,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            // A 4 GB tensor is beyond what fits in a worker's memory twice on most machines: the limit
            // refuses invalid lengths, it does not ration.
            max_message: 16 << 30,
            window: 256 << 20,
            // A sleep and a wake-up cost up to 100 µs where cores halt, and a caller that waits for a small step of a
            // model waits about twice that. Polling threads yield to others.
            spin: Duration::from_micros(200),
            share_memory: true,
            peer_timeout: Duration::from_secs(10),
            lanes: default_lanes(),
            // Half a millisecond of a fast network. Its header and its turn cost nothing beside that, and a message of
            // a few chunks does not wait long behind another.
            chunk: 1 << 20,
            // As much as is kept for the next message. Beyond it, every message would take fresh shared memory, whose
            // pages cost several times as much as those of the heap.
            lend_up_to: crate::shm::KEEP as u64,
            traffic: Arc::default(),
        }
    }
}

/// One or two: a connection occupies about one core at each end, and with two cores the program needs them.
fn default_lanes() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores > 2 { 2 } else { 1 }
}

/// Work that always needs a thread.
pub trait Role: Send {
    /// Does a part of the work. It may queue tasks for this thread, so run them after every turn.
    fn turn(&mut self) -> Turn;
}

/// Whether a role continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Call `turn` again, on this thread or another.
    Again,
    /// The role has ended.
    Done,
}

/// Runs roles on threads.
pub trait Roles: Send + Sync {
    /// Starts a role. Never waits.
    fn start(&self, role: Box<dyn Role>);

    /// Runs `wait`, which may take long. A thread that occupies a place of a pool may release it meanwhile.
    fn give_way(&self, wait: &mut dyn FnMut()) {
        wait();
    }
}
