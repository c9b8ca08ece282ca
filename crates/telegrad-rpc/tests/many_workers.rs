//! Hundreds of workers in one process.

use std::time::Duration;

use telegrad_rpc::{Result, World, join_all, remote};
use telegrad_testkit::Cluster;

const WORKERS: u32 = 200;

#[remote]
fn pair(caller: u32) -> Result<(u32, u32)> {
    Ok((caller, World::current()?.rank()))
}

#[test]
fn two_hundred_workers_start_call_each_other_and_shut_down() {
    Cluster::threads(WORKERS as usize)
        .time_limit(Duration::from_secs(120))
        .run(|world| {
            let me = world.rank();
            let calls: Vec<_> = (0..WORKERS)
                .map(|rank| world.rpc_async(rank, pair, (me,)).unwrap())
                .collect();
            let expected: Vec<_> = (0..WORKERS).map(|rank| (me, rank)).collect();
            assert_eq!(join_all(calls).wait().unwrap(), expected);
        });
}

#[test]
fn a_thousand_workers_start_pass_a_barrier_and_shut_down() {
    Cluster::threads(1000)
        .time_limit(Duration::from_secs(120))
        .run(|world| {
            world.barrier().unwrap();
            world.shutdown().unwrap();
        });
}
