//! Calls inside calls, to any depth and in any pattern: blocked workers never starve the pool.

use std::pin::Pin;

use telegrad_rpc::{Options, Result, World, join_all, remote};
use telegrad_testkit::{Cluster, on_every_cluster};
use telegrad_wire::{Buffer, DType, RawTensor, TensorMeta};

/// Calls `peer` until the depth is used up, back and forth; the path of the names.
#[remote]
fn bounce(depth: u32, peer: u32) -> Result<String> {
    let world = World::current()?;
    if depth == 0 {
        return Ok(world.name().into());
    }
    let rest = world.rpc_sync(peer, bounce, (depth - 1, world.rank()))?;
    Ok(format!("{} {rest}", world.name()))
}

/// An async function that calls itself has to box its future, as everywhere in Rust.
#[remote]
fn bounce_async(depth: u32, peer: u32) -> Pin<Box<dyn Future<Output = Result<u32>> + Send>> {
    Box::pin(async move {
        let world = World::current()?;
        if depth == 0 {
            return Ok(0);
        }
        Ok(1 + world
            .rpc_async(peer, bounce_async, (depth - 1, world.rank()))?
            .await?)
    })
}

/// Both ways with a tensor that is larger than what fits on the control lane.
#[remote]
fn bounce_tensor(depth: u32, peer: u32, tensor: RawTensor) -> Result<RawTensor> {
    let world = World::current()?;
    if depth == 0 {
        return Ok(tensor);
    }
    world.rpc_sync(peer, bounce_tensor, (depth - 1, world.rank(), tensor))
}

/// A tree of calls: each makes two more at once.
#[remote]
fn count(depth: u32, peer: u32) -> Result<u64> {
    let world = World::current()?;
    if depth == 0 {
        return Ok(1);
    }
    let call = || world.rpc_async(peer, count, (depth - 1, world.rank()));
    Ok(1 + join_all([call()?, call()?]).wait()?.iter().sum::<u64>())
}

fn one_thread(options: &mut Options) {
    options.num_worker_threads = 1;
}

fn tensor(bytes: usize) -> RawTensor {
    let data: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
    RawTensor::new(
        TensorMeta {
            dtype: DType::U8,
            shape: vec![bytes],
        },
        Buffer::from_vec(data),
    )
    .unwrap()
}

on_every_cluster! { 2 =>
    a_hundred_calls_eight_deep_complete_with_one_thread_each
    a_hundred_async_calls_eight_deep_complete_with_one_thread_each
    calls_go_back_and_forth_and_to_oneself
    large_tensors_go_both_ways_at_every_depth
    a_tree_of_calls_completes_with_one_thread_each
}

fn a_hundred_calls_eight_deep_complete_with_one_thread_each(cluster: Cluster) {
    cluster.options(one_thread).run(|world| {
        let peer = 1 - world.rank();
        let calls = (0..100).map(|_| world.rpc_async(peer, bounce, (8, world.rank())).unwrap());
        let calls: Vec<_> = calls.collect();
        for path in join_all(calls).wait().unwrap() {
            assert_eq!(path.split(' ').count(), 9, "{path}");
        }
    });
}

fn a_hundred_async_calls_eight_deep_complete_with_one_thread_each(cluster: Cluster) {
    cluster.options(one_thread).run(|world| {
        let peer = 1 - world.rank();
        let calls = (0..100).map(|_| world.rpc_async(peer, bounce_async, (8, world.rank())).unwrap());
        let calls: Vec<_> = calls.collect();
        assert_eq!(join_all(calls).wait().unwrap(), [8; 100]);
    });
}

fn calls_go_back_and_forth_and_to_oneself(cluster: Cluster) {
    cluster.options(one_thread).run(|world| {
        if world.rank() == 0 {
            let path = world.rpc_sync(1, bounce, (3, 0)).unwrap();
            assert_eq!(path, "w1 w0 w1 w0");
            let path = world.rpc_sync(0, bounce, (2, 0)).unwrap();
            assert_eq!(path, "w0 w0 w0");
        }
    });
}

fn large_tensors_go_both_ways_at_every_depth(cluster: Cluster) {
    cluster.options(one_thread).run(|world| {
        let (peer, sent) = (1 - world.rank(), tensor(3 * telegrad_net::INLINE_LIMIT as usize));
        let call = || {
            world
                .rpc_async(peer, bounce_tensor, (6, world.rank(), sent.clone()))
                .unwrap()
        };
        let calls: Vec<_> = (0..16).map(|_| call()).collect();
        for back in join_all(calls).wait().unwrap() {
            assert!(back == sent);
        }
    });
}

fn a_tree_of_calls_completes_with_one_thread_each(cluster: Cluster) {
    cluster.options(one_thread).run(|world| {
        let nodes = world
            .rpc_sync(1 - world.rank(), count, (7, world.rank()))
            .unwrap();
        assert_eq!(nodes, 255);
    });
}
