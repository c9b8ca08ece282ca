//! One module on another worker.

use telegrad_nn::{Dropout, Func};
use telegrad_testkit::on_threads_and_processes;

use super::*;

on_threads_and_processes! { 2 =>
    the_output_matches_the_local_module
    parameters_are_in_order_and_learn
}

fn the_output_matches_the_local_module(cluster: Cluster) {
    on_rank_0(cluster, |world| {
        let there = RemoteModule::new(world, "w1", block, (4, 8, 3, 5))?;
        assert_eq!(there.worker(), "w1");
        let here = layers(4, 8, 3, 5)?;
        let x = numbers((6, 4), 1)?;
        // Outside and within a context.
        assert_eq!(flat(&there.forward(&x)?)?, flat(&here.forward(&x)?)?);
        world.context(|_| {
            assert_eq!(flat(&there.forward(&x)?)?, flat(&here.forward(&x)?)?);
            Ok(())
        })?;
        // Many calls at once.
        let xs = (0..20).map(|seed| numbers((2, 4), seed));
        let xs = xs.collect::<Result<Vec<_>>>()?;
        let calls = xs.iter().map(|x| there.forward_async(x));
        let calls = calls.collect::<Result<Vec<_>>>()?;
        for (x, call) in xs.iter().zip(calls) {
            assert_eq!(flat(&call.wait()?)?, flat(&here.forward(x)?)?);
        }
        Ok(())
    });
}

fn parameters_are_in_order_and_learn(cluster: Cluster) {
    on_rank_0(cluster, |world| {
        let there = RemoteModule::new(world, 1, block, (4, 8, 3, 5))?;
        let here = layers(4, 8, 3, 5)?;
        let names = there.parameter_names()?;
        assert_eq!(
            names,
            ["first.weight", "first.bias", "second.weight", "second.bias"]
        );
        let params = there.remote_parameters()?;
        let own = here.parameters();
        assert_eq!(params.len(), own.len());
        for (there, here) in params.iter().zip(&own) {
            assert_eq!(there.owner_name(), "w1");
            assert_eq!(flat(&fetch(world, there)?)?, flat(&here.value())?);
        }
        let options = Sgd {
            lr: 0.2,
            momentum: 0.5,
            ..Sgd::default()
        };
        let optimizer = DistributedOptimizer::new(world, params.clone(), options.clone())?;
        let mut expected = Optimizer::new(own.clone(), options)?;
        let (x, target) = (numbers((6, 4), 1)?, numbers((6, 3), 2)?);
        let loss_of = |y: &Tensor| -> Result<Tensor> { Ok((y - &target)?.sqr()?.mean_all()?) };
        let mut losses = Vec::new();
        for _ in 0..30 {
            let loss = world.context(|context| {
                let loss = loss_of(&there.forward(&x)?)?;
                context.backward(std::slice::from_ref(&loss))?;
                optimizer.step(context)?;
                Ok(loss.to_scalar::<f32>()?)
            })?;
            losses.push(loss);
            expected.step(&loss_of(&here.forward(&x)?)?.backward()?)?;
        }
        assert!(losses[29] < losses[0] / 2.0, "{losses:?}");
        for (there, here) in params.iter().zip(&own) {
            assert_close(&fetch(world, there)?, &here.value());
        }
        Ok(())
    });
}

#[remote]
fn noise() -> Result<AnyModule> {
    // Nested, so that `set_training` must recurse.
    let noise = Sequential::new().push(Dropout::new(0.5, &mut Rng::new(3))?);
    Ok(AnyModule::new(Sequential::new().push(noise)))
}

#[test]
fn training_and_evaluation_reach_nested_modules() {
    on_rank_0(Cluster::threads(2), |world| {
        let noise = RemoteModule::new(world, 1, noise, ())?;
        let x = Tensor::ones((1, 64), DType::F32, &Device::Cpu)?;
        let dropped = || -> Result<usize> {
            let y = flat(&noise.forward(&x)?)?;
            assert!(y.iter().all(|y| [0.0, 1.0, 2.0].contains(y)), "{y:?}");
            Ok(y.iter().filter(|y| **y == 0.0).count())
        };
        assert_ne!(dropped()?, 0);
        noise.eval()?;
        assert_eq!(flat(&noise.forward(&x)?)?, [1.0; 64]);
        noise.train()?;
        assert_ne!(dropped()?, 0);
        // All stages of a chain.
        let all = RemoteSequential::new().push(noise.clone()).push(noise.clone());
        all.eval()?;
        assert_eq!(flat(&all.forward(&x)?)?, [1.0; 64]);
        all.train()?;
        assert_ne!(dropped()?, 0);
        Ok(())
    });
}

#[remote]
fn impossible() -> Result<AnyModule> {
    Ok(AnyModule::new(Dropout::new(1.5, &mut Rng::new(0))?))
}

