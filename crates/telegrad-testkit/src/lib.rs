//! Clusters of workers for tests: one test body runs in one process or in many.
//!
//! This is a crate of its own because the tests of every crate from `telegrad-rpc` upwards need it and users do not. It may
//! depend on crates up to `telegrad-rpc`. It is not published.
//!
//! ```
//! use telegrad_rpc::remote;
//! use telegrad_testkit::Cluster;
//!
//! #[remote]
//! fn double(x: i64) -> i64 {
//!     2 * x
//! }
//!
//! Cluster::threads(2).run(|world| {
//!     let other = 1 - world.rank();
//!     assert_eq!(world.rpc_sync(other, double, (21,)).unwrap(), 42);
//! });
//! ```
//!
//! Reading order: [`Cluster`] configures and runs a test body; [`Member`] is one worker of it. `threads` and `processes` start
//! and supervise the members, and `child` is the entry of a started process. Members signal to each other on a [`Board`],
//! independently of the tested code. [`Faults`] simulate an unreliable network by a [`LayeredLink`]; [`break_connections`]
//! cuts all connections. [`wait_until`] polls for conditions without a signal, [`ReferenceCounts`] for counts of references, [`Log`] for
//! log lines; [`within`] limits the time of any action.
//!
//! No test sleeps to wait for an event, and every wait is bounded: a failing member ends the others, and the time limit ends
//! all members and names the unfinished ones.

mod cluster;
mod member;
mod threads;
mod processes;
mod child;
mod output;
mod report;
mod test_name;
mod board;
mod raise_on_drop;
mod layered_link;
mod faults;
mod wait_until;
mod block_on;
mod tensor;
mod reference_counts;
mod log;
mod break_connections;
mod stop_process;
mod within;

pub use block_on::block_on;
pub use board::Board;
pub use break_connections::break_connections;
pub use cluster::{Cluster, Rendezvous};
pub use faults::{FaultInjector, Faults};
pub use layered_link::{LayeredLink, dropping_requests_of};
pub use log::Log;
pub use member::Member;
pub use raise_on_drop::RaiseOnDrop;
pub use reference_counts::ReferenceCounts;
pub use stop_process::{StoppedProcess, stop_process};
pub use tensor::{byte_tensor, float_tensor};
pub use wait_until::wait_until;
pub use within::within;

/// Runs each test on two-worker clusters of every kind: threads on in-memory, Unix and TCP links,
/// processes on Unix and TCP links.
///
/// A test is a function of this name that takes the [`Cluster`], may configure it further, and runs a body on it.
///
/// ```
/// # use telegrad_testkit::Cluster;
/// telegrad_testkit::on_every_cluster! { 2 => all_members_join }
///
/// fn all_members_join(cluster: Cluster) {
///     cluster.run(|world| assert_eq!(world.size(), 2));
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! on_every_cluster {
    ($size:expr => $($test:ident)*) => {
        $crate::on_cluster! { threads_mem: $crate::Cluster::threads($size) => $($test)* }
        $crate::on_cluster! { threads_unix: $crate::Cluster::threads($size).unix() => $($test)* }
        $crate::on_cluster! { threads_tcp: $crate::Cluster::threads($size).tcp() => $($test)* }
        $crate::on_cluster! { processes_unix: $crate::Cluster::processes($size) => $($test)* }
        $crate::on_cluster! { processes_tcp: $crate::Cluster::processes($size).tcp() => $($test)* }
    };
}

/// Runs each test on two kinds of cluster: threads on in-memory links, processes on Unix links.
///
/// For behaviour that does not depend on the link. See [`on_every_cluster!`].
#[macro_export]
macro_rules! on_threads_and_processes {
    ($size:expr => $($test:ident)*) => {
        $crate::on_cluster! { threads: $crate::Cluster::threads($size) => $($test)* }
        $crate::on_cluster! { processes: $crate::Cluster::processes($size) => $($test)* }
    };
}

/// Runs each test on the given kinds of cluster, each in a module of its own. See [`on_every_cluster!`].
///
/// ```
/// # use telegrad_testkit::Cluster;
/// telegrad_testkit::on_cluster! { unix: Cluster::threads(2).unix(), tcp: Cluster::threads(2).tcp() => everybody_is_there }
///
/// fn everybody_is_there(cluster: Cluster) {
///     cluster.run(|world| assert_eq!(world.size(), 2));
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! on_cluster {
    ($module:ident: $cluster:expr, $($modules:ident: $clusters:expr),+ => $($test:ident)*) => {
        $crate::on_cluster! { $module: $cluster => $($test)* }
        $crate::on_cluster! { $($modules: $clusters),+ => $($test)* }
    };
    ($module:ident: $cluster:expr => $($test:ident)*) => {
        mod $module {
            use super::*;

            $(
                #[test]
                fn $test() {
                    let name = concat!(module_path!(), "::", stringify!($test));
                    super::$test($cluster.of_test(name));
                }
            )*
        }
    };
}
