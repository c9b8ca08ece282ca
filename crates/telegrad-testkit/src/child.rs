//! A process of a cluster: this test binary, started again as one member.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};

use crate::board::Board;
use crate::cluster::{Cluster, Kind};
use crate::member::{Member, Place};

/// The signal that a process has found the place in the test where it belongs.
pub(crate) const HERE: &str = "testkit: here";

/// One variable each, because that is how one finds out about a process from outside.
const RANK: &str = "TELEGRAD_TESTKIT_RANK";
const CLUSTER: &str = "TELEGRAD_TESTKIT_CLUSTER";
const BOARD: &str = "TELEGRAD_TESTKIT_BOARD";
const DIRECTORY: &str = "TELEGRAD_TESTKIT_DIRECTORY";

/// What a process is told when it is started.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) rank: u32,
    /// Which of the test's clusters of processes it belongs to.
    pub(crate) cluster: u64,
    pub(crate) board: String,
    pub(crate) directory: PathBuf,
}

impl Start {
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

/// This process, when it was started as a member.
pub(crate) struct Child {
    start: Start,
    pub(crate) board: Board,
    /// Clusters of processes that the test has reached.
    reached: AtomicU64,
}

impl Child {
    pub(crate) fn get() -> Option<&'static Self> {
        static CHILD: LazyLock<Option<Child>> = LazyLock::new(|| {
            let start = Start::from_env()?;
            // Nobody would end this process were its parent killed. Cannot fail for this signal.
            let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
            let board = Board::at(&start.board);
            Some(Child {
                start,
                board,
                reached: AtomicU64::new(0),
            })
        });
        CHILD.as_ref()
    }

    /// Runs the body as this process's member and exits, unless it belongs to another cluster.
    pub(crate) fn run(&self, cluster: Cluster, body: &dyn Fn(Member)) {
        if cluster.kind == Kind::Threads || self.reached.fetch_add(1, SeqCst) != self.start.cluster {
            return;
        }
        let rank = self.start.rank;
        self.board.post(HERE, &rank.to_string());
        let place = Place::Dir(self.start.directory.clone());
        let member = Member::new(rank, Arc::new(cluster), place, |_| ());
        // The panic's own text has been printed by the time it is caught.
        let ended = catch_unwind(AssertUnwindSafe(|| body(member)));
        std::process::exit(if ended.is_ok() { 0 } else { 101 });
    }
}
