//! Parameters that change during passes.

use super::operations::{Effect, special};
use super::*;

#[remote]
fn product(a: Tensor, b: Tensor) -> Result<Tensor> {
    Ok((a * b)?)
}

fn param(seed: u64) -> Param {
    Param::named("weight", &numbers((2, 3), seed).unwrap()).unwrap()
}

#[test]
fn a_gradient_belongs_to_the_value_that_was_read() {
    on_rank_0(Cluster::threads(3), |world, _| {
        let (layers, weights) = layers(&world, &[1, 2]);
        let x = numbers((2, 3), 9).unwrap();
        let through = |context: &Context| {
            let y = layers[0].rpc_sync(Layer::forward, (x.clone(),))?;
            let y = layers[1].rpc_sync(Layer::forward, (y,))?;
            // Updates of other trainers, more than a parameter remembers without an open context.
            for seed in 0..100 {
                layers[0].rpc_sync(Layer::set, (numbers((3, 3), seed)?,))?;
            }
            context.backward(&[loss(&y)?])?;
            let here = apply_all(&x, &weights)?;
            check(&layers, &weights, &loss(&here)?);
            // The gradient is found after as many updates again.
            for seed in 0..100 {
                layers[0].rpc_sync(Layer::set, (numbers((3, 3), seed)?,))?;
            }
            check(&layers, &weights, &loss(&here)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[test]
fn the_gradients_of_all_values_that_were_read_add_up() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let weight = param(1);
        let through = |context: &Context| {
            let mut all = Vec::new();
            for seed in 0..3 {
                let w = weight.tensor();
                all.push(world.rpc_sync(1, product, (w.clone(), w))?);
                context.update(&weight, &numbers((2, 3), 10 + seed)?)?;
            }
            let all = Tensor::stack(&all, 0)?.sum_all()?;
            context.backward(&[all])?;
            let found = context.gradients()?.get(&weight)?.expect("no gradient");
            let read = [numbers((2, 3), 1)?, numbers((2, 3), 10)?, numbers((2, 3), 11)?];
            let expected = (Tensor::stack(&read, 0)?.sum(0)? * 2.0)?;
            assert_close(&found, &expected);
            Ok(())
        };
        world.context(through).unwrap();
        assert_eq!(weight.version(), 3);
    });
}

#[test]
fn a_parameter_replaced_during_a_pass_keeps_the_gradient_of_the_old_value() {
    on_rank_0(Cluster::threads(2), |world, board| {
        let weight = param(1);
        let through = |context: &Context| {
            let w = weight.tensor();
            let y = world.rpc_sync(1, product, (w.clone(), w))?;
            let y = world.rpc_sync(1, special, (y, Effect::Wait(board.clone())))?;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    board.wait("in backward");
                    for seed in 0..50 {
                        weight.set(&numbers((2, 3), seed).unwrap()).unwrap();
                    }
                    board.raise("go on");
                });
                context.backward(&[y.sum_all()?])
            })?;
            let found = context.gradients()?.get(&weight)?.expect("no gradient");
            assert_close(&found, &(numbers((2, 3), 1)? * 2.0)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

/// A variable of a candle model.
fn variable() -> (Var, Param) {
    let variable = Var::from_tensor(&numbers((2, 3), 1).unwrap()).unwrap();
    (variable.clone(), Param::from_var("old", variable))
}

#[test]
fn a_variable_of_a_candle_model_has_gradients() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let (variable, weight) = variable();
        for step in 1..4 {
            let before = weight.value().copy().unwrap();
            let through = |context: &Context| {
                let w = variable.as_tensor();
                let y = world.rpc_sync(1, product, (w.clone(), w.clone()))?;
                context.backward(&[y.sum_all()?])?;
                let gradients = context.gradients()?;
                let found = gradients.get(&weight)?.expect("no gradient");
                assert_close(&found, &(&before * 2.0)?);
                assert_close(gradients.of(w).expect("no gradient"), &found);
                // In its own context, after the pass, the variable can be changed.
                context.update(&weight, &(&before - (found * 0.1)?)?)
            };
            assert_eq!(world.context(through).unwrap(), step);
            assert_close(variable.as_tensor(), &(before * 0.8).unwrap());
        }
    });
}

