//! What a step costs.

use std::time::Duration;

use telegrad_testkit::{Board, on_threads_and_processes, wait_until};

use super::*;

on_threads_and_processes! { 3 =>
    a_step_is_one_message_to_each_other_owner_and_with_clipping_two
}

/// What happens at all has happened by then, on a machine that is busy with other things.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until nothing is to be said about references.
fn settle(world: &World) {
    let settled = || {
        let info = world.debug_info();
        info.references_unconfirmed + info.references_given + info.references_untold == 0
    };
    wait_until(PATIENCE, settled, || world.debug_info());
}

fn a_step_is_one_message_to_each_other_owner_and_with_clipping_two(cluster: Cluster) {
    on_rank_0(cluster, |world| {
        // Two stages on each worker: what counts is the owners, not the parameters.
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

/// Takes the only thread of a worker until it is told to go on.
#[remote]
pub(super) fn take_the_thread(board: Board) {
    board.raise("thread taken");
    board.wait("go on");
}

#[test]
fn owners_make_their_steps_at_the_same_time() {
    // Whichever of the two is asked first: the other one makes its step meanwhile.
    for (held, free) in [(1, 2), (2, 1)] {
        let cluster = Cluster::threads(3).options(|options| options.num_worker_threads = 1);
        let board = cluster.board();
        on_rank_0(cluster, move |world| {
            let model = Model::new(world, &[1, 2])?;
            let optimizer = DistributedOptimizer::new(world, model.params()?, sgd(0.1))?;
            let free = &model.0[free as usize - 1];
            world.context(|context| {
                model.pass(context, 0)?;
                let holds = world.apart(|| world.rpc_async(held, take_the_thread, (board.clone(),)))?;
                board.wait("thread taken");
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let versions = || free.rpc_sync(Stage::versions, ()).unwrap();
                        wait_until(PATIENCE, || versions() == [1, 1], || "it waits for the other");
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
