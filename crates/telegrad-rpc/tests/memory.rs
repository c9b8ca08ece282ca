//! Tensors that a process has no memory for: the call fails and says so, and the connection lives on (S20).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use telegrad_rpc::{Error, Options, RRef, RemoteErrorKind, Result, World, remote};
use telegrad_testkit::{Board, Cluster, on_cluster};
use telegrad_wire::{Buffer, DType, RawTensor, TensorMeta};

/// Length of a tensor that is too long.
const LARGE: usize = 192 << 20;

/// Memory that a limited process may still take: for threads and small messages.
const SPARE: u64 = 96 << 20;

fn tensor(len: usize) -> RawTensor {
    let meta = TensorMeta {
        dtype: DType::U8,
        shape: vec![len],
    };
    RawTensor::new(meta, Buffer::from_vec(vec![0_u8; len])).unwrap()
}

/// Leaves this process so much memory on top of what it has, or as much as there is.
#[remote]
fn limit(spare: Option<u64>) {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    let now = pages * 4096;
    let maximum = getrlimit(Resource::As).maximum;
    let current = spare.map(|spare| now + spare).or(maximum);
    setrlimit(Resource::As, Rlimit { current, maximum }).unwrap();
}

#[remote]
fn length(tensor: RawTensor) -> usize {
    tensor.bytes().len()
}

#[remote]
fn make(len: usize) -> RawTensor {
    tensor(len)
}

#[remote]
fn keep(tensor: RawTensor) -> RawTensor {
    tensor
}

#[remote]
fn hold(board: Board) -> i64 {
    board.wait("go");
    5
}

/// Fetches a tensor that this worker has no memory for, while another call of its own is under way.
#[remote]
fn fetch_too_much(from: u32, board: Board) -> Result<String> {
    let world = World::current()?;
    let holding = world.rpc_async(from, hold, (board.clone(),))?;
    let error = world.rpc_sync(from, make, (LARGE,)).unwrap_err();
    assert!(matches!(error, Error::NoMemory { .. }), "{error:?}");
    assert_eq!(world.rpc_sync(from, make, (10,))?.bytes().len(), 10);
    board.raise("go");
    assert_eq!(holding.wait()?, 5);
    Ok(error.to_string())
}

/// Messages go whole, however long.
fn whole(options: &mut Options) {
    options.chunk = 1 << 30;
}

on_cluster! { shared: Cluster::processes(2) => arguments_that_do_not_fit a_result_that_does_not_fit }
on_cluster! { unix: Cluster::processes(2).unix() => arguments_that_do_not_fit a_result_that_does_not_fit }
on_cluster! { tcp: Cluster::processes(2).tcp() => arguments_that_do_not_fit a_result_that_does_not_fit }
on_cluster! { tcp_whole: Cluster::processes(2).tcp().options(whole) =>
    arguments_that_do_not_fit a_result_that_does_not_fit
}
on_cluster! { mem: Cluster::processes(1) => a_call_to_oneself_that_does_not_fit }

fn on_rank_0(cluster: Cluster, body: impl Fn(World, Board) + Send + Sync + 'static) {
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 0 {
            body(world, board.clone());
        }
    });
}

#[track_caller]
fn assert_refused(error: &Error, worker: &str, function: &str) {
    let kind = error.remote().map(|error| error.kind);
    assert_eq!(kind, Some(RemoteErrorKind::NoMemory), "{error:?}");
    let text =
        format!("worker `{worker}` has no memory for the arguments of `memory::{function}`: {LARGE} bytes");
    assert_eq!(error.to_string(), text);
}

fn arguments_that_do_not_fit(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        let large = tensor(LARGE);
        world.rpc_sync(1, limit, (Some(SPARE),)).unwrap();
        let holding = world.rpc_async(1, hold, (board.clone(),)).unwrap();
        for _ in 0..2 {
            let error = world.rpc_sync(1, length, (large.clone(),)).unwrap_err();
            assert_refused(&error, "w1", "length");
        }
        // A value that cannot be made says so at its use.
        let value: RRef<RawTensor> = world.remote(1, keep, (large.clone(),)).unwrap();
        assert_refused(&value.to_here().unwrap_err(), "w1", "keep");
        // The connection, and what was under way on it, are as before.
        assert_eq!(world.rpc_sync(1, length, (tensor(10),)).unwrap(), 10);
        board.raise("go");
        assert_eq!(holding.wait().unwrap(), 5);
        // With memory it works.
        world.rpc_sync(1, limit, (None,)).unwrap();
        assert_eq!(world.rpc_sync(1, length, (large.clone(),)).unwrap(), LARGE);
    });
}

fn a_result_that_does_not_fit(cluster: Cluster) {
    on_rank_0(cluster, |world, board| {
        world.rpc_sync(1, limit, (Some(SPARE),)).unwrap();
        let text = world.rpc_sync(1, fetch_too_much, (0, board.clone())).unwrap();
        let expected = format!(
            "no memory on this worker for the result of `memory::make` from worker `w0`: {LARGE} bytes"
        );
        assert_eq!(text, expected);
    });
}

fn a_call_to_oneself_that_does_not_fit(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let large = tensor(LARGE);
        limit(Some(SPARE));
        let error = world.rpc_sync(0, length, (large.clone(),)).unwrap_err();
        assert_refused(&error, "w0", "length");
        assert_eq!(world.rpc_sync(0, length, (tensor(10),)).unwrap(), 10);
        limit(None);
        assert_eq!(world.rpc_sync(0, length, (large,)).unwrap(), LARGE);
    });
}
