//! An error on any worker fails the pass on all of them, with its cause.

use telegrad_testkit::on_threads_and_processes;

use super::operations::{Effect, special, special_through};
use super::*;

/// The number of gradients on the worker where this runs.
#[remote]
fn gradients_here() -> Result<usize> {
    Ok(Context::<Candle>::current()?.gradients()?.len())
}

on_threads_and_processes! { 4 =>
    an_error_in_an_operation_ends_the_pass_everywhere
    a_panic_in_an_operation_ends_the_pass_everywhere
}

fn an_error_in_an_operation_ends_the_pass_everywhere(cluster: Cluster) {
    ends_everywhere(cluster, Effect::Fail, "this cannot be differentiated");
}

fn a_panic_in_an_operation_ends_the_pass_everywhere(cluster: Cluster) {
    ends_everywhere(cluster, Effect::Panic, "this must not be differentiated");
}

fn ends_everywhere(cluster: Cluster, effect: Effect, text: &'static str) {
    on_rank_0(cluster, move |world, _| {
        let (layers, weights) = layers(&world, &[1]);
        let x = numbers((2, 3), 9).unwrap();
        let through = |context: &Context| {
            let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
            let z = world.rpc_sync(1, special_through, (y, effect.clone(), vec![2, 3]))?;
            let error = context.backward(&[loss(&z)?]).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
            // The error names the worker.
            assert!(error.to_string().contains("`w3`"), "{error}");
            let error = context.gradients().map(drop).unwrap_err();
            let AutogradError::Failed { cause, .. } = autograd_error(&error) else {
                panic!("{error}")
            };
            assert!(cause.contains(text), "{cause}");
            // No later pass or call works in the failed context.
            let error = context.backward(&[loss(&z)?]).unwrap_err();
            assert!(
                matches!(autograd_error(&error), AutogradError::Failed { .. }),
                "{error}"
            );
            let error = world.rpc_sync(1, gradients_here, ()).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
            Err::<(), _>(Error::other("the closure's own error"))
        };
        let error = world.context(through).unwrap_err();
        assert_eq!(error.to_string(), "the closure's own error");
        assert_new_context_works(&world, &layers, &weights, &x);
    });
}

/// Before the opener ends the context: each worker's own state.
#[test]
fn a_failure_reaches_all_workers_of_the_context() {
    let cluster = with_autograd(Cluster::threads(4));
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 0 {
            let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
            let through = |context: &Context| {
                let workers = vec![2, 3, 1];
                let z = world.rpc_sync(1, special_through, (weight.tensor(), Effect::Fail, workers))?;
                board.raise("forward");
                board.wait_for("forward", 4);
                context.backward(&[loss(&z)?]).unwrap_err();
                board.wait_for("freed", 3);
                Ok(())
            };
            world.context(through).unwrap();
        } else {
            board.wait("forward");
            assert_eq!(world.autograd_info().unwrap().contexts, 1);
            assert!(world.autograd_info().unwrap().sent > 0);
            board.raise("forward");
            let freed = || {
                let info = world.autograd_info().unwrap();
                info.sent + info.received + info.passes == 0
            };
            wait_until(PATIENCE, freed, || format!("{:?}", world.autograd_info()));
            board.raise("freed");
        }
        world.barrier().unwrap();
        assert_eq!(world.autograd_info().unwrap(), AutogradInfo::default());
        world.barrier().unwrap();
    });
}

#[test]
fn a_panicking_operation_of_the_opener_leaves_no_state() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            world.context(|context| {
                let x = world.rpc_sync(1, special, (weight.tensor(), Effect::Fail))?;
                let z = super::operations::special(x, Effect::Panic)?;
                context.backward(&[loss(&z)?])
            })
        }));
        assert!(caught.is_err());
        assert_nothing_left(&world);
        let found = world.context(|context| {
            for _ in 0..3 {
                context.backward(&[loss(&weight.tensor())?])?;
            }
            // The pass that panicked has ended: later passes are forgotten in turn.
            assert_eq!(world.autograd_info()?.passes, 1);
            context.gradients()?.get(&weight)
        });
        assert_close(&found.unwrap().unwrap(), &(weight.value() * 6.0).unwrap());
    });
}
