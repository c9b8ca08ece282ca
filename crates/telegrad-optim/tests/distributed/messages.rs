//! The messages of a step, and their concurrency.

use std::time::Duration;

use telegrad_testkit::{Board, on_threads_and_processes, wait_until};

use super::*;

on_threads_and_processes! { 3 =>
    a_step_is_one_message_per_remote_owner_and_two_with_clipping
}

/// The time limit of a test's waits, generous for a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until no message about references is pending.
fn settle(world: &World) {
    let settled = || {
        let info = world.debug_info();
        info.references_unconfirmed + info.references_given + info.references_untold == 0
    };
    wait_until(PATIENCE, settled, || world.debug_info());
}

fn a_step_is_one_message_per_remote_owner_and_two_with_clipping(cluster: Cluster) {
    on_rank_0(cluster, |world| {
        // Two stages on each worker: the messages depend on the owners, not the parameters.
        let model = Model::new(world, &[0, 1, 2, 2, 1, 0])?;
        let params = model.params()?;
        let plain = DistributedOptimizer::new(world, params.clone(), sgd(0.1))?;
        let clipped = DistributedOptimizer::new(world, params.clone(), sgd(0.1))?.with_max_norm(0.1)?;
        let few = DistributedOptimizer::new(world, params[4..8].to_vec(), sgd(0.1))?;
        model.train(world, &plain, 0..1)?;
        settle(world);
        world.context(|context| {
            model.pass(context, 1)?;
            for (optimizer, messages) in [(&plain, 2), (&clipped, 4), (&few, 1)] {
                let before = world.debug_info().calls_made;
                optimizer.step(context)?;
                assert_eq!(world.debug_info().calls_made - before, messages);
            }
            Ok(())
        })
    });
}

/// Occupies the only thread of a worker until the board says "go on".
#[remote]
pub(super) fn occupy_thread(board: Board) {
    board.raise("thread taken");
    board.wait("go on");
}

#[test]
fn owners_make_their_steps_concurrently() {
    // Either owner makes its step while the other one is blocked.
    for (held, free) in [(1, 2), (2, 1)] {
        let cluster = Cluster::threads(3).options(|options| options.num_worker_threads = 1);
        let board = cluster.board();
        on_rank_0(cluster, move |world| {
            let model = Model::new(world, &[1, 2])?;
            let optimizer = DistributedOptimizer::new(world, model.params()?, sgd(0.1))?;
            let free = &model.0[free as usize - 1];
            world.context(|context| {
                model.pass(context, 0)?;
                let holds = world.outside_call(|| world.rpc_async(held, occupy_thread, (board.clone(),)))?;
                board.wait("thread taken");
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let versions = || free.rpc_sync(Stage::versions, ()).unwrap();
                        wait_until(
                            PATIENCE,
                            || versions() == [1, 1],
                            || "the step waits for the other owner",
                        );
                        board.raise("go on");
                    });
                    optimizer.step(context)
                })?;
                holds.wait()
            })?;
            assert_eq!(model.versions()?, [1; 4]);
            Ok(())
        });
    }
}