#[test]
fn every_use_reports_the_error_of_making_the_module() {
    on_rank_0(Cluster::threads(2), |world| {
        let x = numbers((1, 4), 0)?;
        let invalid = RemoteModule::new(world, 1, impossible, ())?;
        for _ in 0..2 {
            let errors = [
                invalid.forward(&x).map(drop),
                invalid.remote_parameters().map(drop),
                invalid.parameter_names().map(drop),
                invalid.train(),
                invalid.eval(),
                RemoteSequential::new()
                    .push(invalid.clone())
                    .forward(&x)
                    .map(drop),
            ];
            for error in errors {
                let error = error.unwrap_err().to_string();
                let named = error.contains("Dropout: 1.5 is not a probability") && error.contains("`w1`");
                assert!(named, "{error}");
            }
        }
        let nowhere = RemoteModule::new(world, "w7", block, (4, 8, 3, 5)).unwrap_err();
        assert!(nowhere.to_string().contains("w7"), "{nowhere}");
        Ok(())
    });
}

#[test]
fn an_error_of_a_wrong_shape_names_worker_and_stage() {
    on_rank_0(Cluster::threads(2), |world| {
        let there = RemoteModule::new(world, 1, block, (4, 8, 3, 5))?;
        let error = there.forward(&numbers((2, 5), 0)?).unwrap_err();
        assert_eq!(error.remote().map(|error| error.worker()), Some("w1"));
        let text = error.to_string();
        assert!(
            text.contains("worker `w1`") && text.contains("stage 0 (Linear, `first`)"),
            "{text}"
        );
        // The module remains usable.
        assert_eq!(there.forward(&numbers((2, 4), 0)?)?.dims(), [2, 3]);
        Ok(())
    });
}

/// A module with parameters that loses the gradient.
struct Frozen(Linear);

impl Module for Frozen {
    fn forward(&self, x: &Tensor) -> telegrad_nn::Result<Tensor> {
        Ok(self.0.forward(x)?.detach())
    }

    fn children(&self) -> Vec<(&str, &dyn Module)> {
        vec![("inner", &self.0)]
    }
}

/// A module without parameters that loses the gradient unchecked.
struct Detached;

impl Module for Detached {
    fn forward(&self, x: &Tensor) -> telegrad_nn::Result<Tensor> {
        Ok(x.detach())
    }
}

#[remote]
fn frozen() -> Result<AnyModule> {
    Ok(AnyModule::new(Frozen(Linear::new(4, 4, &mut Rng::new(0))?)))
}

#[remote]
fn detached() -> Result<AnyModule> {
    Ok(AnyModule::new(Detached))
}

#[remote]
fn stopped() -> Result<AnyModule> {
    Ok(AnyModule::new(Func::new("stop", |x| Ok(x.detach()))))
}

#[remote]
fn largest() -> Result<AnyModule> {
    Ok(AnyModule::new(Func::new("largest", |x| Ok(x.argmax(1)?))))
}

#[test]
fn a_module_that_loses_the_gradient_is_named() {
    on_rank_0(Cluster::threads(2), |world| {
        let [frozen, detached] = [
            RemoteModule::new(world, 1, frozen, ())?,
            RemoteModule::new(world, 1, detached, ())?,
        ];
        let stopped = RemoteModule::new(world, 1, stopped, ())?;
        let x = Var::from_tensor(&numbers((2, 4), 0)?)?;
        let lost = |module: &RemoteModule, x: &Tensor, name: &str| {
            let error = module.forward(x).unwrap_err().to_string();
            let text = format!("the gradient is lost in {name}: ");
            assert!(error.contains(&text) && error.contains("worker `w1`"), "{error}");
        };
        world.context(|_| {
            // The parameters would not learn, with or without a gradient of the input.
            lost(&frozen, &x, "Frozen");
            lost(&frozen, &x.as_detached_tensor(), "Frozen");
            lost(&detached, &x, "Detached");
            lost(&stopped, &x, "stop");
            Ok(())
        })?;
        // Without gradients there is none to lose.
        let plain = x.as_detached_tensor();
        for module in [&detached, &stopped] {
            assert_eq!(flat(&module.forward(&plain)?)?, flat(&plain)?);
        }
        // Integers have no gradient.
        let largest = RemoteModule::new(world, 1, largest, ())?;
        world.context(|_| {
            assert_eq!(largest.forward(&x)?.dtype(), DType::U32);
            Ok(())
        })
    });
}

#[remote]
fn use_of(module: RRef<AnyModule>, x: Tensor) -> Result<Tensor> {
    RemoteModule::from(module).forward(&x)
}

#[test]
fn a_module_can_be_sent_to_another_worker() {
    on_rank_0(Cluster::threads(3), |world| {
        let there = RemoteModule::new(world, 1, block, (4, 8, 3, 5))?;
        let x = numbers((2, 4), 0)?;
        let y = world.rpc_sync(2, use_of, (there.rref().clone(), x.clone()))?;
        assert_eq!(flat(&y)?, flat(&there.forward(&x)?)?);
        Ok(())
    });
}
