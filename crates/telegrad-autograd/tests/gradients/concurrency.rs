//! Concurrent contexts, passes and calls.

use super::operations::{Effect, special};
use super::*;

#[test]
fn eight_contexts_over_the_same_parameters_keep_their_gradients_apart() {
    on_rank_0(Cluster::threads(4), |world, _| {
        let (layers, weights) = layers(&world, &[1, 2, 3]);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (world, layers, weights) = (&world, &layers, &weights);
                scope.spawn(move || {
                    for round in 0..5 {
                        let x = numbers((2, 3), 100 * thread + round).unwrap();
                        let through = |context: &Context| {
                            let mut y = x.clone();
                            for layer in layers {
                                y = layer.rpc_sync(Layer::forward, (y,))?;
                            }
                            context.backward(&[loss(&y)?])?;
                            check(layers, weights, &loss(&apply_all(&x, weights)?)?);
                            Ok(())
                        };
                        world.context(through).unwrap();
                    }
                });
            }
        });
    });
}

#[test]
fn concurrent_passes_of_one_context_add_up() {
    on_rank_0(Cluster::threads(3), |world, _| {
        let (layers, weights) = layers(&world, &[1, 2]);
        let x = numbers((2, 3), 9).unwrap();
        let through = |context: &Context| {
            let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
            let z = layers[1].rpc_sync(Layer::forward, (y,))?;
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| context.backward_with(&[loss(&z).unwrap()], &RETAIN).unwrap());
                }
            });
            let z = apply_all(&x, &weights)?;
            check(&layers, &weights, &(loss(&z)? * 8.0)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[test]
fn calls_and_passes_of_one_context_run_concurrently() {
    on_rank_0(Cluster::threads(3), |world, board| {
        let (layers, weights) = layers(&world, &[1, 2]);
        let x = numbers((2, 3), 9).unwrap();
        let through = |context: &Context| {
            let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
            std::thread::scope(|scope| {
                let caller = scope.spawn(|| {
                    context.enter(|| -> Result<()> {
                        while board.count("enough") == 0 {
                            let unused = layers[1].rpc_sync(Layer::forward, (y.clone(),))?;
                            layers[0].rpc_sync(Layer::forward, (unused,))?;
                            board.raise("called");
                        }
                        Ok(())
                    })
                });
                for pass in 1..=20 {
                    board.wait_for("called", pass);
                    let z = layers[1].rpc_sync(Layer::forward, (y.clone(),))?;
                    context.backward_with(&[loss(&z)?], &RETAIN)?;
                }
                board.raise("enough");
                caller.join().unwrap()
            })?;
            let z = apply_all(&x, &weights)?;
            check(&layers, &weights, &(loss(&z)? * 20.0)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[test]
fn the_end_of_a_context_fails_a_running_pass() {
    on_rank_0(Cluster::threads(3), |world, board| {
        let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
        let through = |_: &Context| {
            let there = world.rpc_async(2, learn_slowly, (weight.tensor(), board.clone()))?;
            board.wait("in backward");
            Ok(there)
        };
        let there = world.context(through).unwrap();
        assert_nothing_left(&world);
        board.raise("go on");
        let error = there.wait().unwrap_err();
        assert!(error.to_string().contains("has ended"), "{error}");
        assert_nothing_left(&world);
    });
}

#[remote]
fn learn_slowly(x: Tensor, board: Board) -> Result<()> {
    let y = World::current()?.rpc_sync(1, special, ((x * 2.0)?, Effect::Wait(board)))?;
    Context::<Candle>::current()?.backward(&[loss(&y)?])
}

/// A waiting call or pass lends its thread to others.
#[test]
fn a_single_thread_on_each_worker_is_enough() {
    let cluster = Cluster::threads(3).options(|options| options.num_worker_threads = 1);
    on_rank_0(cluster, |world, _| {
        // More visits than there are threads.
        let (layers, weights) = layers(&world, &[1, 2, 1, 2, 0, 1, 2, 0, 1]);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (world, layers, weights) = (&world, &layers, &weights);
                scope.spawn(move || {
                    let x = numbers((2, 3), seed).unwrap();
                    let through = |context: &Context| {
                        let (first, rest) = layers.split_first().expect("layers");
                        let arguments = (x.clone(), rest.to_vec());
                        let y = first.rpc_sync(Layer::forward_through, arguments)?;
                        // An unused result, so that the pass needs discovery.
                        first.rpc_sync(Layer::forward, (y.clone(),))?;
                        context.backward(&[loss(&y)?])?;
                        check(layers, weights, &loss(&apply_all(&x, weights)?)?);
                        Ok(())
                    };
                    world.context(through).unwrap();
                });
            }
        });
    });
}

#[remote(inline)]
fn pass_inline(x: Tensor) -> Result<()> {
    Context::<Candle>::current()?.backward(&[loss(&x)?])
}

/// An inline function cannot wait for the answers of a pass.
#[test]
fn a_pass_in_an_inline_function_is_an_error_and_does_not_hang() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
        let through = |_: &Context| world.rpc_sync(1, pass_inline, (weight.tensor(),));
        if let Err(error) = world.context(through) {
            assert!(error.to_string().contains("inline"), "{error}");
        }
    });
}
