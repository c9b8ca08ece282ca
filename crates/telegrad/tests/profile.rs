//! Profiles of tensor computations: operators, layers, passes and steps, with shapes and memory (S42).

use std::collections::BTreeMap;

use telegrad::nn::{Conv2d, Conv2dOptions, Flatten, Linear, Relu, Rng, Sequential};
use telegrad::prelude::*;
use telegrad::profile::Profile;
use telegrad::trace::{self, Event};
use telegrad::{ops, profile};
use telegrad_testkit::{Cluster, on_cluster};

on_cluster! { threads: with_layers(Cluster::threads(2)) =>
    a_training_step_is_recorded_from_layers_to_the_optimiser
    operators_are_recorded_with_shapes_and_memory
    an_operator_that_fails_is_recorded_as_such
    operands_that_do_not_fit_are_recorded_as_failures
    what_only_shows_the_memory_of_its_operand_takes_none
    steps_and_passes_that_fail_are_recorded_as_such
}
on_cluster! { processes: with_layers(Cluster::processes(2)) =>
    a_training_step_is_recorded_from_layers_to_the_optimiser
    operators_are_recorded_with_shapes_and_memory
}

fn with_layers(cluster: Cluster) -> Cluster {
    cluster
        .options(|options| options.extension = Some(telegrad::extension::layer::<telegrad::candle::Candle>))
}

fn options() -> profile::Options {
    profile::Options {
        shapes: true,
        ..profile::Options::default()
    }
}

/// A network without [`Sequential`].
struct Front {
    convolution: Conv2d,
}

impl Module for Front {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        nn::relu(&self.convolution.forward(x)?)
    }

    fn children(&self) -> Vec<(&str, &dyn Module)> {
        vec![("convolution", &self.convolution)]
    }
}

#[remote]
fn back(seed: u64) -> Result<AnyModule> {
    let mut rng = Rng::new(seed);
    let layers = Sequential::new()
        .push(Flatten)
        .push_named("hidden", Linear::new(2 * 4 * 4, 5, &mut rng)?)
        .push(Relu)
        .push(Linear::new(5, 3, &mut rng)?);
    Ok(AnyModule::new(layers))
}

/// The only event of this kind and name, or with a path that ends in the name, on a worker.
#[track_caller]
fn only<'a>(profile: &'a Profile, worker: u32, kind: &str, name: &str) -> &'a Event {
    let is_called = |event: &Event| event.name == name || event.name.ends_with(&format!("::{name}"));
    let found: Vec<_> = profile
        .events
        .iter()
        .filter(|event| event.worker == worker && event.kind.name() == kind && is_called(event))
        .collect();
    assert_eq!(
        found.len(),
        1,
        "{kind} {name} on {worker} in {:#?}",
        profile.events
    );
    found[0]
}

