//! The other processes that a command starts: workers that are called, or the far end of a raw socket.

use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use telegrad::{Options, StoreServer, Transport, World};

use crate::bench::{floor, life};
use crate::{Error, fail};

/// Long enough for 256 MB on a slow machine, short enough to notice a hang.
const CALL_LIMIT: Duration = Duration::from_secs(120);

/// A process that another command has started.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Join the world at this address as a worker that is called
    #[arg(long, conflicts_with = "floor")]
    world: Option<String>,

    /// The name to join with
    #[arg(long, default_value = "w1")]
    name: String,

    /// The rank to join with
    #[arg(long, default_value_t = 1)]
    rank: u32,

    /// How many members the world has
    #[arg(long, default_value_t = 2)]
    size: u32,

    /// Which links to use
    #[arg(long, default_value = "auto")]
    transport: crate::bench::Link,

    /// Join and leave when standard input says so
    #[arg(long, conflicts_with_all = ["floor", "world"])]
    life: bool,

    /// Be the far end of this raw socket
    #[arg(long)]
    floor: Option<String>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let result = match (&args.world, &args.floor) {
        (Some(place), _) => {
            Place::new(place, args.size, args.transport.transport()).serve(&args.name, args.rank)
        }
        (None, Some(address)) => floor::serve(address),
        (None, None) if args.life => {
            life::serve(&args.name, args.rank, args.size, args.transport.transport())
        }
        (None, None) => Err("nothing to be a peer of".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, 1),
    }
}

/// Where the members of a world meet, and how they are linked.
#[derive(Clone)]
pub(crate) struct Place {
    address: String,
    size: u32,
    transport: Transport,
}

impl Place {
    pub(crate) fn new(address: &str, size: u32, transport: Transport) -> Self {
        Self {
            address: address.into(),
            size,
            transport,
        }
    }

    pub(crate) fn join(&self, name: &str, rank: u32, store: Option<StoreServer>) -> Result<World, Error> {
        let options = Options {
            init_method: self.address.clone(),
            rank: Some(rank),
            world_size: Some(self.size),
            transport: self.transport,
            rpc_timeout: Some(CALL_LIMIT),
            rendezvous_timeout: Some(Duration::from_secs(20)),
            store,
            ..Options::default()
        };
        Ok(telegrad::init_with(name, options)?)
    }

    fn serve(&self, name: &str, rank: u32) -> Result<(), Error> {
        Ok(self.join(name, rank, None)?.serve()?)
    }
}

/// A world of which the first worker is this process; the others are there to be called.
pub(crate) struct Workers {
    pub(crate) world: World,
    others: Vec<Other>,
}

enum Other {
    Process(Process),
    Thread(std::thread::JoinHandle<Result<(), String>>),
}

impl Workers {
    pub(crate) fn start(transport: Transport, names: &[String]) -> Result<Self, Error> {
        let size = names.len() as u32;
        let (first, others) = names.split_first().ok_or("a world needs a worker")?;
        let others = (1..size).zip(others);
        if transport == Transport::Mem {
            let place = Place::new(&format!("mem://telegrad-{size}"), size, transport);
            let serve = |(rank, name): (u32, &String)| {
                let (place, name) = (place.clone(), name.clone());
                let serve = move || place.serve(&name, rank).map_err(|error| error.to_string());
                Other::Thread(std::thread::spawn(serve))
            };
            let others = others.map(serve).collect();
            let world = place.join(first, 0, None)?;
            return Ok(Self { world, others });
        }
        let store = StoreServer::bind(("127.0.0.1", 0))?;
        let place = Place::new(&format!("tcp://{}", store.address()), size, transport);
        let link = link_name(transport);
        let start = |(rank, name): (u32, &String)| {
            let (rank, size) = (rank.to_string(), size.to_string());
            let world = ["--world", &place.address, "--rank", &rank, "--size", &size];
            Process::start(&[&world[..], &["--name", name, "--transport", link]].concat()).map(Other::Process)
        };
        let others = others.map(start).collect::<Result<_, _>>()?;
        let world = place.join(first, 0, Some(store))?;
        Ok(Self { world, others })
    }

    /// How many members the world has.
    pub(crate) fn size(&self) -> usize {
        self.world.size()
    }

    /// The names of those to be called.
    pub(crate) fn others(&self) -> Vec<String> {
        let members = self.world.get_worker_infos().into_iter();
        members.skip(1).map(|member| member.name).collect()
    }

    pub(crate) fn end(self) -> Result<(), Error> {
        self.world.shutdown_within(Duration::from_secs(20))?;
        for other in self.others {
            match other {
                Other::Process(mut process) => process.wait()?,
                Other::Thread(thread) => thread.join().map_err(|_| "a called worker panicked")??,
            }
        }
        Ok(())
    }
}

/// How processes are told which links to use.
pub(crate) fn link_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Unix => "unix",
        Transport::Tcp => "tcp",
        _ => "auto",
    }
}

/// A peer process; killed when it is dropped before it has ended.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(args: &[&str]) -> Result<Self, Error> {
        Ok(Self(Self::command(args)?.stdin(Stdio::null()).spawn()?))
    }

    /// One that is told what to do by its standard input, and answers on its standard output.
    pub(crate) fn start_piped(args: &[&str]) -> Result<(Self, ChildStdin, ChildStdout), Error> {
        let mut command = Self::command(args)?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let process = Self(child);
        match (stdin, stdout) {
            (Some(stdin), Some(stdout)) => Ok((process, stdin, stdout)),
            _ => Err("a process was started without its pipes".into()),
        }
    }

    fn command(args: &[&str]) -> Result<Command, Error> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("peer").args(args);
        Ok(command)
    }

    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        let status = self.0.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the peer process failed: {status}").into())
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
