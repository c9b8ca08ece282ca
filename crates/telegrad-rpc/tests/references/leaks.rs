//! References that are still held when their world ends (S33).

use telegrad_rpc::Error;
use telegrad_testkit::{Log, on_threads_and_processes};

use super::*;

/// A value that is still referred to at the shutdown.
struct Leak;

on_threads_and_processes! { 2 =>
    a_shutdown_logs_leaked_references
    a_shutdown_can_fail_with_leaked_references
    a_shutdown_waits_until_dropped_references_are_released
    a_shutdown_does_not_wait_for_the_result_of_a_dropped_call
}

fn a_shutdown_logs_leaked_references(cluster: Cluster) {
    cluster.names(&["clean", "leaky"]).run(|world| {
        Log::start();
        let leak = RRef::hold(&world, Leak).unwrap();
        let all = world.all_gather(&leak).unwrap();
        drop(leak);
        if world.rank() == 0 {
            world.shutdown().unwrap();
        } else {
            // Only the owner logs a leak.
            world.shutdown().unwrap();
            let leak = "reference=`references::leaks::Leak` on `leaky` (ready), held by `clean`, `leaky`";
            let parts = [
                "WARN",
                "still referred to at the shutdown",
                "worker=\"leaky\"",
                leak,
            ];
            Log::wait_for(&parts);
        }
        drop(all);
    });
}

fn a_shutdown_can_fail_with_leaked_references(cluster: Cluster) {
    let cluster = cluster.options(|options| options.fail_on_leaks = true);
    cluster.run_by_hand(|member| {
        let world = member.init().unwrap();
        if member.rank() == 0 {
            let leaks: Vec<_> = (0..10).map(|n| world.remote(1, double, (n,)).unwrap()).collect();
            assert_eq!(leaks[3].to_here().unwrap(), 6);
            world.shutdown().unwrap();
            drop(leaks);
        } else {
            let error = world.shutdown().unwrap_err();
            let Error::Leaked(leaks) = &error else {
                panic!("{error:?}")
            };
            assert_eq!(leaks.len(), 10);
            assert_eq!((leaks[0].type_name.as_str(), leaks[0].owner.rank), ("i64", 1));
            assert_eq!(leaks[0].holders[0].0.name, "w0");
            let one = "`i64` on `w1` (ready), held by `w0`";
            let text = format!(
                "references were left at the shutdown; drop them before: {} and 2 more",
                [one; 8].join("; ")
            );
            assert_eq!(error.to_string(), text);
        }
        member.wait_for_all();
    });
}

fn a_shutdown_waits_until_dropped_references_are_released(cluster: Cluster) {
    let board = cluster.board();
    cluster
        .options(|options| options.fail_on_leaks = true)
        .run(move |world| {
            // Dropped just before the shutdown: some references are in transit, some values still being made.
            let other = 1 - world.rank();
            let counters: Vec<_> = (0..20)
                .map(|n| {
                    world
                        .remote(other, Counter::new, (n, Some(board.clone())))
                        .unwrap()
                })
                .collect();
            for counter in &counters {
                world
                    .rpc_async(other, add_to, (counter.clone(), 1))
                    .unwrap()
                    .detach();
            }
            drop(counters);
            world.shutdown().unwrap();
            board.wait_for("freed", 40);
        });
}

#[remote]
fn own(board: Board) -> Result<RRef<Leak>> {
    board.raise("running");
    board.wait("give it");
    RRef::hold(&World::current()?, Leak)
}

fn a_shutdown_does_not_wait_for_the_result_of_a_dropped_call(cluster: Cluster) {
    let board = cluster.board();
    cluster
        .options(|options| options.fail_on_leaks = true)
        .run(move |world| {
            if world.rank() == 0 {
                let call = world.rpc_async(1, own, (board.clone(),)).unwrap();
                board.wait("running");
                drop(call);
                board.raise("give it");
            }
            world.shutdown_within(PATIENCE).unwrap();
        });
}
