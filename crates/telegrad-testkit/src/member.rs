//! One worker's part in a cluster.

use std::path::PathBuf;
use std::sync::Arc;

use telegrad_rpc::{Options, Result, StoreServer, World, init_with};

use crate::board::Board;
use crate::cluster::{Cluster, Meeting};

/// The signal that a member's body has ended.
pub(crate) const DONE: &str = "testkit: done";

/// A member of a cluster, before it has joined its world.
pub struct Member {
    rank: u32,
    cluster: Arc<Cluster>,
    place: Place,
    /// Told of the world when there is one, to end it from outside.
    joined: Box<dyn Fn(&World) + Send>,
}

/// What tells one cluster's meeting place from another's.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Mem(String),
    Dir(PathBuf),
}

impl Member {
    pub(crate) fn new(
        rank: u32,
        cluster: Arc<Cluster>,
        place: Place,
        joined: impl Fn(&World) + Send + 'static,
    ) -> Self {
        Self {
            rank,
            cluster,
            place,
            joined: Box::new(joined),
        }
    }

    /// Its number.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.cluster.names[self.rank as usize]
    }

    /// How many members there are.
    pub fn size(&self) -> u32 {
        self.cluster.names.len() as u32
    }

    /// Where the members signal to each other.
    pub fn board(&self) -> Board {
        self.cluster.board.clone()
    }

    /// What this member joins its world with. With a meeting over TCP this waits for rank 0 to have
    /// asked for its own.
    pub fn options(&self) -> Options {
        // Sooner than the cluster's own limit, because these errors say more.
        let patience = self.cluster.time_limit / 2;
        let mut options = Options::default()
            .rank(self.rank)
            .world_size(self.size())
            .transport(self.cluster.transport)
            .rendezvous_timeout(patience)
            .shutdown_timeout(patience)
            .rpc_timeout(patience);
        options.init_method = match (self.cluster.meeting, &self.place) {
            (Meeting::Tcp, _) => self.meet_over_tcp(&mut options),
            (_, Place::Mem(name)) => format!("mem://{name}"),
            (_, Place::Dir(dir)) => format!("file://{}", dir.join("store").display()),
        };
        for change in &self.cluster.change {
            change(&mut options);
        }
        options
    }

    fn meet_over_tcp(&self, options: &mut Options) -> String {
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
        (self.joined)(&world);
        body(world.clone());
        if self.cluster.graceful {
            let left = world.shutdown();
            left.unwrap_or_else(|error| panic!("`{}` cannot shut down: {error}", self.name()));
        } else {
            self.wait_for_all();
            world.shutdown_now();
        }
    }

    /// Waits until every member has come here, or has ended otherwise.
    pub fn wait_for_all(&self) {
        let board = &self.cluster.board;
        board.post(DONE, &self.rank.to_string());
        let all = |ranks: &[String]| (0..self.size()).all(|rank| ranks.contains(&rank.to_string()));
        // The cluster's own limit comes first, and says who has not ended.
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
