//! Graphs of many operations in a row, which candle walks and frees by recursion.

use super::*;

/// More than candle can walk on a thread's default stack.
const OPERATIONS: usize = 20_000;

#[remote]
fn many(x: Tensor, operations: usize) -> Result<Tensor> {
    let mut y = x;
    for _ in 0..operations {
        y = y.affine(1.0, 0.001)?;
    }
    Ok(y)
}

#[remote]
fn refuse(_x: Tensor) -> Result<Tensor> {
    Err(Error::other("too much work"))
}

fn weight() -> Param {
    Param::new(&Tensor::new(&[1f32, 2.0], &Device::Cpu).unwrap()).unwrap()
}

#[test]
fn a_pass_walks_thousands_of_operations_on_every_worker() {
    on_rank_0(Cluster::threads(3), |world, _| {
        let weight = weight();
        let through = |context: &Context| {
            let y = many((weight.tensor() * 3.0)?, OPERATIONS)?;
            let y = world.rpc_sync(1, many, (y, OPERATIONS))?;
            let y = world.rpc_sync(2, many, (y, OPERATIONS))?;
            // An unused result.
            world.rpc_sync(2, many, (y.clone(), OPERATIONS))?;
            let y = many(y, OPERATIONS)?;
            context.backward(&[y.sum_all()?])?;
            let found = context.gradients()?.get(&weight)?.expect("no gradient");
            assert_eq!(found.to_vec1::<f32>()?, [3.0, 3.0]);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

/// More operations than candle can free on a thread's default stack; only autograd refers to them.
const MORE: usize = 10 * OPERATIONS;

#[test]
fn a_deep_graph_is_freed_after_a_pass() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let through = |context: &Context| {
            let y = world.rpc_sync(1, many, (weight().tensor(), MORE))?;
            context.backward(&[y.sum_all()?])
        };
        world.context(through).unwrap();
    });
}

#[test]
fn a_deep_graph_is_freed_without_a_pass() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let through = |_: &Context| world.rpc_sync(1, many, (weight().tensor(), MORE)).map(drop);
        world.context(through).unwrap();
    });
}

#[test]
fn a_deep_graph_sent_in_a_failed_call_is_freed() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let through = |_: &Context| {
            let x = many(weight().tensor(), MORE)?;
            world.rpc_sync(1, refuse, (x,)).unwrap_err();
            Ok(())
        };
        world.context(through).unwrap();
    });
}