#[test]
fn a_variable_is_not_changed_in_place_while_another_context_needs_it() {
    on_rank_0(Cluster::threads(2), |world, board| {
        let (variable, weight) = variable();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let through = |context: &Context| {
                    let w = variable.as_tensor();
                    let y = world.rpc_sync(1, product, (w.clone(), w.clone()))?;
                    board.post("reads it", &context.id().0.to_string());
                    board.wait("tried");
                    context.backward(&[y.sum_all()?])?;
                    Ok(context.gradients()?.get(&weight)?.expect("no gradient"))
                };
                let found = world.context(through);
                board.raise("over");
                found
            });
            let reader = board.read("reads it");
            let through = |context: &Context| {
                let value = numbers((2, 3), 2)?;
                let error = context.update(&weight, &value).unwrap_err();
                let AutogradError::InUse {
                    parameter,
                    context: by,
                } = autograd_error(&error)
                else {
                    panic!("{error}")
                };
                assert_eq!((parameter.as_str(), by.0.to_string()), ("old", reader));
                assert_eq!(weight.version(), 0);
                board.raise("tried");
                board.wait("over");
                context.update(&weight, &value)
            };
            world.context(through).unwrap();
            let found = other.join().unwrap().unwrap();
            assert_close(&found, &(numbers((2, 3), 1).unwrap() * 2.0).unwrap());
        });
        assert_close(variable.as_tensor(), &numbers((2, 3), 2).unwrap());
    });
}

#[test]
fn a_pass_over_a_changed_variable_is_an_error() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let (variable, weight) = variable();
        let through = |context: &Context| {
            let w = variable.as_tensor();
            let y = world.rpc_sync(1, product, (w.clone(), w.clone()))?;
            weight.set(&numbers((2, 3), 2)?)?;
            let error = context.backward(&[y.sum_all()?]).unwrap_err();
            let changed = AutogradError::Changed {
                parameter: "old".into(),
                context: context.id(),
            };
            // The gradient returned from worker 1, so this worker detects the change.
            assert!(error.to_string().contains(&changed.to_string()), "{error}");
            context.gradients().map(drop).unwrap_err();
            Ok(())
        };
        world.context(through).unwrap();
    });
}

/// A pass either fails, or its gradient is that of one value.
#[test]
fn concurrent_changes_of_a_variable_give_no_wrong_gradient() {
    on_rank_0(Cluster::threads(2), |world, board| {
        let ones = Tensor::ones(1000, candle_core::DType::F32, &Device::Cpu).unwrap();
        let variable = Var::from_tensor(&ones).unwrap();
        let weight = Param::from_var("old", variable.clone());
        let (mut right, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for step in 0..100 {
                    // Without pauses no pass would succeed.
                    board.wait_for("passed", 2 * step);
                    weight.set(&(&ones * (2.0 + step as f64)).unwrap()).unwrap();
                }
            });
            for _ in 0..200 {
                let through = |context: &Context| {
                    let w = variable.as_tensor();
                    let y = world.rpc_sync(1, product, (w.clone(), w.clone()))?;
                    let value = y.sqrt()?.to_vec1::<f32>()?;
                    context.backward(&[y.sum_all()?])?;
                    let found = context.gradients()?.get(&weight)?.expect("no gradient");
                    Ok((value, found.to_vec1::<f32>()?))
                };
                match world.context(through) {
                    Ok((value, found)) => {
                        right += 1;
                        assert!(value.iter().all(|x| (x - value[0]).abs() < 1e-3));
                        assert!(found.iter().all(|x| (x - 2.0 * value[0]).abs() < 1e-2));
                    }
                    Err(error) => {
                        refused += 1;
                        assert!(error.to_string().contains("changed in place"), "{error}");
                    }
                }
                board.raise("passed");
            }
        });
        assert!(
            right + refused == 200 && right > 0,
            "{right} right, {refused} refused"
        );
    });
}
