//! Graphs of many operations in a row, which candle walks and frees by recursion.

use super::*;

/// More than candle itself has room for on a thread.
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
fn many_and_an_error(x: Tensor, operations: usize) -> Result<Tensor> {
    many(x, operations)?;
    Err(Error::other("too much work"))
}

fn weight() -> Param {
    Param::new(&Tensor::new(&[1f32, 2.0], &Device::Cpu).unwrap()).unwrap()
}

#[test]
fn thousands_of_operations_in_a_row_on_every_worker() {
    on_rank_0(Cluster::threads(3), |world, _| {
        let weight = weight();
        let through = |context: &Context| {
            let y = many((weight.tensor() * 3.0)?, OPERATIONS)?;
            let y = world.rpc_sync(1, many, (y, OPERATIONS))?;
            let y = world.rpc_sync(2, many, (y, OPERATIONS))?;
            // One that is not used.
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

/// What only autograd holds on to may be longer than what candle can free on a thread.
#[test]
fn what_is_kept_of_a_call_is_freed_however_long_it_is() {
    const MORE: usize = 5 * OPERATIONS;
    on_rank_0(Cluster::threads(2), |world, _| {
        let weight = weight();
        // With a pass, without one, and with an error.
        for way in 0..3 {
            let through = |context: &Context| {
                let y = world.rpc_sync(1, many, (weight.tensor(), MORE))?;
                match way {
                    0 => context.backward(&[y.sum_all()?])?,
                    1 => {}
                    _ => {
                        let y = many((y * 1.0)?, 1)?;
                        world.rpc_sync(1, many_and_an_error, (y, OPERATIONS)).unwrap_err();
                    }
                }
                Ok(())
            };
            world.context(through).unwrap();
        }
    });
}
