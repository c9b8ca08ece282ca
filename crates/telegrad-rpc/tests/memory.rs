//! Tensors that do not fit into memory: the call fails with that reason, and the connection stays usable (S20).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use telegrad_rpc::{Error, Options, RRef, RemoteErrorKind, Result, World, remote};
use telegrad_testkit::{Board, Cluster, byte_tensor, on_cluster};
use telegrad_wire::RawTensor;

/// Length of a tensor that does not fit.
const LARGE: usize = 192 << 20;

/// Memory that a limited process may still allocate: for threads and small messages.
const SPARE: u64 = 96 << 20;

fn tensor(len: usize) -> RawTensor {
    byte_tensor(vec![0; len])
}

/// Limits this process to `spare` bytes more than it uses now, or removes the limit.
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

/// Fetches a tensor that does not fit here, while another call to the same worker is pending.
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

/// Messages are not cut into chunks, however long.
fn one_chunk(options: &mut Options) {
    options.chunk = 1 << 30;
}

on_cluster! {
    shared: Cluster::processes(2),
    unix: Cluster::processes(2).unix(),
    tcp: Cluster::processes(2).tcp(),
    tcp_in_one_chunk: Cluster::processes(2).tcp().options(one_chunk) =>
    arguments_that_do_not_fit_are_refused
    a_result_that_does_not_fit_is_an_error
}
on_cluster! { mem: Cluster::processes(1) => arguments_of_a_call_to_itself_that_do_not_fit_are_refused }

#[track_caller]
fn assert_refused(error: &Error, worker: &str, function: &str) {
    let kind = error.remote().map(|error| error.kind);
    assert_eq!(kind, Some(RemoteErrorKind::NoMemory), "{error:?}");
    let text =
        format!("worker `{worker}` has no memory for the arguments of `memory::{function}`: {LARGE} bytes");
    assert_eq!(error.to_string(), text);
}

fn arguments_that_do_not_fit_are_refused(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        let large = tensor(LARGE);
        world.rpc_sync(1, limit, (Some(SPARE),)).unwrap();
        let holding = world.rpc_async(1, hold, (board.clone(),)).unwrap();
        for _ in 0..2 {
            let error = world.rpc_sync(1, length, (large.clone(),)).unwrap_err();
            assert_refused(&error, "w1", "length");
        }
        // The error of a value that cannot be made appears at its use.
        let value: RRef<RawTensor> = world.remote(1, keep, (large.clone(),)).unwrap();
        assert_refused(&value.to_here().unwrap_err(), "w1", "keep");
        // The connection is still usable, and the pending call on it unaffected.
        assert_eq!(world.rpc_sync(1, length, (tensor(10),)).unwrap(), 10);
        board.raise("go");
        assert_eq!(holding.wait().unwrap(), 5);
        // With enough memory, the same call succeeds.
        world.rpc_sync(1, limit, (None,)).unwrap();
        assert_eq!(world.rpc_sync(1, length, (large.clone(),)).unwrap(), LARGE);
    });
}

fn a_result_that_does_not_fit_is_an_error(cluster: Cluster) {
    cluster.run_on_rank_0(|world, board| {
        world.rpc_sync(1, limit, (Some(SPARE),)).unwrap();
        let text = world.rpc_sync(1, fetch_too_much, (0, board.clone())).unwrap();
        let expected = format!(
            "no memory on this worker for the result of `memory::make` from worker `w0`: {LARGE} bytes"
        );
        assert_eq!(text, expected);
    });
}

fn arguments_of_a_call_to_itself_that_do_not_fit_are_refused(cluster: Cluster) {
    cluster.run_on_rank_0(|world, _| {
        let large = tensor(LARGE);
        limit(Some(SPARE));
        let error = world.rpc_sync(0, length, (large.clone(),)).unwrap_err();
        assert_refused(&error, "w0", "length");
        assert_eq!(world.rpc_sync(0, length, (tensor(10),)).unwrap(), 10);
        limit(None);
        assert_eq!(world.rpc_sync(0, length, (large,)).unwrap(), LARGE);
    });
}
