//! Candle models on another worker.

use candle_core::Module as _;
use candle_nn::{VarBuilder, VarMap};
use telegrad_nn::VarMapModule;
use telegrad_testkit::on_threads_and_processes;

use super::*;

on_threads_and_processes! { 2 =>
    gradients_match_the_local_model
    training_matches_the_local_model
}

/// A model of candle's own layers.
struct Net {
    first: candle_nn::Linear,
    second: candle_nn::Linear,
}

impl Net {
    fn new(builder: VarBuilder<'_>) -> candle_core::Result<Self> {
        Ok(Self {
            first: candle_nn::linear(4, 6, builder.pp("first"))?,
            second: candle_nn::linear(6, 3, builder.pp("second"))?,
        })
    }
}

impl candle_core::Module for Net {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        self.second.forward(&self.first.forward(x)?.tanh()?)
    }
}

/// Makes variables with the same values in every process; candle's initial values are random.
fn variables(seed: u64) -> Result<(VarMap, Net)> {
    let map = VarMap::new();
    let net = Net::new(VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu))?;
    let mut all: Vec<_> = map.data().lock().unwrap().clone().into_iter().collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (nth, (_, variable)) in all.into_iter().enumerate() {
        let values = numbers((1, variable.elem_count()), seed + nth as u64)?;
        variable.set(&values.reshape(variable.shape())?)?;
    }
    Ok((map, net))
}

#[remote]
pub(super) fn net(seed: u64) -> Result<AnyModule> {
    let (map, net) = variables(seed)?;
    Ok(AnyModule::new(VarMapModule::new(&map, net)))
}

const NAMES: [&str; 4] = ["first.bias", "first.weight", "second.bias", "second.weight"];

fn gradients_match_the_local_model(cluster: Cluster) {
    on_rank_0(cluster, |world| {
        let there = RemoteModule::new(world, "w1", net, (5,))?;
        assert_eq!(there.parameter_names()?, NAMES);
        let (map, here) = variables(5)?;
        let x = Var::from_tensor(&numbers((6, 4), 1)?)?;
        let y = here.forward(&x)?;
        let expected = y.sqr()?.sum_all()?.backward()?;

        let params = there.remote_parameters()?;
        let optimizer = DistributedOptimizer::new(world, params, unit_sgd())?;
        let before = there.state_dict()?;
        world.context(|context| {
            let found = there.forward(&x)?;
            assert_close(&found, &y);
            context.backward(&found.sqr()?.sum_all()?)?;
            assert_close(context.gradients()?.of(&x).unwrap(), expected.get(&x).unwrap());
            optimizer.step(context)
        })?;
        let after = there.state_dict()?;
        for name in NAMES {
            let variable = map.data().lock().unwrap()[name].clone();
            assert_eq!(
                flat(&before[name])?,
                flat(&variable)?,
                "the earlier state is a copy"
            );
            let moved = (variable.as_detached_tensor() - expected.get(&variable).unwrap())?;
            assert_close(&after[name], &moved);
        }
        Ok(())
    });
}

fn training_matches_the_local_model(cluster: Cluster) {
    on_rank_0(cluster, |world| {
        let there = RemoteModule::new(world, 1, net, (7,))?;
        let (map, here) = variables(7)?;
        let here = VarMapModule::new(&map, here);
        let options = Sgd {
            lr: 0.1,
            momentum: 0.9,
            ..Sgd::default()
        };
        let params = there.remote_parameters()?;
        let optimizer = DistributedOptimizer::new(world, params, options.clone())?;
        let mut local = Optimizer::new(here.parameters(), options)?;
        let (x, target) = (numbers((6, 4), 1)?, numbers((6, 3), 2)?);
        let loss_of = |y: &Tensor| -> Result<Tensor> { Ok((y - &target)?.sqr()?.mean_all()?) };
        let mut losses = Vec::new();
        for _ in 0..40 {
            let loss = world.context(|context| {
                let loss = loss_of(&there.forward(&x)?)?;
                context.backward(&loss)?;
                optimizer.step(context)?;
                Ok(loss.to_scalar::<f32>()?)
            })?;
            let expected = loss_of(&here.forward(&x)?)?;
            local.step(&expected.backward()?)?;
            assert!((loss - expected.to_scalar::<f32>()?).abs() < 1e-5, "{loss}");
            losses.push(loss);
        }
        assert!(losses[39] < losses[0] / 4.0, "{losses:?}");
        let state = there.state_dict()?;
        for name in NAMES {
            assert_close(&state[name], &map.data().lock().unwrap()[name]);
        }
        Ok(())
    });
}

/// A model that loses the gradient in its middle: candle's layer norm has no backward pass.
#[remote]
fn normalised() -> Result<AnyModule> {
    Ok(AnyModule::new(normalised_here()?))
}

/// Two layers with a layer norm between them.
fn layers_of_norm() -> Result<(VarMap, [candle_nn::Linear; 2], candle_nn::LayerNorm)> {
    let map = VarMap::new();
    let builder = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    let first = candle_nn::linear(4, 6, builder.pp("first"))?;
    let norm = candle_nn::layer_norm(6, 1e-5, builder.pp("norm"))?;
    let second = candle_nn::linear(6, 3, builder.pp("second"))?;
    Ok((map, [first, second], norm))
}

fn normalised_here() -> Result<VarMapModule> {
    let (map, [first, second], norm) = layers_of_norm()?;
    let forward = move |x: &Tensor| second.forward(&norm.forward(&first.forward(x)?)?);
    Ok(VarMapModule::new(&map, forward))
}