fn a_training_step_is_recorded_from_layers_to_the_optimiser(cluster: Cluster) {
    cluster.run(|world| {
        if world.rank() != 0 {
            return;
        }
        let mut rng = Rng::new(1);
        let convolution = Conv2d::new(1, 2, 3, Conv2dOptions::default(), &mut rng).unwrap();
        let front = Front { convolution };
        let back = RemoteModule::new(&world, 1, back, (2,)).unwrap();
        let mut params = nn::share(&world, &front).unwrap();
        params.extend(back.remote_parameters().unwrap());
        let optimizer = DistributedOptimizer::new(&world, params, Sgd::default()).unwrap();
        let x = Tensor::ones((7, 1, 6, 6), DType::F32, &Device::Cpu).unwrap();
        let targets = Tensor::zeros(7, DType::U32, &Device::Cpu).unwrap();
        let (_, profile) = profile(&world, options(), || {
            world.context(|context| {
                let loss = nn::cross_entropy(&back.forward(&front.forward(&x)?)?, &targets)?;
                context.backward(std::slice::from_ref(&loss))?;
                optimizer.step(context)
            })
        })
        .map(|(done, profile)| (done.unwrap(), profile))
        .unwrap();

        // Forward on both workers: computations outside a `Sequential` appear as operators.
        let convolved = only(&profile, 0, "operator", "conv2d");
        assert_eq!(convolved.shapes, ["f32[7, 1, 6, 6]", "f32[2, 1, 3, 3]"]);
        assert_eq!(convolved.tensor_bytes, 7 * 2 * 4 * 4 * 4);
        only(&profile, 0, "operator", "relu");
        assert_eq!(only(&profile, 0, "operator", "cross_entropy").tensor_bytes, 4);
        let hidden = only(&profile, 1, "layer", "Linear, `hidden`");
        assert_eq!(
            (&hidden.shapes[..], hidden.tensor_bytes),
            (&["f32[7, 32]".to_owned()][..], 7 * 5 * 4)
        );
        let linear = profile.events.iter().find(|event| event.parent == hidden.span);
        assert_eq!(
            linear.map(|event| (&*event.name, event.tensor_bytes)),
            Some(("linear", 7 * 5 * 4))
        );
        for name in ["Flatten", "Relu"] {
            only(&profile, 1, "layer", name);
        }

        // Calls carry activations there and scores back; the executions receive and return them.
        let forward = only(&profile, 0, "call", "forward");
        let carried = (7 * 2 * 4 * 4 + 7 * 3) * 4;
        assert_eq!(forward.tensor_bytes, carried);
        let executed = profile
            .events
            .iter()
            .find(|event| event.parent == forward.span && event.worker == 1);
        assert_eq!(executed.map(|event| event.tensor_bytes), Some(carried));
        assert!(forward.as_call().unwrap().sent_bytes > 7 * 2 * 4 * 4 * 4);

        // Backward on both, and the steps.
        only(&profile, 0, "autograd", "backward");
        let gradients = only(&profile, 0, "autograd", "conv2d backward").tensor_bytes;
        assert!(gradients >= (2 * 9 + 2) * 4, "{gradients}: of weight and bias");
        let of_linear: Vec<_> = profile
            .events
            .iter()
            .filter(|event| event.name == "linear backward")
            .collect();
        assert_eq!(of_linear.len(), 2);
        assert!(
            of_linear
                .iter()
                .all(|event| event.worker == 1 && event.tensor_bytes > 0)
        );
        only(&profile, 0, "optimizer", "DistributedOptimizer::step");
        for worker in 0..2 {
            let steps = profile.events.iter().filter(|event| event.worker == worker);
            assert_eq!(steps.filter(|event| event.name == "Optimizer::step").count(), 1);
        }

        // Links between forward and backward passes.
        let mut linked: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
        for event in profile.events.iter().filter(|event| event.link != 0) {
            linked.entry(event.link).or_default().push(&event.name);
        }
        let way = [
            "autograd::send",
            "autograd::receive",
            "autograd::send gradient",
            "autograd::receive gradient",
        ];
        assert_eq!(linked.into_values().collect::<Vec<_>>(), [way, way]);

        let averages = profile.key_averages();
        let remote = "rpc_async#telegrad::nn::AnyModule::forward(w0 -> w1)#remote_op: Linear, `hidden`";
        let row = averages.0.iter().find(|row| row.name == remote);
        let row = row.unwrap_or_else(|| panic!("no {remote} in\n{averages}"));
        assert_eq!((row.worker.as_str(), row.tensor_bytes), ("w1", 7 * 5 * 4));
        let heaviest = averages.sorted(profile::SortBy::Tensors);
        assert!(
            heaviest
                .0
                .is_sorted_by_key(|row| std::cmp::Reverse(row.tensor_bytes))
        );
        assert!(heaviest.to_string().contains("  tensors\n"), "{heaviest}");
    });
}

fn operators_are_recorded_with_shapes_and_memory(cluster: Cluster) {
    cluster.run(|world| {
        if world.rank() != 0 {
            return;
        }
        let tensor = |shape: &[usize]| Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap();
        let (a, b) = (tensor(&[2, 3]), tensor(&[3, 4]));
        let (_, profile) = profile(&world, options(), || {
            world.rpc_sync(1, ops::add, (a.clone(), a.clone())).unwrap();
            world.rpc_sync(1, ops::matmul, (a.clone(), b.clone())).unwrap();
            world.rpc_sync(1, ops::softmax, (a.clone(), 1)).unwrap();
            world
                .rpc_sync(1, ops::cat, (vec![a.clone(), a.clone()], 0))
                .unwrap();
            ops::neg(a.clone()).unwrap();
        })
        .unwrap();
        for (worker, name, shapes, bytes) in [
            (1, "add", &["f32[2, 3]", "f32[2, 3]"][..], 24),
            (1, "matmul", &["f32[2, 3]", "f32[3, 4]"], 32),
            (1, "softmax", &["f32[2, 3]"], 24),
            (1, "cat", &["f32[2, 3]", "f32[2, 3]"], 48),
            (0, "neg", &["f32[2, 3]"], 24),
        ] {
            let event = only(&profile, worker, "operator", name);
            assert_eq!(
                (&event.shapes[..], event.tensor_bytes),
                (
                    &*shapes.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>(),
                    bytes
                ),
                "{name}"
            );
        }
    });
}

fn an_operator_that_fails_is_recorded_as_such(cluster: Cluster) {
    cluster.run(|world| {
        if world.rank() != 0 {
            return;
        }
        let (a, b) = (
            Tensor::ones((2, 3), DType::F32, &Device::Cpu).unwrap(),
            Tensor::ones((2, 3), DType::F32, &Device::Cpu).unwrap(),
        );
        let (_, profile) = profile(&world, options(), || {
            world.rpc_sync(1, ops::matmul, (a, b)).unwrap_err();
        })
        .unwrap();
        let failed = only(&profile, 1, "operator", "matmul");
        assert!(
            matches!(&failed.status, trace::Status::Failed(why) if why.contains("matmul")),
            "{:?}",
            failed.status
        );
        assert_eq!(failed.tensor_bytes, 0);
    });
}

