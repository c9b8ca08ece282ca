//! Nested calls of any depth and pattern: blocked functions never starve the pool.

use std::pin::Pin;

use telegrad_rpc::{Options, Result, World, join_all, remote};
use telegrad_testkit::{Cluster, byte_tensor, on_every_cluster};
use telegrad_wire::RawTensor;

/// Calls `peer`, which calls back, until the depth is used up. Returns the names of the workers on the way.
#[remote]
fn bounce(depth: u32, peer: u32) -> Result<String> {
    let world = World::current()?;
    if depth == 0 {
        return Ok(world.name().into());
    }
    let rest = world.rpc_sync(peer, bounce, (depth - 1, world.rank()))?;
    Ok(format!("{} {rest}", world.name()))
}

/// As `bounce`. A recursive async function must box its future.
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

/// As `bounce`, with a tensor too large for the control lane both ways.
#[remote]
fn bounce_tensor(depth: u32, peer: u32, tensor: RawTensor) -> Result<RawTensor> {
    let world = World::current()?;
    if depth == 0 {
        return Ok(tensor);
    }
    world.rpc_sync(peer, bounce_tensor, (depth - 1, world.rank(), tensor))
}

/// Makes a tree of calls, two at once on each level. Returns their number.
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

on_every_cluster! { 2 =>
    a_hundred_calls_eight_deep_complete_with_one_thread_each
    a_hundred_async_calls_eight_deep_complete_with_one_thread_each
    nested_calls_go_back_and_forth_and_to_the_worker_itself
    large_tensors_travel_both_ways_at_every_depth
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

fn nested_calls_go_back_and_forth_and_to_the_worker_itself(cluster: Cluster) {
    cluster.options(one_thread).run(|world| {
        if world.rank() == 0 {
            let path = world.rpc_sync(1, bounce, (3, 0)).unwrap();
            assert_eq!(path, "w1 w0 w1 w0");
            let path = world.rpc_sync(0, bounce, (2, 0)).unwrap();
            assert_eq!(path, "w0 w0 w0");
        }
    });
}

fn large_tensors_travel_both_ways_at_every_depth(cluster: Cluster) {
    cluster.options(one_thread).run(|world| {
        let bytes = 0..3 * telegrad_net::INLINE_LIMIT;
        let (peer, sent) = (
            1 - world.rank(),
            byte_tensor(bytes.map(|i| (i % 251) as u8).collect()),
        );
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
