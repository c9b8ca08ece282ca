//! Links between two Telegrad workers.
//!
//! This is a crate of its own so that everything about sockets, lanes and back-pressure can be
//! read and tested without knowing what a call is. It depends on `telegrad-wire` alone.
//!
//! A [`Link`] carries whole messages both ways between two workers; what arrives goes to a
//! [`Sink`]. There are three: in memory ([`Address::Mem`]), Unix sockets and TCP, and one
//! conformance suite that all of them pass. A link over sockets has lanes, each a connection of its
//! own: small frames never queue behind the bytes of a large tensor, which may come over several.
//!
//! The link owns no threads. What must always have a thread is a [`Role`]: watching the sockets
//! ([`Poller`]), or reading or writing one bulk lane. The layer above runs roles on its pool ([`Roles`]), so
//! that a thread that has read a request can run it on the spot and pass the role on.

mod sync;
mod message;
mod link;
mod credit;
mod traffic;
mod mem;
mod spin;
mod affinity;
mod poller;
mod descriptors;
mod stream;
mod socket;
mod address;
mod handshake;
mod dial;
mod pending;
mod listen;
mod classes;
mod alloc;
mod shm;

pub use address::{Address, host_id};
pub use alloc::TensorAlloc;
pub use credit::{Credit, UNIT as CREDIT_UNIT};
pub use dial::{DialError, Dialer, dial};
pub use handshake::{Hello, Identity, Lane, PREFACE, PROTOCOL_VERSION, Welcome, preface};
pub use link::{Closed, Flush, Link, LinkOptions, Role, Roles, SendError, Sink, Turn, Waiting};
pub use listen::{Host, Listener, listen};
pub use message::{INLINE_LIMIT, Incoming, Outgoing};
pub use poller::Poller;
pub use shm::shared_tensor;
pub use socket::bulk::{MAX_LANES, MIN_CHUNK};
pub use spin::Spin;
pub use traffic::Traffic;
