//! A process of a cluster: the test binary, started again as one member.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};

use crate::board::Board;
use crate::cluster::{Cluster, ClusterKind};
use crate::member::{Member, StoreLocation};

/// The note of a process that has reached its cluster in the test.
pub(crate) const REACHED: &str = "testkit: reached";

// One variable for each value, for inspection from outside.
const RANK: &str = "TELEGRAD_TESTKIT_RANK";
const CLUSTER: &str = "TELEGRAD_TESTKIT_CLUSTER";
const BOARD: &str = "TELEGRAD_TESTKIT_BOARD";
const DIRECTORY: &str = "TELEGRAD_TESTKIT_DIRECTORY";

/// Parameters of a started process, passed in its environment.
#[derive(Clone, Debug)]
pub(crate) struct ChildEnv {
    pub(crate) rank: u32,
    /// Index of its cluster among the test's clusters of processes.
    pub(crate) cluster: u64,
    pub(crate) board: String,
    pub(crate) directory: PathBuf,
}

impl ChildEnv {
    pub(crate) fn put_into(&self, command: &mut Command) {
        command
            .env(RANK, self.rank.to_string())
            .env(CLUSTER, self.cluster.to_string());
        command.env(BOARD, &self.board).env(DIRECTORY, &self.directory);
    }

    fn from_env() -> Option<Self> {
        let text = |variable| std::env::var(variable).ok();
        Some(Self {
            rank: text(RANK)?.parse().ok()?,
            cluster: text(CLUSTER)?.parse().ok()?,
            board: text(BOARD)?,
            directory: text(DIRECTORY)?.into(),
        })
    }
}

/// This process, if it was started as a member.
pub(crate) struct Child {
    env: ChildEnv,
    pub(crate) board: Board,
    /// Number of clusters of processes that the test has reached.
    reached: AtomicU64,
}

impl Child {
    pub(crate) fn get() -> Option<&'static Self> {
        static CHILD: LazyLock<Option<Child>> = LazyLock::new(|| {
            let env = ChildEnv::from_env()?;
            // Ends this process when its parent is killed. Cannot fail for this signal.
            let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
            let board = Board::at(&env.board);
            Some(Child {
                env,
                board,
                reached: AtomicU64::new(0),
            })
        });
        CHILD.as_ref()
    }

    /// Runs the body as this process's member and exits, unless it belongs to another cluster.
    pub(crate) fn run(&self, cluster: Cluster, body: &dyn Fn(Member)) {
        if cluster.kind == ClusterKind::Threads || self.reached.fetch_add(1, SeqCst) != self.env.cluster {
            return;
        }
        let rank = self.env.rank;
        self.board.post(REACHED, &rank.to_string());
        let store = StoreLocation::Dir(self.env.directory.clone());
        let member = Member::new(rank, Arc::new(cluster), store, |_| ());
        // The panic hook has printed the panic's text.
        let ended = catch_unwind(AssertUnwindSafe(|| body(member)));
        std::process::exit(if ended.is_ok() { 0 } else { 101 });
    }
}