fn floats(shape: &[usize]) -> Tensor {
    Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap()
}

fn operands_that_do_not_fit_are_recorded_as_failures(cluster: Cluster) {
    cluster.run(|world| {
        if world.rank() != 0 {
            return;
        }
        let (x, weight) = (floats(&[2, 3]), floats(&[4, 5]));
        let lstm = nn::Lstm::new(3, 4, 1, &mut Rng::new(1)).unwrap();
        let (_, profile) = profile(&world, options(), || {
            ops::softmax(x.clone(), 7).unwrap_err();
            ops::transpose(x.clone(), 0, 7).unwrap_err();
            ops::cat(Vec::new(), 0).unwrap_err();
            nn::linear(&x, &weight, None).unwrap_err();
            nn::log_softmax(&x, 7).unwrap_err();
            nn::layer_norm(&x, &weight, &weight, 1e-5).unwrap_err();
            nn::rms_norm(&x, &weight, 1e-5).unwrap_err();
            nn::mse(&x, &weight).unwrap_err();
            nn::cross_entropy(&x, &weight).unwrap_err();
            nn::nll(&x, &weight).unwrap_err();
            nn::embedding(&x, &x, None).unwrap_err();
            nn::MaxPool2d::new(2).forward(&x).unwrap_err();
            nn::AvgPool2d::new(2).forward(&x).unwrap_err();
            nn::conv2d(&x, &weight, None, Conv2dOptions::default()).unwrap_err();
            lstm.forward(&x).unwrap_err();
        })
        .unwrap();
        for name in [
            "softmax",
            "transpose",
            "cat",
            "linear",
            "log_softmax",
            "layer_norm",
            "rms_norm",
            "mse",
            "cross_entropy",
            "nll",
            "embedding",
            "max_pool2d",
            "avg_pool2d",
            "conv2d",
            "lstm",
        ] {
            let failed = only(&profile, 0, "operator", name);
            assert!(matches!(failed.status, trace::Status::Failed(_)), "{failed:?}");
            assert_eq!(failed.tensor_bytes, 0, "{name}");
        }
    });
}

fn what_only_shows_the_memory_of_its_operand_takes_none(cluster: Cluster) {
    cluster.run(|world| {
        if world.rank() != 0 {
            return;
        }
        let x = floats(&[2, 3, 4]);
        let layers = Sequential::new().push(Flatten).push(Relu);
        let (_, profile) = profile(&world, options(), || {
            let transposed = ops::transpose(x.clone(), 0, 1).unwrap();
            // This one must be copied.
            ops::reshape(transposed, vec![24]).unwrap();
            layers.forward(&x).unwrap();
        })
        .unwrap();
        for (kind, name, bytes) in [
            ("operator", "transpose", 0),
            ("operator", "reshape", 24 * 4),
            ("layer", "Flatten", 0),
            ("layer", "Relu", 24 * 4),
        ] {
            assert_eq!(only(&profile, 0, kind, name).tensor_bytes, bytes, "{name}");
        }
    });
}

fn steps_and_passes_that_fail_are_recorded_as_such(cluster: Cluster) {
    cluster.run(|world| {
        if world.rank() != 0 {
            return;
        }
        let zero = Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap();
        let param = Param::new(&zero).unwrap();
        let params = vec![RRef::hold(&world, param.clone()).unwrap()];
        let distributed = DistributedOptimizer::new(&world, params, Sgd::default()).unwrap();
        let distributed = distributed.with_max_norm(1.0).unwrap();
        let mut local = telegrad::optim::Optimizer::new([param.clone()], Sgd::default()).unwrap();
        let (_, profile) = profile(&world, options(), || {
            world
                .context(|context| {
                    // The gradient is infinite.
                    let loss = ops::sum(ops::log(param.tensor())?)?;
                    context.backward(std::slice::from_ref(&loss))?;
                    distributed.step(context)
                })
                .unwrap_err();
            local.step_with(|_| Err(Error::other("no gradient"))).unwrap_err();
            world
                .context(|context| {
                    let value = param.tensor().detach();
                    let fails = |_| Err(candle_core::Error::Msg("no derivative".into()));
                    let loss = telegrad::candle::operation("failing", &[&param.tensor()], value, fails)?;
                    context.backward(std::slice::from_ref(&ops::sum(loss)?))
                })
                .unwrap_err();
        })
        .unwrap();
        for (kind, name) in [
            ("optimizer", "DistributedOptimizer::step"),
            ("optimizer", "Optimizer::step"),
            ("autograd", "failing backward"),
        ] {
            let failed = only(&profile, 0, kind, name);
            assert!(matches!(failed.status, trace::Status::Failed(_)), "{failed:?}");
        }
        let passes: Vec<_> = profile
            .events
            .iter()
            .filter(|event| event.name == "autograd::gradients")
            .map(|event| event.status.is_ok())
            .collect();
        assert_eq!(passes, [true, false]);
    });
}
