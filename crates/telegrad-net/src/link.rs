//! The contract of a link.

use std::sync::Arc;
use std::time::{Duration, Instant};

use telegrad_wire::WireError;
use thiserror::Error;

use crate::{Identity, Incoming, Outgoing, Traffic};

/// One end of a connection between two workers. Messages that fit the control lane arrive in the
/// order in which they were sent. Large ones may overtake each other: they share the bulk lanes.
pub trait Link: Send + Sync {
    /// Who is at the other end.
    fn peer(&self) -> &Identity;

    /// Hands a message over. Requests need credit: without, the message comes back as
    /// [`SendError::Full`]. A large message is written by the calling thread, until `deadline` at
    /// most; what is left of it then is written in the background.
    fn send(&self, message: Outgoing, flush: Flush, deadline: Option<Instant>) -> Result<(), SendError>;

    /// Writes what was sent with [`Flush::Later`].
    fn flush(&self);

    /// Waits until a request may be sent again. False when `deadline` came first.
    fn wait_for_credit(&self, deadline: Option<Instant>) -> Result<bool, Closed>;

    /// Waits until `waiting` is done or `deadline` has come, lending the thread to receiving
    /// where that helps: a lone caller reads its own reply.
    fn wait(&self, waiting: &dyn Waiting, deadline: Option<Instant>);

    /// Receives what is there already, without waiting.
    fn poll(&self);

    /// Says that somebody's `Waiting::done` may have changed by other means than this link.
    fn interrupt(&self);

    /// While watched (calls nest), messages are received in the background without anyone waiting.
    fn watch(&self, on: bool);

    /// Ends the link. Tells the other side why, if it can still hear.
    fn close(&self, why: &str);

    /// Why the link ended, if it has.
    fn closed(&self) -> Option<Closed>;
}

/// Takes what arrives on a link.
pub trait Sink: Send + Sync {
    /// A message arrived. Runs on the thread that read it: it must not wait for anything.
    fn receive(&self, link: &Arc<dyn Link>, message: Incoming<'_>);

    /// The link has ended; nothing arrives any more. Called once.
    fn closed(&self, closed: &Closed);
}

/// Something a thread waits for.
pub trait Waiting {
    /// Whether the wait is over.
    fn done(&self) -> bool;

    /// Sleeps until done or `deadline`, without receiving.
    fn park(&self, deadline: Option<Instant>);
}

/// When a message is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// At once, together with what waits.
    Now,
    /// With the next [`Link::flush`], so that many small messages share one system call.
    Later,
}

/// Why a message was not sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The receiver has as much as it wants to hold. The message comes back.
    #[error("the receiver has no room for more")]
    Full(Box<Outgoing>),
    /// The link has ended.
    #[error("{0}")]
    Closed(Closed),
    /// The message cannot be sent over any link.
    #[error(transparent)]
    Invalid(#[from] WireError),
    /// Others were still writing large messages when the deadline came.
    #[error("the bulk lanes were busy until the deadline")]
    Deadline,
}

/// How a link ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{why}")]
pub struct Closed {
    /// The other side said goodbye, or this side closed on purpose.
    pub graceful: bool,
    /// The reason, for people.
    pub why: Arc<str>,
}

/// What a link is made with.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// Longest message, in bytes. Checked before anything is allocated for it.
    pub max_message: u64,
    /// Bytes of requests that may be on their way to, or queued at, one peer.
    pub window: u64,
    /// How long a waiting thread polls before it sleeps; see [`Spin`](crate::Spin).
    pub spin: Duration,
    /// Whether to share memory with workers on the same host.
    pub share_memory: bool,
    /// When an unreachable TCP peer counts as lost.
    pub peer_timeout: Duration,
    /// Most connections for large messages, 1 to [`MAX_LANES`](crate::MAX_LANES). The side that dials decides for both;
    /// those beyond the first are opened when a message is large enough to gain from them. TCP only: within a host
    /// one connection does as well.
    pub lanes: usize,
    /// How a large message is cut to share the lanes with others, in bytes, at least [`MIN_CHUNK`](crate::MIN_CHUNK).
    pub chunk: u64,
    /// Most bytes of a message that are copied into shared memory for the receiver to keep. The tensors of a longer
    /// message are copied through shared memory, chunk by chunk, into memory of the receiver's own.
    pub lend_up_to: u64,
    /// Counts bytes and frames.
    pub traffic: Arc<Traffic>,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            // A 4 GB tensor is beyond what fits in a worker's memory twice on most machines; the
            // limit is there to refuse nonsense, not to ration.
            max_message: 16 << 30,
            window: 256 << 20,
            // A sleep and a wake-up cost up to 100 µs where cores halt, and whoever waits for a small step of a model waits
            // about twice that. Threads let others run while they poll.
            spin: Duration::from_micros(200),
            share_memory: true,
            peer_timeout: Duration::from_secs(10),
            lanes: default_lanes(),
            // Half a millisecond of a fast network: next to that its header and its turn cost nothing, and a message
            // of a few chunks does not wait long behind another.
            chunk: 1 << 20,
            // As much as is kept for the next message. Beyond, every message would take fresh shared memory, whose pages
            // cost several times what those of the heap do.
            lend_up_to: crate::shm::KEEP as u64,
            traffic: Arc::default(),
        }
    }
}

/// A connection keeps about one core busy at each end. Where there are no more than two, the program needs them.
fn default_lanes() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores > 2 { 2 } else { 1 }
}

/// Work that must always have a thread.
pub trait Role: Send {
    /// Does some of it. May leave work behind for this thread, so look after every turn.
    fn turn(&mut self) -> Turn;
}

/// Whether a role goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Call `turn` again, on this thread or another.
    Again,
    /// The role has ended.
    Done,
}

/// Gives threads to roles.
pub trait Roles: Send + Sync {
    /// Starts a role. Never waits.
    fn start(&self, role: Box<dyn Role>);

    /// Runs `wait`, which may take long. Where this thread has a place that others could use meanwhile, they
    /// may have it.
    fn give_way(&self, wait: &mut dyn FnMut()) {
        wait();
    }
}
