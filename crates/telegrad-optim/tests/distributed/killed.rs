//! Killed owners.

use telegrad_testkit::{on_cluster, wait_until};

use super::messages::{PATIENCE, occupy_thread};
use super::*;

on_cluster! { unix: Cluster::processes(3) =>
    an_owner_killed_in_a_step_is_named_and_the_others_continue
}

on_cluster! { tcp: Cluster::processes(3).tcp() =>
    an_owner_killed_in_a_step_is_named_and_the_others_continue
}

fn an_owner_killed_in_a_step_is_named_and_the_others_continue(cluster: Cluster) {
    let cluster = cluster.options(|options| options.num_worker_threads = 1);
    let board = cluster.board();
    with_autograd(cluster).may_die(2).run(move |world| {
        if world.rank() != 0 {
            board.wait("body ended");
            return;
        }
        let body = || -> Result<()> {
            let mut model = Model::new(&world, &[0, 2, 1])?;
            let mut params = model.params()?;
            let optimizer = DistributedOptimizer::new(&world, params.clone(), sgd(0.1))?;
            model.train(&world, &optimizer, 0..1)?;
            world.context(|context| {
                model.pass(context, 1)?;
                // The step on worker 2 must not complete before the kill.
                let thread = world.outside_call(|| world.rpc_async(2, occupy_thread, (board.clone(),)))?;
                board.wait("thread taken");
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let versions = || model.0[2].rpc_sync(Stage::versions, ()).unwrap();
                        wait_until(PATIENCE, || versions() == [2, 2], || "worker 1 has made no step");
                        board.kill(2);
                    });
                    // The loss of the worker ends the step, long before the time limit of calls.
                    let failed = owners_of(optimizer.step(context));
                    let [(worker, error)] = &failed[..] else {
                        panic!("{failed:?}")
                    };
                    assert_eq!(worker, "w2");
                    assert!(error.contains("worker `w2`"), "{error}");
                    assert!(!error.contains("limit"), "{error}");
                });
                thread.wait().unwrap_err();
                Ok(())
            })?;
            assert_eq!(optimizer.steps(), 1);
            // Training continues without the worker.
            let failed = owners_of(DistributedOptimizer::new(&world, params.clone(), sgd(0.1)));
            assert_eq!(failed.len(), 1);
            assert!(failed[0].1.contains("worker `w2`"), "{failed:?}");
            model.0.remove(1);
            params.drain(2..4);
            assert_eq!(model.versions()?, [2; 4]);
            let optimizer = DistributedOptimizer::new(&world, params, sgd(0.1))?;
            model.train(&world, &optimizer, 2..12)?;
            assert_eq!(model.versions()?, [12; 4]);
            Ok(())
        };
        body().unwrap();
        board.raise("body ended");
    });
}
