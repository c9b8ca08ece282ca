//! Configuration of a cluster.

use std::sync::Arc;
use std::time::Duration;

use telegrad_rpc::{Options, Transport, World};

use crate::board::Board;
use crate::child::Child;
use crate::faults::Faults;
use crate::member::Member;
use crate::{processes, test_name, threads};

/// Long enough for any test on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Changes the options of every worker.
pub(crate) type Change = Arc<dyn Fn(&mut Options) + Send + Sync>;

/// A world of workers for a test.
///
/// [`threads`](Self::threads) runs every member on a thread of this process, [`processes`](Self::processes) each in a process
/// of its own. Both run the body once per member, with that member's [`World`]. Afterwards the member shuts down gracefully,
/// unless [`may_die`](Self::may_die) or [`no_shutdown`](Self::no_shutdown) was called.
///
/// # Processes
/// A process of a cluster is the test binary itself, started with the name of the running test. It runs the test up to the
/// same [`run`](Self::run), acts as one member there, and exits. The code before that runs in every process; other clusters
/// of the test are skipped.
///
/// The name of the test is that of its thread, as `cargo test` and `cargo nextest` set it, or the argument of `--exact`, or
/// the path of the body. With `--test-threads=1` the body must be in the test function itself, or the test must pass its name
/// to [`of_test`](Self::of_test).
#[must_use = "a cluster does nothing until it is run"]
pub struct Cluster {
    pub(crate) kind: ClusterKind,
    pub(crate) names: Vec<String>,
    pub(crate) transport: Transport,
    pub(crate) rendezvous: Rendezvous,
    pub(crate) change: Vec<Change>,
    pub(crate) time_limit: Duration,
    pub(crate) may_die: Vec<u32>,
    pub(crate) graceful: bool,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) board: Board,
    test: Option<String>,
}

/// Whether members are threads or processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterKind {
    Threads,
    Processes,
}

/// The rendezvous of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rendezvous {
    /// In memory for threads, a file for processes.
    Default,
    /// A file in a temporary directory.
    File,
    /// A store on a port that the system chooses, hosted by rank 0.
    Tcp,
}

impl Cluster {
    /// `n` workers `w0`, `w1`, … on threads of this process, on in-memory links.
    pub fn threads(n: usize) -> Self {
        Self::new(ClusterKind::Threads, n)
    }

    /// `n` workers `w0`, `w1`, … in a process each, on Unix sockets.
    pub fn processes(n: usize) -> Self {
        Self::new(ClusterKind::Processes, n)
    }

    fn new(kind: ClusterKind, n: usize) -> Self {
        Self {
            kind,
            names: (0..n).map(|rank| format!("w{rank}")).collect(),
            transport: Transport::Auto,
            rendezvous: Rendezvous::Default,
            change: Vec::new(),
            time_limit: TIME_LIMIT,
            may_die: Vec::new(),
            graceful: true,
            env: Vec::new(),
            // A process of a cluster uses the board of the process that started it.
            board: match Child::get() {
                Some(child) => child.board.clone(),
                None if kind == ClusterKind::Processes => Board::shared(),
                None => Board::new(),
            },
            test: None,
        }
    }

    /// Names the workers, by rank.
    ///
    /// # Panics
    /// When there are more or fewer names than workers.
    pub fn names(mut self, names: &[&str]) -> Self {
        assert_eq!(names.len(), self.names.len(), "as many names as workers");
        self.names = names.iter().map(ToString::to_string).collect();
        self
    }

    /// Changes every worker's options, after the other settings of the cluster are applied.
    pub fn options(mut self, change: impl Fn(&mut Options) + Send + Sync + 'static) -> Self {
        self.change.push(Arc::new(change));
        self
    }

    /// Sets the transport of the links.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Uses Unix links.
    pub fn unix(self) -> Self {
        self.transport(Transport::Unix)
    }

    /// Uses TCP links.
    pub fn tcp(self) -> Self {
        self.transport(Transport::Tcp)
    }

    /// Loses, delays and repeats messages of the reference protocol, and shortens its retry interval.
    pub fn faults(self, faults: Faults) -> Self {
        self.options(move |options| faults.put_into(options))
    }

    /// Sets the rendezvous.
    pub fn rendezvous(mut self, rendezvous: Rendezvous) -> Self {
        self.rendezvous = rendezvous;
        self
    }

    /// Sets the time limit, after which all members are ended and the test fails.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Allows the worker of this rank to panic, exit or be killed.
    ///
    /// Implies [`no_shutdown`](Self::no_shutdown).
    pub fn may_die(mut self, rank: u32) -> Self {
        self.may_die.push(rank);
        self.no_shutdown()
    }

    /// Skips the graceful shutdown: each member ends once the bodies of all members have returned.
    pub fn no_shutdown(mut self) -> Self {
        self.graceful = false;
        self
    }

    /// Sets an environment variable in the processes of this cluster.
    pub fn env(mut self, variable: &str, value: &str) -> Self {
        self.env.push((variable.into(), value.into()));
        self
    }

    /// Sets the path of the test, `module_path!()` and its name, for cases where it cannot be determined.
    pub fn of_test(mut self, path: &str) -> Self {
        self.test = path.split_once("::").map(|(_, name)| name.into());
        self
    }

    /// The board on which the members signal to each other.
    pub fn board(&self) -> Board {
        self.board.clone()
    }

    /// Whether the members are processes.
    pub fn is_processes(&self) -> bool {
        self.kind == ClusterKind::Processes
    }

    /// Runs the body on every member and returns when all have ended.
    ///
    /// # Panics
    /// When a member cannot join the world, its body panics, its process dies, it exceeds the time limit, or its graceful
    /// shutdown fails. The text names the members and has the output of their processes. The others are ended at once.
    pub fn run<F: Fn(World) + Send + Sync + 'static>(self, body: F) {
        self.run_members(std::any::type_name::<F>(), move |member| member.take_part(&body));
    }

    /// Runs the body on rank 0. The other members only serve.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_on_rank_0<F: Fn(World, Board) + Send + Sync + 'static>(self, body: F) {
        let on_rank_0 = move |world: World, board| {
            if world.rank() == 0 {
                body(world, board);
            }
        };
        self.run_members(std::any::type_name::<F>(), move |member| {
            let board = member.board();
            member.take_part(&|world| on_rank_0(world, board.clone()));
        });
    }

    /// As [`run`](Self::run), for tests of initialisation and shutdown: the body creates and ends the world.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_by_hand<F: Fn(Member) + Send + Sync + 'static>(self, body: F) {
        self.run_members(std::any::type_name::<F>(), body);
    }

    fn run_members(self, type_name: &str, body: impl Fn(Member) + Send + Sync + 'static) {
        if let Some(child) = Child::get() {
            return child.run(self, &body);
        }
        match self.kind {
            ClusterKind::Threads => threads::run(&Arc::new(self), body),
            ClusterKind::Processes => {
                let test = self.test.clone().unwrap_or_else(|| test_name::of(type_name));
                processes::run(&self, &test);
            }
        }
    }
}
