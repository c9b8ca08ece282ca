//! Workers and callbacks that take part in a context.

use super::*;

#[remote]
fn twice(x: Tensor) -> Result<Tensor> {
    Ok((x * 2.0)?)
}

/// S35
#[test]
fn a_worker_without_autograd_is_an_error_of_the_call() {
    let cluster = Cluster::threads(2).options(|options| {
        if options.rank == Some(0) {
            options.extension = Some(telegrad_autograd::layer::<Candle>);
        }
    });
    cluster.run(|world| {
        if world.rank() == 0 {
            let x = Param::new(&numbers((2, 2), 1).unwrap()).unwrap();
            let called = world.context(|_| world.rpc_sync(1, twice, (x.tensor(),)));
            let error = called.unwrap_err().to_string();
            assert!(error.contains("is not part of context-"), "{error}");
            assert!(error.contains("its world has no autograd"), "{error}");
            // Without a context the call works.
            world.rpc_sync(1, twice, (x.tensor(),)).unwrap();
        }
        world.barrier().unwrap();
    });
}

/// S34
#[test]
fn calls_of_a_callback_belong_to_the_context_in_which_it_was_attached() {
    with_autograd(Cluster::threads(2)).run(|world| {
        if world.rank() == 0 {
            let x = Param::new(&numbers((2, 2), 1).unwrap()).unwrap();
            world
                .context(|context| {
                    let other = world.clone();
                    let first = world.rpc_async(1, twice, (x.tensor(),))?;
                    let second = first.then(move |y| other.rpc_sync(1, twice, (y?,)));
                    context.backward(&[second.wait()?.sum_all()?])?;
                    let found = context.gradients()?.get(&x)?.expect("no gradient");
                    assert_close(&found, &(x.value().ones_like()? * 4.0)?);
                    Ok(())
                })
                .unwrap();
            assert_nothing_left(&world);
        }
        world.barrier().unwrap();
    });
}
