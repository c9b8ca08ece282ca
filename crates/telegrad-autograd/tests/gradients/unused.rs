//! Results that the loss does not depend on.

use super::*;

const FAST: Backward = Backward {
    mode: Mode::Fast,
    retain_graph: false,
    timeout: None,
};

#[remote]
fn refuse(_x: Tensor) -> Result<Tensor> {
    Err(Error::other("not today"))
}

#[remote]
fn refuse_after(layer: RRef<Layer>, x: Tensor) -> Result<Tensor> {
    layer.rpc_sync(Layer::forward, (x,))?;
    Err(Error::other("not today"))
}

#[test]
fn an_unused_result_is_not_awaited() {
    on_rank_0(Cluster::threads(4), |world, _| {
        let (layers, weights) = layers(&world, &[1, 2, 3]);
        let x = numbers((2, 3), 9).unwrap();
        let through = |context: &Context| {
            let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
            // Shares its input with a used result.
            let _unused = layers[1].rpc_sync(Layer::forward, (y.clone(),))?;
            let z = layers[2].rpc_sync(Layer::forward, (y,))?;
            // A second result of the same worker.
            let _unused = layers[2].rpc_sync(Layer::forward, (z.clone(),))?;
            context.backward(&[loss(&z)?])?;
            let z = apply(&apply(&x, &weights[0])?, &weights[2])?;
            check(&layers, &weights, &loss(&z)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[test]
fn an_unused_result_in_fast_mode_is_an_error_that_names_worker_and_function() {
    on_rank_0(Cluster::threads(4), |world, _| {
        let (layers, _) = layers(&world, &[1, 2, 3]);
        let x = numbers((2, 3), 9).unwrap();
        let through = |context: &Context| {
            let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
            let _unused = layers[1].rpc_sync(Layer::forward, (y.clone(),))?;
            let z = layers[2].rpc_sync(Layer::forward, (y,))?;
            let error = context.backward_with(&[loss(&z)?], &FAST).unwrap_err();
            let AutogradError::Unused(unused) = autograd_error(&error) else {
                panic!("{error}")
            };
            let request =
                "what worker `w0` sent to worker `w2` in a call of `gradients::Layer::forward`".to_owned();
            assert_eq!(unused, &[request]);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[test]
fn a_pass_in_fast_mode_succeeds_when_every_result_is_used() {
    on_rank_0(Cluster::threads(4), |world, _| {
        let (layers, weights) = layers(&world, &[1, 2, 3]);
        let x = numbers((2, 3), 9).unwrap();
        let through = |context: &Context| {
            let mut y = x.clone();
            for layer in &layers {
                y = (layer.rpc_sync(Layer::forward, (y.clone(),))? + y)?;
            }
            context.backward_with(&[loss(&y)?], &FAST)?;
            let mut here = x.clone();
            for weight in &weights {
                here = (apply(&here, weight)? + here)?;
            }
            check(&layers, &weights, &loss(&here)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[test]
fn the_request_of_a_failed_call_is_not_awaited_in_any_mode() {
    on_rank_0(Cluster::threads(4), |world, _| {
        let (layers, weights) = layers(&world, &[1, 2, 3]);
        let x = numbers((2, 3), 9).unwrap();
        let through = |context: &Context| {
            let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
            for _ in 0..3 {
                let error = world.rpc_sync(2, refuse, (y.clone(),)).unwrap_err();
                assert!(error.to_string().contains("not today"), "{error}");
            }
            assert_eq!(world.autograd_info()?.sent, 0);
            let z = layers[1].rpc_sync(Layer::forward, (y,))?;
            context.backward_with(&[loss(&z)?], &FAST)?;
            let z = apply(&apply(&x, &weights[0])?, &weights[1])?;
            check(&layers, &weights, &loss(&z)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[test]
fn calls_made_by_a_failed_call_are_not_awaited() {
    on_rank_0(Cluster::threads(4), |world, _| {
        let (layers, weights) = layers(&world, &[1, 2, 3]);
        let x = numbers((2, 3), 9).unwrap();
        let through = |context: &Context| {
            let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
            let failing = (layers[1].clone(), y.clone());
            world.rpc_sync(3, refuse_after, failing).unwrap_err();
            let z = layers[1].rpc_sync(Layer::forward, (y,))?;
            context.backward(&[loss(&z)?])?;
            let z = apply(&apply(&x, &weights[0])?, &weights[1])?;
            check(&layers, &weights, &loss(&z)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[test]
fn a_cancelled_call_is_not_awaited() {
    on_rank_0(Cluster::threads(4), |world, board| {
        let (layers, weights) = layers(&world, &[1, 2]);
        let x = numbers((2, 3), 9).unwrap();
        let through = |context: &Context| {
            let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
            let stuck = world.rpc_async(3, wait_for, (y.clone(), board.clone()))?;
            board.wait("waiting");
            drop(stuck);
            assert_eq!(world.autograd_info()?.sent, 0);
            let z = layers[1].rpc_sync(Layer::forward, (y,))?;
            context.backward_with(&[loss(&z)?], &FAST)?;
            let z = apply(&apply(&x, &weights[0])?, &weights[1])?;
            check(&layers, &weights, &loss(&z)?);
            board.raise("go on");
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[remote]
fn wait_for(x: Tensor, board: Board) -> Tensor {
    board.raise("waiting");
    board.wait("go on");
    x
}
