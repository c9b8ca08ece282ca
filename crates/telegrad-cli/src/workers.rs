//! Worlds that a command starts: this process is rank 0 and calls the other workers.

use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::Duration;

use telegrad::{Options, StoreServer, World};

use crate::{Error, Link, Process, fail};

/// Long enough for 256 MB on a slow machine, short enough to notice a hang.
const CALL_LIMIT: Duration = Duration::from_secs(120);

/// Options of the hidden subcommand `worker`, which [`Workers`] starts once per process.
#[derive(Debug, clap::Args)]
pub struct WorkerArgs {
    /// Address of the world's store
    #[arg(long)]
    world: String,

    /// Name of this worker
    #[arg(long)]
    name: String,

    /// Rank of this worker
    #[arg(long)]
    rank: u32,

    /// Number of workers in the world
    #[arg(long)]
    size: u32,

    /// Kind of links
    #[arg(long)]
    transport: Link,
}

/// Joins a world, answers calls until the shutdown, and leaves.
pub fn serve_worker(args: &WorkerArgs) -> ExitCode {
    let meeting = Meeting::new(&args.world, args.size, args.transport);
    match meeting.serve(&args.name, args.rank) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, 1),
    }
}

/// The rendezvous of a world: its address, size and kind of links.
#[derive(Clone, Debug)]
pub struct Meeting {
    address: String,
    size: u32,
    link: Link,
}

impl Meeting {
    /// The rendezvous at this address.
    pub fn new(address: &str, size: u32, link: Link) -> Self {
        Self {
            address: address.into(),
            size,
            link,
        }
    }

    /// Joins the world.
    ///
    /// # Errors
    /// When the world does not assemble within 20 s.
    pub fn join(&self, name: &str, rank: u32, store: Option<StoreServer>) -> Result<World, Error> {
        let options = Options {
            init_method: self.address.clone(),
            rank: Some(rank),
            world_size: Some(self.size),
            transport: self.link.into(),
            rpc_timeout: CALL_LIMIT,
            rendezvous_timeout: Duration::from_secs(20),
            store,
            ..Options::default()
        };
        Ok(telegrad::init_with(name, options)?)
    }

    fn serve(&self, name: &str, rank: u32) -> Result<(), Error> {
        Ok(self.join(name, rank, None)?.serve()?)
    }
}

/// A world whose rank 0 is this process; the other workers answer calls.
pub struct Workers {
    /// Rank 0.
    pub world: World,
    callees: Vec<Callee>,
}

/// A worker that answers calls.
enum Callee {
    Process(Process),
    Thread(JoinHandle<Result<(), String>>),
}

impl Workers {
    /// Starts a world of workers with these names; the first one is this process.
    ///
    /// # Errors
    /// When a worker cannot be started or the world does not assemble.
    pub fn start(link: Link, names: &[String]) -> Result<Self, Error> {
        let size = u32::try_from(names.len())?;
        let (first, others) = names.split_first().ok_or("a world needs at least one worker")?;
        let others = (1..size).zip(others);
        if link == Link::Mem {
            let meeting = Meeting::new(&format!("mem://telegrad-{size}"), size, link);
            let start = |(rank, name): (u32, &String)| {
                let (meeting, name) = (meeting.clone(), name.clone());
                let serve = move || meeting.serve(&name, rank).map_err(|error| error.to_string());
                Callee::Thread(std::thread::spawn(serve))
            };
            let callees = others.map(start).collect();
            let world = meeting.join(first, 0, None)?;
            return Ok(Self { world, callees });
        }
        let store = StoreServer::bind(("127.0.0.1", 0))?;
        let meeting = Meeting::new(&format!("tcp://{}", store.address()), size, link);
        let start = |(rank, name): (u32, &String)| {
            let (rank, size) = (rank.to_string(), size.to_string());
            let world = ["worker", "--world", &meeting.address, "--size", &size];
            let worker = ["--name", name, "--rank", &rank, "--transport", link.name()];
            Process::start(name, &[&world[..], &worker].concat()).map(Callee::Process)
        };
        let callees = others.map(start).collect::<Result<_, _>>()?;
        let world = meeting.join(first, 0, Some(store))?;
        Ok(Self { world, callees })
    }

    /// Number of workers, this process included.
    pub fn size(&self) -> usize {
        self.world.size()
    }

    /// Names of the other workers, by rank.
    pub fn others(&self) -> Vec<String> {
        let members = self.world.get_worker_infos().into_iter();
        members.skip(1).map(|member| member.name).collect()
    }

    /// Shuts the world down and waits for all workers to end.
    ///
    /// # Errors
    /// When the shutdown takes longer than 20 s or a worker failed.
    pub fn end(self) -> Result<(), Error> {
        self.world.shutdown_within(Duration::from_secs(20))?;
        for callee in self.callees {
            match callee {
                Callee::Process(mut process) => process.wait()?,
                Callee::Thread(thread) => thread.join().map_err(|_| "the thread of a worker panicked")??,
            }
        }
        Ok(())
    }
}
