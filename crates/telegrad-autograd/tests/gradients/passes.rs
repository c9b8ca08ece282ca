//! Several passes in one context, and several losses in one pass.

use super::*;

/// Runs the body in a context, with layers on ranks 1 and 2, their weights and an input.
fn with_two_layers(
    body: impl Fn(&Context, &[RRef<Layer>], &[Var], Tensor) -> Result<()> + Send + Sync + 'static,
) {
    on_rank_0(Cluster::threads(3), move |world, _| {
        let (layers, weights) = layers(&world, &[1, 2]);
        let x = numbers((2, 3), 9).unwrap();
        let through = |context: &Context| body(context, &layers, &weights, x.clone());
        world.context(through).unwrap();
    });
}

/// Calls both layers; returns the output of each.
fn forward_both(layers: &[RRef<Layer>], x: &Tensor) -> Result<(Tensor, Tensor)> {
    let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
    let z = layers[1].rpc_sync(Layer::forward, (y.clone(),))?;
    Ok((y, z))
}

/// Checks the gradients of the first layer's loss plus twice the second's.
#[track_caller]
fn check_once_and_twice(layers: &[RRef<Layer>], weights: &[Var], x: &Tensor) -> Result<()> {
    let y = apply(x, &weights[0])?;
    let z = loss(&apply(&y, &weights[1])?)?;
    check(layers, weights, &((loss(&y)? + &z)? + &z)?);
    Ok(())
}

#[test]
fn the_losses_of_one_pass_add_up() {
    with_two_layers(|context, layers, weights, x| {
        let (y, z) = forward_both(layers, &x)?;
        context.backward(&[loss(&y)?, loss(&z)?, loss(&z)?])?;
        check_once_and_twice(layers, weights, &x)
    });
}

#[test]
fn a_pass_starts_from_one_tensor_or_several() {
    with_two_layers(|context, layers, weights, x| {
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
    });
}

#[test]
fn passes_of_one_context_add_up() {
    with_two_layers(|context, layers, weights, x| {
        let (y, z) = forward_both(layers, &x)?;
        context.backward_with(&[loss(&y)?], &RETAIN)?;
        context.backward_with(&[loss(&z)?], &RETAIN)?;
        context.backward(&[loss(&z)?])?;
        check_once_and_twice(layers, weights, &x)
    });
}

#[test]
fn passes_over_separate_graphs_need_not_retain_them() {
    with_two_layers(|context, layers, weights, x| {
        for _ in 0..3 {
            let (_, z) = forward_both(layers, &x)?;
            context.backward(&[loss(&z)?])?;
        }
        let z = loss(&apply_all(&x, weights)?)?;
        check(layers, weights, &(z * 3.0)?);
        // Traversed graphs are freed, and ended passes are forgotten.
        for rank in 0..3 {
            let info = context.world().rpc_sync(rank, info, ())?;
            assert_eq!((info.sent, info.passes), (0, 1), "on worker {rank}");
        }
        Ok(())
    });
}

#[test]
fn a_second_pass_over_a_freed_graph_is_an_error() {
    on_rank_0(Cluster::threads(3), |world, _| {
        let (layers, weights) = layers(&world, &[1, 2]);
        let x = numbers((2, 3), 9).unwrap();
        let through = |context: &Context| {
            let (_, z) = forward_both(&layers, &x)?;
            context.backward(&[loss(&z)?])?;
            let error = context.backward(&[loss(&z)?]).unwrap_err();
            let freed = AutogradError::Freed.to_string();
            assert!(freed.contains("retain_graph"), "{freed}");
            assert!(error.to_string().contains(&freed), "{error}");
            assert!(error.to_string().contains("`w2`"), "{error}");
            Ok(())
        };
        world.context(through).unwrap();
        assert_new_context_works(&world, &layers, &weights, &x);
    });
}

#[test]
fn a_pass_on_one_worker_finds_its_gradients() {
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
