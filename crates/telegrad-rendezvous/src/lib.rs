//! How the workers of a world find each other.
//!
//! A worker starts with three facts: its rank, the size of the world, and a [`MeetingPoint`] that every member
//! knows. At the meeting point is a [`Store`]: a small table whose keys are set once. Each member puts its card
//! there and waits for the cards of all others. No call goes through the store.
//!
//! This is a crate of its own because it needs nothing of calls and links: it can be read and tested without
//! them, and only the start of a world uses it. It may depend on `telegrad-wire` and on no other crate of the
//! workspace.
//!
//! Read it in this order. [`resolve`] turns an init method (`env://`, `tcp://host:port`, `file:///path`,
//! `mem://name`) into a [`Membership`]; [`open`] turns that into a store. [`Store`] is the contract, `table` the
//! state behind every implementation:
//!
//! - `mem_store` serves one process.
//! - `file_store` serves one file system. Its `file_log` holds the entries; locks on files of their own show which
//!   members live (`file_member_lock`) and which claims are valid (`file_holder_lock`).
//! - `tcp_store` serves several hosts. Every rank has this client, which finds the server with `tcp_dial`; rank 0
//!   hosts the `tcp_server`, with one `tcp_connection` per client. Both sides speak `protocol`.
//!
//! A store exists while at least one member holds it, and starts empty. A crashed world therefore leaves nothing
//! that the next world at the same meeting point could mistake for its own.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use telegrad_rendezvous::{Store, open, resolve};
//!
//! let alone = resolve("mem://docs", Some(0), Some(1), &|_| None)?;
//! let deadline = Instant::now() + Duration::from_secs(1);
//! let store = open(&alone, None, deadline)?.store;
//! store.claim("card/0", b"my address")?;
//! assert_eq!(store.get_all(&["card/0".into()], deadline)?, [b"my address"]);
//! # Ok::<(), telegrad_rendezvous::RendezvousError>(())
//! ```

mod error;
mod init_method;
mod meeting_point;
mod membership;
mod opened_store;
mod store;
mod table;
mod mem_store;
mod file_store;
mod file_log;
mod file_member_lock;
mod file_holder_lock;
mod file_lock;
mod tcp_store;
mod tcp_dial;
mod tcp_server;
mod tcp_connection;
mod protocol;
mod backoff;
#[cfg(test)]
mod test_log;

pub use error::RendezvousError;
pub use init_method::UrlError;
pub use meeting_point::MeetingPoint;
pub use membership::{Membership, resolve};
pub use opened_store::{OpenedStore, open};
pub use store::Store;
pub use tcp_server::StoreServer;
