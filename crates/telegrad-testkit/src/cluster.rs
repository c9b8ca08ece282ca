//! What to run, and on which workers.

use std::sync::Arc;
use std::time::Duration;

use telegrad_rpc::{Options, Transport, World};

use crate::board::Board;
use crate::child::Child;
use crate::faults::Faults;
use crate::member::Member;
use crate::{processes, test_name, threads};

/// Long enough for any test on a machine that is busy with others.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Changes the options of every worker.
pub(crate) type Change = Arc<dyn Fn(&mut Options) + Send + Sync>;

/// A world of workers for a test.
///
/// [`threads`](Self::threads) runs every member on a thread of this process,
/// [`processes`](Self::processes) each in a process of its own. Otherwise they are the same: the
/// body runs once per member and gets that member's [`World`]. When it returns, the member takes part
/// in a graceful shutdown, unless [`deaths`](Self::may_die) are expected or
/// [`no_shutdown`](Self::no_shutdown) was asked for.
///
/// # Processes
/// A process of a cluster is the test binary itself, started with the name of the running test. It
/// runs the test up to the same [`run`](Self::run), does its part as one member there, and exits.
/// What stands before that in the test runs in every process; other clusters of the test are skipped.
/// The name of the test is that of its thread, as `cargo test` and `cargo nextest` give it, or what
/// follows `--exact`, or the path of the body: with `--test-threads=1` a body must stand in
/// the test function itself, or the test give its name with [`of_test`](Self::of_test).
#[must_use = "a cluster does nothing until it is run"]
pub struct Cluster {
    pub(crate) kind: Kind,
    pub(crate) names: Vec<String>,
    pub(crate) transport: Transport,
    pub(crate) meeting: Meeting,
    pub(crate) change: Vec<Change>,
    pub(crate) time_limit: Duration,
    pub(crate) may_die: Vec<u32>,
    pub(crate) graceful: bool,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) board: Board,
    test: Option<String>,
}

/// Where the members live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Threads,
    Processes,
}

/// Where the members of a cluster meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Meeting {
    /// In memory for threads, in a file for processes.
    Default,
    /// A file in a temporary directory.
    File,
    /// A store on a port that the system chooses, hosted by rank 0.
    Tcp,
}

impl Cluster {
    /// `n` workers `w0`, `w1`, … on threads of this process, on in-memory links.
    pub fn threads(n: usize) -> Self {
        Self::new(Kind::Threads, n)
    }

    /// `n` workers `w0`, `w1`, … in a process each, on Unix sockets.
    pub fn processes(n: usize) -> Self {
        Self::new(Kind::Processes, n)
    }

    fn new(kind: Kind, n: usize) -> Self {
        Self {
            kind,
            names: (0..n).map(|rank| format!("w{rank}")).collect(),
            transport: Transport::Auto,
            meeting: Meeting::Default,
            change: Vec::new(),
            time_limit: TIME_LIMIT,
            may_die: Vec::new(),
            graceful: true,
            env: Vec::new(),
            // In a process of a cluster, the board is that of the process that started it.
            board: match Child::get() {
                Some(child) => child.board.clone(),
                None if kind == Kind::Processes => Board::shared(),
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

    /// Changes every worker's options; what is chosen here by other means is set already.
    pub fn options(mut self, change: impl Fn(&mut Options) + Send + Sync + 'static) -> Self {
        self.change.push(Arc::new(change));
        self
    }

    /// Which links the workers use.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Unix links.
    pub fn unix(self) -> Self {
        self.transport(Transport::Unix)
    }

    /// TCP links.
    pub fn tcp(self) -> Self {
        self.transport(Transport::Tcp)
    }

    /// Messages about references get lost, delayed and repeated, and are sent again very soon.
    pub fn faults(self, faults: Faults) -> Self {
        self.options(move |options| faults.put_into(options))
    }

    /// Where the workers meet.
    pub fn meeting(mut self, meeting: Meeting) -> Self {
        self.meeting = meeting;
        self
    }

    /// After this time all members are ended and the test fails.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// The worker of this rank may panic, exit or be killed without failing the test. Members then
    /// do not shut down gracefully: each ends when the bodies of all others have.
    pub fn may_die(mut self, rank: u32) -> Self {
        self.may_die.push(rank);
        self.no_shutdown()
    }

    /// Members do not shut down gracefully: each ends when the bodies of all others have.
    pub fn no_shutdown(mut self) -> Self {
        self.graceful = false;
        self
    }

    /// Sets an environment variable in the processes of this cluster.
    pub fn env(mut self, variable: &str, value: &str) -> Self {
        self.env.push((variable.into(), value.into()));
        self
    }

    /// The test that this cluster belongs to, as `module_path!()` and its name, for when it cannot be
    /// found out.
    pub fn of_test(mut self, path: &str) -> Self {
        self.test = path.split_once("::").map(|(_, name)| name.into());
        self
    }

    /// Where the members of this cluster signal to each other.
    pub fn board(&self) -> Board {
        self.board.clone()
    }

    /// Whether the members are processes: what only those can do, a test may skip elsewhere.
    pub fn is_processes(&self) -> bool {
        self.kind == Kind::Processes
    }

    /// Runs the body on every member, and returns when all have ended.
    ///
    /// # Panics
    /// When a member cannot join the world, its body panics, its process dies, it does not end within
    /// the time limit, or its graceful shutdown fails. The text says which members, and shows what
    /// their processes have printed. The others are ended at once.
    pub fn run<F: Fn(World) + Send + Sync + 'static>(self, body: F) {
        self.run_members(std::any::type_name::<F>(), move |member| member.take_part(&body));
    }

    /// Runs the body on rank 0. The other members are there to be called.
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

    /// As [`run`](Self::run), for tests of the start and the end of a world: the body gets the
    /// member, and is to make and end the world itself.
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
            Kind::Threads => threads::run(&Arc::new(self), body),
            Kind::Processes => {
                let test = self.test.clone().unwrap_or_else(|| test_name::of(type_name));
                processes::run(&self, &test);
            }
        }
    }
}
