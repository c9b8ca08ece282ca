//! Links between two Telegrad workers.
//!
//! A crate of its own, so that sockets, lanes and back-pressure can be read and tested without calls. It
//! depends on `telegrad-wire` alone.
//!
//! A [`Link`] carries whole messages both ways between two workers and delivers them to a [`Sink`]. There are
//! three kinds: in memory ([`Address::Mem`]), Unix sockets and TCP. One conformance suite tests all three. A
//! link over sockets has several lanes, each a connection of its own. Small frames never queue behind the bytes
//! of a large tensor, which may use several lanes.
//!
//! A link owns no threads. Work that always needs a thread is a [`Role`]: watching the sockets ([`Poller`]),
//! or reading or writing one bulk lane. The layer above runs roles on its pool ([`Roles`]). A thread that has
//! read a request can therefore run it at once and pass the role on.

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
mod pending_links;
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
