//! The other process: the worker that is called, or the far end of a raw socket.

use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use telegrad::{Options, StoreServer, Transport, World};

use super::{Error, floor};
use crate::fail;

/// Long enough for 256 MB on a slow machine, short enough to notice a hang.
const CALL_LIMIT: Duration = Duration::from_secs(120);

/// The far side of a benchmark. Started by `telegrad bench` itself.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Join the world at this address as the worker that is called
    #[arg(long, conflicts_with = "floor")]
    world: Option<String>,

    /// Which links to use
    #[arg(long, default_value = "auto")]
    transport: super::Link,

    /// Be the far end of this raw socket
    #[arg(long)]
    floor: Option<String>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let result = match (&args.world, &args.floor) {
        (Some(place), _) => serve(place, args.transport.transport()),
        (None, Some(address)) => floor::serve(address),
        (None, None) => Err("nothing to be a peer of".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error, 1),
    }
}

fn serve(place: &str, transport: Transport) -> Result<(), Error> {
    let world = telegrad::init_with("w1", options(place, 1, transport))?;
    // Until the other side has measured everything.
    world.shutdown_within(Duration::from_secs(3600))?;
    Ok(())
}

fn options(place: &str, rank: u32, transport: Transport) -> Options {
    Options {
        init_method: place.into(),
        rank: Some(rank),
        world_size: Some(2),
        transport,
        rpc_timeout: CALL_LIMIT,
        rendezvous_timeout: Duration::from_secs(20),
        ..Options::default()
    }
}

/// Two workers: this process, and one to call.
pub(super) struct Pair {
    pub(super) world: World,
    other: Other,
}

enum Other {
    Process(Process),
    Thread(Option<std::thread::JoinHandle<Result<(), String>>>),
}

impl Pair {
    pub(super) fn start(transport: Transport) -> Result<Self, Error> {
        if transport == Transport::Mem {
            let place = format!("mem://bench-{}", std::process::id());
            let there = place.clone();
            let thread =
                std::thread::spawn(move || serve(&there, transport).map_err(|error| error.to_string()));
            let world = telegrad::init_with("w0", options(&place, 0, transport))?;
            return Ok(Self {
                world,
                other: Other::Thread(Some(thread)),
            });
        }
        let store = StoreServer::bind(("127.0.0.1", 0))?;
        let place = format!("tcp://{}", store.address());
        let link = match transport {
            Transport::Unix => "unix",
            Transport::Tcp => "tcp",
            _ => "auto",
        };
        let process = Process::start(&["--world", &place, "--transport", link])?;
        let options = Options {
            store: Some(store),
            ..options(&place, 0, transport)
        };
        let world = telegrad::init_with("w0", options)?;
        Ok(Self {
            world,
            other: Other::Process(process),
        })
    }

    pub(super) fn end(mut self) -> Result<(), Error> {
        self.world.shutdown_within(Duration::from_secs(20))?;
        match &mut self.other {
            Other::Process(process) => process.wait(),
            Other::Thread(thread) => match thread.take().map(std::thread::JoinHandle::join) {
                Some(Ok(result)) => result.map_err(Into::into),
                _ => Err("the called worker panicked".into()),
            },
        }
    }
}

/// A peer process; killed when it is dropped before it has ended.
pub(super) struct Process(Child);

impl Process {
    pub(super) fn start(args: &[&str]) -> Result<Self, Error> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.arg("bench-peer").args(args).stdin(Stdio::null());
        Ok(Self(command.spawn()?))
    }

    pub(super) fn wait(&mut self) -> Result<(), Error> {
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