/// The same model with this crate's layer norm on the same variables.
#[remote]
fn mended() -> Result<AnyModule> {
    let (map, [first, second], norm) = layers_of_norm()?;
    let (scale, shift) = (norm.weight().clone(), norm.bias().unwrap().clone());
    let forward = move |x: &Tensor| {
        let x = telegrad_nn::layer_norm(&first.forward(x)?, &scale, &shift, 1e-5)?;
        second.forward(&x)
    };
    Ok(AnyModule::new(VarMapModule::new(&map, forward)))
}

#[test]
fn a_gradient_that_candle_loses_inside_is_an_error() {
    on_rank_0(Cluster::threads(2), |world| {
        let there = RemoteModule::new(world, 1, normalised, ())?;
        let mended = RemoteModule::new(world, 1, mended, ())?;
        let x = Var::from_tensor(&numbers((2, 4), 0)?)?;
        world.context(|context| {
            let error = there.forward(&x).unwrap_err().to_string();
            let text = "the gradient of input 0 is lost in VarMapModule: ";
            assert!(error.contains(text) && error.contains("worker `w1`"), "{error}");
            context.backward(&mended.forward(&x)?.sqr()?.sum_all()?)?;
            assert!(context.gradients()?.of(&x).is_some());
            Ok(())
        })?;
        // Without a gradient of the input there is none to lose. `without_gradient` lists the variables before the norm.
        assert_eq!(there.forward(&x.as_detached_tensor())?.dims(), [2, 3]);
        let here = normalised_here()?;
        let lost = here.without_gradient(&x)?;
        assert_eq!(lost, ["first.bias", "first.weight", "norm.bias", "norm.weight"]);
        // Also on this worker, with an input that is not a leaf.
        let error = here.forward(&(x.as_tensor() * 2.0)?).unwrap_err();
        assert!(
            matches!(error.nn(), Some(telegrad_nn::NnError::LostInput { input: 0, .. })),
            "{error}"
        );
        Ok(())
    });
}

/// A model that ends in an operation without a backward pass.
#[remote]
fn likely() -> Result<AnyModule> {
    let map = VarMap::new();
    let builder = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    let layer = candle_nn::linear(4, 3, builder)?;
    let forward = move |x: &Tensor| candle_nn::ops::softmax_last_dim(&layer.forward(x)?);
    Ok(AnyModule::new(VarMapModule::new(&map, forward)))
}

#[test]
fn a_model_without_gradients_is_an_error_in_contexts_only() {
    on_rank_0(Cluster::threads(2), |world| {
        let there = RemoteModule::new(world, 1, likely, ())?;
        let x = numbers((2, 4), 0)?;
        let sum = there.forward(&x)?.sum_all()?.to_scalar::<f32>()?;
        assert!((sum - 2.0).abs() < 1e-6, "{sum}");
        // The variables would not learn.
        let error = world.context(|_| there.forward(&x)).unwrap_err().to_string();
        assert!(error.contains("the gradient is lost in"), "{error}");
        Ok(())
    });
}

#[remote]
fn noisy() -> Result<AnyModule> {
    // A layer that implements candle's `ModuleT`, without variables.
    Ok(AnyModule::new(VarMapModule::new(
        &VarMap::new(),
        candle_nn::Dropout::new(0.5),
    )))
}

#[test]
fn training_and_evaluation_reach_the_model() {
    on_rank_0(Cluster::threads(2), |world| {
        let noisy = RemoteModule::new(world, 1, noisy, ())?;
        let x = Tensor::ones((1, 64), DType::F32, &Device::Cpu)?;
        assert!(flat(&noisy.forward(&x)?)?.contains(&0.0));
        noisy.eval()?;
        assert_eq!(flat(&noisy.forward(&x)?)?, [1.0; 64]);
        noisy.train()?;
        assert!(flat(&noisy.forward(&x)?)?.contains(&0.0));
        assert!(noisy.remote_parameters()?.is_empty());
        Ok(())
    });
}

/// The statistics of a batch norm are variables without a gradient.
#[test]
fn statistics_of_a_batch_norm_are_saved_and_not_trained() {
    let map = VarMap::new();
    let builder = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    let norm = candle_nn::batch_norm(3, 1e-5, builder).unwrap();
    let module = VarMapModule::new(&map, norm);
    assert_eq!(module.type_name(), "BatchNorm");
    let x = Var::from_tensor(&numbers((5, 3), 3).unwrap()).unwrap();
    assert_eq!(
        module.without_gradient(&x).unwrap(),
        ["running_mean", "running_var"]
    );
    let adam = telegrad_optim::Adam::default();
    let mut optimizer = Optimizer::new(module.parameters(), adam).unwrap();
    let before = telegrad_nn::state_dict(&module).unwrap();
    let loss = module.forward(&x).unwrap().powf(3.0).unwrap().sum_all().unwrap();
    let trained = telegrad_nn::state_dict(&module).unwrap();
    optimizer.step(&loss.backward().unwrap()).unwrap();
    let after = telegrad_nn::state_dict(&module).unwrap();
    // The statistics follow the batches, not the optimiser.
    assert_ne!(
        flat(&before["running_mean"]).unwrap(),
        flat(&trained["running_mean"]).unwrap()
    );
    assert_eq!(
        flat(&trained["running_mean"]).unwrap(),
        flat(&after["running_mean"]).unwrap()
    );
    assert_ne!(flat(&trained["weight"]).unwrap(), flat(&after["weight"]).unwrap());
    module.set_training(false);
    let x = x.as_detached_tensor();
    module.forward(&x).unwrap();
    let still = telegrad_nn::state_dict(&module).unwrap();
    assert_eq!(
        flat(&still["running_mean"]).unwrap(),
        flat(&after["running_mean"]).unwrap()
    );
}
