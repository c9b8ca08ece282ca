//! One worker of a cluster.

use std::path::PathBuf;
use std::sync::Arc;

use telegrad_rpc::{Options, Result, StoreServer, World, init_with};

use crate::board::Board;
use crate::cluster::{Cluster, Rendezvous};

/// The signal that a member's body has ended.
pub(crate) const DONE: &str = "testkit: done";

/// A member of a cluster that has not joined its world yet.
pub struct Member {
    rank: u32,
    cluster: Arc<Cluster>,
    store: StoreLocation,
    /// Called with the world once it exists, so that it can be ended from outside.
    on_join: Box<dyn Fn(&World) + Send>,
}

/// Location of a cluster's store, different for each cluster.
#[derive(Clone, Debug)]
pub(crate) enum StoreLocation {
    Mem(String),
    Dir(PathBuf),
}

impl Member {
    pub(crate) fn new(
        rank: u32,
        cluster: Arc<Cluster>,
        store: StoreLocation,
        on_join: impl Fn(&World) + Send + 'static,
    ) -> Self {
        Self {
            rank,
            cluster,
            store,
            on_join: Box::new(on_join),
        }
    }

    /// Its rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.cluster.names[self.rank as usize]
    }

    /// Number of members.
    pub fn size(&self) -> u32 {
        self.cluster.names.len() as u32
    }

    /// The board of the cluster.
    pub fn board(&self) -> Board {
        self.cluster.board.clone()
    }

    /// The options that this member joins with.
    ///
    /// With a store over TCP, this waits until rank 0 has requested its own options.
    pub fn options(&self) -> Options {
        // Shorter than the cluster's own limit, because these errors have more detail.
        let limit = self.cluster.time_limit / 2;
        let mut options = Options::default()
            .rank(self.rank)
            .world_size(self.size())
            .transport(self.cluster.transport)
            .rendezvous_timeout(limit)
            .shutdown_timeout(limit)
            .rpc_timeout(limit);
        options.init_method = match (self.cluster.rendezvous, &self.store) {
            (Rendezvous::Tcp, _) => self.tcp_store(&mut options),
            (_, StoreLocation::Mem(name)) => format!("mem://{name}"),
            (_, StoreLocation::Dir(dir)) => format!("file://{}", dir.join("store").display()),
        };
        for change in &self.cluster.change {
            change(&mut options);
        }
        options
    }

    fn tcp_store(&self, options: &mut Options) -> String {
        const ADDRESS: &str = "testkit: store";
        let board = &self.cluster.board;
        if self.rank == 0 {
            let server = StoreServer::bind("127.0.0.1:0").expect("a port of the system's choice");
            board.post(ADDRESS, &server.address().to_string());
            let method = format!("tcp://{}", server.address());
            options.store = Some(server);
            return method;
        }
        format!("tcp://{}", board.read(ADDRESS))
    }

    /// Joins the world.
    ///
    /// # Errors
    /// As [`init_with`].
    pub fn init(&self) -> Result<World> {
        init_with(self.name(), self.options())
    }

    /// Joins, runs the body and leaves.
    pub(crate) fn take_part(&self, body: &dyn Fn(World)) {
        let world = self
            .init()
            .unwrap_or_else(|error| panic!("`{}` cannot join: {error}", self.name()));
        (self.on_join)(&world);
        body(world.clone());
        if self.cluster.graceful {
            let left = world.shutdown();
            left.unwrap_or_else(|error| panic!("`{}` cannot shut down: {error}", self.name()));
        } else {
            self.wait_for_all();
            world.shutdown_now();
        }
    }

    /// Waits until every member has called this method or has ended.
    pub fn wait_for_all(&self) {
        let board = &self.cluster.board;
        board.post(DONE, &self.rank.to_string());
        let all = |ranks: &[String]| (0..self.size()).all(|rank| ranks.contains(&rank.to_string()));
        // The cluster's own limit expires first and names the unfinished members.
        board.wait_until(DONE, 2 * self.cluster.time_limit, all);
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member")
            .field("rank", &self.rank)
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
