//! The shapes that a model over several workers can have.

use candle_core::Var;
use telegrad_testkit::on_threads_and_processes;

use super::*;

on_threads_and_processes! { 4 =>
    a_chain_over_four_workers
    a_chain_of_nested_calls
    a_worker_visited_twice
}

/// Layers on these workers, and copies of their weights here.
fn layers(world: &World, on: &[u32]) -> (Vec<RRef<Layer>>, Vec<Var>) {
    let layers: Vec<_> = on
        .iter()
        .enumerate()
        .map(|(nth, rank)| world.remote(*rank, Layer::new, (3, nth as u64)).unwrap())
        .collect();
    let weights = layers
        .iter()
        .map(|layer| Var::from_tensor(&layer.rpc_sync(Layer::weight, ()).unwrap()).unwrap());
    let weights = weights.collect();
    (layers, weights)
}

fn check(layers: &[RRef<Layer>], weights: &[Var], loss_here: &Tensor) {
    let expected = loss_here.backward().unwrap();
    for (layer, weight) in layers.iter().zip(weights) {
        let found = layer.rpc_sync(Layer::gradient, ()).unwrap();
        assert_close(
            &found.expect("no gradient"),
            expected.get(weight).expect("no expectation"),
        );
    }
}

fn a_chain_over_four_workers(cluster: Cluster) {
    with_autograd(cluster).run(|world| {
        if world.rank() == 0 {
            let (layers, weights) = layers(&world, &[1, 2, 3]);
            let x = numbers((2, 3), 9).unwrap();
            world
                .context(|context| {
                    let mut y = x.clone();
                    for layer in &layers {
                        y = layer.rpc_sync(Layer::forward, (y,))?;
                    }
                    context.backward(&[y.sqr()?.sum_all()?])?;
                    let mut here = x.clone();
                    for weight in &weights {
                        here = apply(&here, weight)?;
                    }
                    check(&layers, &weights, &here.sqr()?.sum_all()?);
                    Ok(())
                })
                .unwrap();
            assert_nothing_left(&world);
        }
        world.barrier().unwrap();
    });
}

fn a_chain_of_nested_calls(cluster: Cluster) {
    with_autograd(cluster).run(|world| {
        if world.rank() == 0 {
            let (layers, weights) = layers(&world, &[1, 2, 3]);
            let x = numbers((2, 3), 9).unwrap();
            world
                .context(|context| {
                    let (first, rest) = layers.split_first().unwrap();
                    let y = first.rpc_sync(Layer::forward_through, (x.clone(), rest.to_vec()))?;
                    context.backward(&[y.sqr()?.sum_all()?])?;
                    let mut here = x.clone();
                    for weight in &weights {
                        here = apply(&here, weight)?;
                    }
                    check(&layers, &weights, &here.sqr()?.sum_all()?);
                    Ok(())
                })
                .unwrap();
            assert_nothing_left(&world);
        }
        world.barrier().unwrap();
    });
}

fn a_worker_visited_twice(cluster: Cluster) {
    with_autograd(cluster).run(|world| {
        if world.rank() == 0 {
            let (layers, weights) = layers(&world, &[1, 2, 1, 2, 0]);
            let x = numbers((2, 3), 9).unwrap();
            world
                .context(|context| {
                    let mut y = x.clone();
                    for layer in &layers {
                        y = layer.rpc_sync(Layer::forward, (y,))?;
                    }
                    context.backward(&[y.sqr()?.sum_all()?])?;
                    let mut here = x.clone();
                    for weight in &weights {
                        here = apply(&here, weight)?;
                    }
                    check(&layers, &weights, &here.sqr()?.sum_all()?);
                    Ok(())
                })
                .unwrap();
            assert_nothing_left(&world);
        }
        world.barrier().unwrap();
    });
}
