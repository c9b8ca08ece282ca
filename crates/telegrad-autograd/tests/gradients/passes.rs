//! Several passes in one context, and several losses in one pass.

use super::*;

const RETAIN: Backward = Backward {
    mode: Mode::Smart,
    retain_graph: true,
    timeout: None,
};

fn two(world: &World) -> (Vec<RRef<Layer>>, Vec<Var>, Tensor) {
    let (layers, weights) = layers(world, &[1, 2]);
    (layers, weights, numbers((2, 3), 9).unwrap())
}

#[test]
fn the_losses_of_one_pass_add_up() {
    on_rank_0(Cluster::threads(3), |world, _| {
        let (layers, weights, x) = two(&world);
        let through = |context: &Context| {
            let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
            let z = layers[1].rpc_sync(Layer::forward, (y.clone(),))?;
            // One of them twice.
            context.backward(&[loss(&y)?, loss(&z)?, loss(&z)?])?;
            let y = apply(&x, &weights[0])?;
            let z = loss(&apply(&y, &weights[1])?)?;
            check(&layers, &weights, &((loss(&y)? + &z)? + &z)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[test]
fn a_pass_starts_from_one_tensor_or_from_any_number() {
    on_rank_0(Cluster::threads(3), |world, _| {
        let (layers, weights, x) = two(&world);
        let through = |context: &Context| {
            let y = loss(&layers[0].rpc_sync(Layer::forward, (x.clone(),))?)?;
            let several = vec![y.clone(), y.clone()];
            context.backward_with(&y, &RETAIN)?;
            context.backward_with(&several, &RETAIN)?;
            context.backward_with(&several[..], &RETAIN)?;
            context.backward_with(std::slice::from_ref(&y), &RETAIN)?;
            context.backward_with(&[(&y * 1.0)?], &RETAIN)?;
            context.backward(&y)?;
            let once = loss(&apply(&x, &weights[0])?)?;
            check(&layers[..1], &weights[..1], &(once * 8.0)?);
            let error = context.backward(&[]).unwrap_err();
            assert_eq!(autograd_error(&error), &AutogradError::NoRoots);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[test]
fn passes_of_one_context_add_up() {
    on_rank_0(Cluster::threads(3), |world, _| {
        let (layers, weights, x) = two(&world);
        let through = |context: &Context| {
            let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
            let z = layers[1].rpc_sync(Layer::forward, (y.clone(),))?;
            context.backward_with(&[loss(&y)?], &RETAIN)?;
            context.backward_with(&[loss(&z)?], &RETAIN)?;
            context.backward(&[loss(&z)?])?;
            let y = apply(&x, &weights[0])?;
            let z = loss(&apply(&y, &weights[1])?)?;
            check(&layers, &weights, &((loss(&y)? + &z)? + &z)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[test]
fn passes_over_separate_graphs_of_one_context_need_not_keep_them() {
    on_rank_0(Cluster::threads(3), |world, _| {
        let (layers, weights, x) = two(&world);
        let through = |context: &Context| {
            for _ in 0..3 {
                let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
                let z = layers[1].rpc_sync(Layer::forward, (y,))?;
                context.backward(&[loss(&z)?])?;
            }
            let z = loss(&apply(&apply(&x, &weights[0])?, &weights[1])?)?;
            check(&layers, &weights, &(z * 3.0)?);
            // What a pass has gone through is freed, and passes that are over are forgotten.
            for rank in 0..3 {
                let info = world.rpc_sync(rank, info, ())?;
                assert_eq!((info.sent, info.passes), (0, 1), "on worker {rank}");
            }
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[test]
fn a_second_pass_over_what_was_not_kept_is_an_error_that_says_so() {
    on_rank_0(Cluster::threads(3), |world, _| {
        let (layers, weights, x) = two(&world);
        let through = |context: &Context| {
            let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
            let z = layers[1].rpc_sync(Layer::forward, (y,))?;
            context.backward(&[loss(&z)?])?;
            let error = context.backward(&[loss(&z)?]).unwrap_err();
            let freed = AutogradError::Freed.to_string();
            assert!(freed.contains("retain_graph"), "{freed}");
            assert!(error.to_string().contains(&freed), "{error}");
            assert!(error.to_string().contains("`w2`"), "{error}");
            Ok(())
        };
        world.context(through).unwrap();
        // Another context is not concerned.
        world
            .context(|context| {
                let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
                context.backward(&[loss(&y)?])?;
                check(&layers, &weights, &loss(&apply(&x, &weights[0])?)?);
                Ok(())
            })
            .unwrap();
    });
}

#[test]
fn a_pass_that_needs_no_other_worker() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
        let found = world.context(|context| {
            assert!(context.gradients()?.is_empty());
            context.backward(&[loss(&weight.tensor())?])?;
            let gradients = context.gradients()?;
            assert_eq!(gradients.len(), 1);
            gradients.get(&weight)
        });
        assert_close(&found.unwrap().unwrap(), &(weight.value() * 2.0).unwrap());
    });
}
