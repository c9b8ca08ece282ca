//! Topologies of models over several workers.

use telegrad_testkit::on_threads_and_processes;

use super::*;

on_threads_and_processes! { 4 =>
    a_chain_over_four_workers
    a_chain_of_nested_calls
    a_worker_visited_twice
    a_parameter_that_several_calls_share
    a_result_that_is_used_twice
    a_pass_that_starts_on_another_worker
}

fn a_chain_over_four_workers(cluster: Cluster) {
    chain(cluster, &[1, 2, 3], one_by_one);
}

fn a_chain_of_nested_calls(cluster: Cluster) {
    chain(cluster, &[1, 2, 3], |layers, x| {
        let (first, rest) = layers.split_first().unwrap();
        first.rpc_sync(Layer::forward_through, (x, rest.to_vec()))
    });
}

fn a_worker_visited_twice(cluster: Cluster) {
    chain(cluster, &[1, 2, 1, 2, 0], one_by_one);
}

/// Calls each layer from this worker.
fn one_by_one(layers: &[RRef<Layer>], x: Tensor) -> Result<Tensor> {
    layers
        .iter()
        .try_fold(x, |x, layer| layer.rpc_sync(Layer::forward, (x,)))
}

/// Checks a pass through layers on these workers, one after the other.
fn chain(cluster: Cluster, on: &'static [u32], forward: fn(&[RRef<Layer>], Tensor) -> Result<Tensor>) {
    on_rank_0(cluster, move |world, _| {
        let (layers, weights) = layers(&world, on);
        let x = numbers((2, 3), 9).unwrap();
        let through = |context: &Context| {
            context.backward(&[loss(&forward(&layers, x.clone())?)?])?;
            check(&layers, &weights, &loss(&apply_all(&x, &weights)?)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

/// Two calls come from this worker, and one from another.
fn a_parameter_that_several_calls_share(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let (layers, weights) = layers(&world, &[1, 2]);
        let (a, b) = (numbers((2, 3), 1).unwrap(), numbers((2, 3), 2).unwrap());
        let through = |context: &Context| {
            let shared = &layers[0];
            let y = shared.rpc_sync(Layer::forward, (a.clone(),))?;
            let z = shared.rpc_sync(Layer::forward, (b.clone(),))?;
            let nested = (y.clone(), vec![shared.clone()]);
            let w = layers[1].rpc_sync(Layer::forward_through, nested)?;
            context.backward(&[loss(&((y + z)? + w)?)?])?;
            let y = apply(&a, &weights[0])?;
            let z = apply(&b, &weights[0])?;
            let w = apply(&apply(&y, &weights[1])?, &weights[0])?;
            check(&layers, &weights, &loss(&((y + z)? + w)?)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

fn a_result_that_is_used_twice(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let (layers, weights) = layers(&world, &[1, 2, 3]);
        let x = numbers((2, 3), 9).unwrap();
        let through = |context: &Context| {
            let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
            let left = layers[1].rpc_async(Layer::forward, (y.clone(),))?;
            let right = layers[2].rpc_async(Layer::forward, (y.clone(),))?;
            let all = ((left.wait()? * right.wait()?)? + y)?;
            context.backward(&[loss(&all)?])?;
            let y = apply(&x, &weights[0])?;
            let product = (apply(&y, &weights[1])? * apply(&y, &weights[2])?)?;
            check(&layers, &weights, &loss(&(product + y)?)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

/// Runs a pass on a worker other than the opener.
#[remote]
fn learn(layers: Vec<RRef<Layer>>, x: Tensor) -> Result<()> {
    let mut y = x;
    for layer in &layers {
        y = layer.rpc_sync(Layer::forward, (y,))?;
    }
    Context::<Candle>::current()?.backward(&[loss(&y)?])
}

fn a_pass_that_starts_on_another_worker(cluster: Cluster) {
    on_rank_0(cluster, |world, _| {
        let (layers, weights) = layers(&world, &[1, 0, 2, 3]);
        let x = numbers((2, 3), 9).unwrap();
        let through = |_: &Context| {
            let first = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
            world.rpc_sync(3, learn, (layers[1..].to_vec(), first))?;
            check(&layers, &weights, &loss(&apply_all(&x, &weights)?)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}
