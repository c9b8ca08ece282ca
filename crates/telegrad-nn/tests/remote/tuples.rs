//! Modules with several inputs and outputs.

use candle_nn::rnn::{LSTMState, RNN};
use candle_nn::{VarBuilder, VarMap};
use telegrad_nn::{LstmCell, LstmState, sigmoid};
use telegrad_testkit::on_threads_and_processes;
use telegrad_wire::Wire;

use super::*;

on_threads_and_processes! { 2 =>
    gradients_flow_through_all_inputs_and_outputs
    a_state_is_sent_through_time_steps
}

/// Two layers on two inputs, with two outputs.
struct Gate(Sequential, Linear, Linear);

impl Gate {
    fn new(seed: u64) -> Result<Self> {
        let mut rng = Rng::new(seed);
        let (a, b) = (Linear::new(4, 3, &mut rng)?, Linear::new(2, 3, &mut rng)?);
        let parts = Sequential::new()
            .push_named("a", a.clone())
            .push_named("b", b.clone());
        Ok(Self(parts, a, b))
    }

    fn run(&self, x: &Tensor, h: &Tensor) -> telegrad_nn::Result<(Tensor, Tensor)> {
        let (x, h) = (self.1.forward(x)?, self.2.forward(h)?);
        Ok((sigmoid(&(&x + &h)?)?, (x * h)?))
    }
}

#[remote]
fn gate(seed: u64) -> Result<AnyModule> {
    let Gate(parts, a, b) = Gate::new(seed)?;
    let gate = Gate(Sequential::new(), a, b);
    Ok(AnyModule::with(parts, move |_, (x, h): (Tensor, Tensor)| {
        gate.run(&x, &h)
    }))
}

fn gradients_flow_through_all_inputs_and_outputs(cluster: Cluster) {
    on_rank_0(cluster, |world| {
        let there = RemoteModule::new(world, 1, gate, (3,))?;
        let names = ["a.weight", "a.bias", "b.weight", "b.bias"];
        assert_eq!(there.parameter_names()?, names);
        let here = Gate::new(3)?;
        let x = Var::from_tensor(&numbers((5, 4), 1)?)?;
        let h = Var::from_tensor(&numbers((5, 2), 2)?)?;
        let loss_of = |(y, z): &(Tensor, Tensor)| -> Result<Tensor> {
            Ok((y.sqr()?.sum_all()? + (z * 0.5)?.sum_all()?)?)
        };
        let expected = here.run(&x, &h)?;
        let leaves: Vec<_> = here.0.parameters().iter().map(Param::tensor).collect();
        let gradients = loss_of(&expected)?.backward()?;
        let before = there.state_dict()?;
        let optimizer = DistributedOptimizer::new(world, there.remote_parameters()?, unit_sgd())?;
        world.context(|context| {
            let found: (Tensor, Tensor) = there.call((x.as_tensor().clone(), h.as_tensor().clone()))?;
            assert_close(&found.0, &expected.0);
            assert_close(&found.1, &expected.1);
            context.backward(&loss_of(&found)?)?;
            for input in [&x, &h] {
                assert_close(
                    context.gradients()?.of(input).unwrap(),
                    gradients.get(input).unwrap(),
                );
            }
            optimizer.step(context)
        })?;
        let after = there.state_dict()?;
        for (name, leaf) in names.iter().zip(&leaves) {
            let moved = (&before[*name] - gradients.get(leaf).unwrap())?;
            assert_close(&after[*name], &moved);
        }
        // Only one output is used: the pass does not wait for the gradient of the other.
        world.context(|context| {
            let future = there.call_async((x.as_tensor().clone(), h.as_tensor().clone()))?;
            let (y, _): (Tensor, Tensor) = future.wait()?;
            context.backward(&y.sum_all()?)?;
            assert!(context.gradients()?.of(&h).is_some());
            Ok(())
        })
    });
}

#[remote]
fn cell(seed: u64) -> Result<AnyModule> {
    let cell = LstmCell::new(4, 5, &mut Rng::new(seed))?;
    Ok(AnyModule::with(cell, |cell, (x, state): (Tensor, LstmState)| {
        cell.step(&x, &state)
    }))
}

fn a_state_is_sent_through_time_steps(cluster: Cluster) {
    on_rank_0(cluster, |world| {
        let there = RemoteModule::new(world, 1, cell, (3,))?;
        let here = LstmCell::new(4, 5, &mut Rng::new(3))?;
        let x = Var::from_tensor(&numbers((2, 4), 1)?)?;
        let mut expected = here.zero_state(2)?;
        for _ in 0..4 {
            expected = here.step(&x, &expected)?;
        }
        let gradients = expected.hidden.sqr()?.sum_all()?.backward()?;
        world.context(|context| {
            let mut state = here.zero_state(2)?;
            for _ in 0..4 {
                state = there.call((x.as_tensor().clone(), state))?;
            }
            assert_close(&state.cell, &expected.cell);
            context.backward(&state.hidden.sqr()?.sum_all()?)?;
            assert_close(context.gradients()?.of(&x).unwrap(), gradients.get(&x).unwrap());
            Ok(())
        })
    });
}

/// Outputs with tensors and numbers.
#[derive(Debug, Wire)]
struct Report {
    y: Tensor,
    mean: f32,
    parts: Vec<Option<Tensor>>,
}

#[remote]
fn reporting() -> Result<AnyModule> {
    let linear = Linear::new(4, 3, &mut Rng::new(1))?;
    let report = |linear: &Linear, (x, scale, of): (Tensor, f64, RRef<AnyModule>)| {
        assert_eq!(of.owner_name(), "w1");
        let y = (linear.forward(&x)? * scale)?;
        Ok(Report {
            mean: y.mean_all()?.to_scalar()?,
            parts: vec![None, Some((&y * 2.0)?)],
            y,
        })
    };
    Ok(AnyModule::with(linear, report))
}

#[test]
fn inputs_and_outputs_may_have_any_wire_type() {
    on_rank_0(Cluster::threads(2), |world| {
        let there = RemoteModule::new(world, 1, reporting, ())?;
        let x = Var::from_tensor(&numbers((2, 4), 1)?)?;
        world.context(|context| {
            let inputs = (x.as_tensor().clone(), 3.0, there.rref().clone());
            let report: Report = there.call(inputs)?;
            let mean = report.y.mean_all()?.to_scalar::<f32>()?;
            assert!((report.mean - mean).abs() < 1e-6);
            let [None, Some(double)] = &report.parts[..] else {
                panic!("{report:?}")
            };
            context.backward(&double.sum_all()?)?;
            let weight = &there.state_dict()?["weight"];
            let expected = (weight.sum(0)? * 6.0)?.broadcast_as((2, 4))?;
            assert_close(context.gradients()?.of(&x).unwrap(), &expected);
            Ok(())
        })
    });
}

#[remote]
fn candles_lstm() -> Result<AnyModule> {
    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
    let lstm = candle_nn::lstm(4, 5, Default::default(), builder)?;
    let step = move |(x, h, c): (Tensor, Tensor, Tensor)| {
        let state = lstm.step(&x, &LSTMState { h, c })?;
        Ok((state.h, state.c))
    };
    Ok(AnyModule::from_varmap(&variables, step))
}

#[test]
fn a_candle_model_with_a_state_learns() {
    on_rank_0(Cluster::threads(2), |world| {
        let there = RemoteModule::new(world, 1, candles_lstm, ())?;
        assert_eq!(
            there.parameter_names()?,
            ["bias_hh_l0", "bias_ih_l0", "weight_hh_l0", "weight_ih_l0"]
        );
        let adam = telegrad_optim::Adam {
            lr: 0.05,
            ..Default::default()
        };
        let optimizer = DistributedOptimizer::new(world, there.remote_parameters()?, adam)?;
        let x = numbers((3, 4), 1)?;
        let target = (numbers((3, 5), 2)? * 0.5)?;
        let mut losses = Vec::new();
        for _ in 0..40 {
            let loss = world.context(|context| {
                let zeros = Tensor::zeros((3, 5), DType::F32, &Device::Cpu)?;
                let mut state = (zeros.clone(), zeros);
                for _ in 0..3 {
                    state = there.call((x.clone(), state.0, state.1))?;
                }
                let loss = (state.0 - &target)?.sqr()?.mean_all()?;
                context.backward(&loss)?;
                optimizer.step(context)?;
                Ok(loss.to_scalar::<f32>()?)
            })?;
            losses.push(loss);
        }
        // candle's initial values differ from run to run.
        assert!(losses[39] < losses[0] * 0.75, "{losses:?}");
        Ok(())
    });
}

#[remote]
fn split() -> Result<AnyModule> {
    let none = Sequential::new();
    Ok(AnyModule::with(none, |_, x: Tensor| {
        Ok(((&x * 2.0)?, (&x * 3.0)?))
    }))
}

#[remote]
fn joined() -> Result<AnyModule> {
    let none = Sequential::new();
    Ok(AnyModule::with(none, |_, (a, b): (Tensor, Tensor)| Ok((a * b)?)))
}

#[test]
fn stages_take_the_outputs_of_the_previous_ones() {
    on_rank_0(Cluster::threads(3), |world| {
        let split = RemoteModule::new(world, 1, split, ())?;
        let joined = RemoteModule::new(world, 2, joined, ())?;
        let both = RemoteSequential::new().push(split.clone()).push(joined.clone());
        let x = Var::from_tensor(&numbers((2, 4), 1)?)?;
        world.context(|context| {
            let y: Tensor = both.call(x.as_tensor().clone())?;
            assert_close(&y, &(x.sqr()? * 6.0)?);
            context.backward(&y.sum_all()?)?;
            assert_close(context.gradients()?.of(&x).unwrap(), &(x.as_tensor() * 12.0)?);
            Ok(())
        })?;
        let none = RemoteSequential::new().call::<_, Tensor>(1_u32).unwrap_err();
        assert!(none.to_string().contains("has no stages"), "{none}");
        Ok(())
    });
}

#[test]
fn errors_of_wrong_types_name_the_types() {
    on_rank_0(Cluster::threads(2), |world| {
        let split = RemoteModule::new(world, 1, split, ())?;
        let joined = RemoteModule::new(world, 1, joined, ())?;
        let plain = RemoteModule::new(world, 1, block, (4, 4, 4, 0))?;
        let x = numbers((2, 4), 1)?;
        let assert_contains = |error: telegrad_rpc::Error, parts: &[&str]| {
            let text = error.to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        };
        let takes = "Sequential takes (Tensor, Tensor), and was called with something else: ";
        assert_contains(joined.forward(&x).unwrap_err(), &[takes, "worker `w1`"]);
        assert_contains(
            joined.call::<_, Tensor>((x.clone(), 1_u32)).unwrap_err(),
            &[takes, "element 1"],
        );
        let gives = "makes (Tensor, Tensor) of Tensor, and `forward` gives one Tensor: use `call`";
        assert_contains(split.forward(&x).unwrap_err(), &[gives, "worker `w1`"]);
        let wanted = "the module on worker `w1` gives something else than (Tensor, Tensor, Tensor): ";
        assert_contains(
            split.call::<_, (Tensor, Tensor, Tensor)>(x.clone()).unwrap_err(),
            &[wanted],
        );
        assert_contains(
            plain.call::<_, Tensor>((x.clone(), x.clone())).unwrap_err(),
            &["takes Tensor, and"],
        );
        // `call` works for a module with one tensor each.
        let y: Tensor = plain.call(x.clone())?;
        assert_close(&y, &plain.forward(&x)?);
        Ok(())
    });
}

#[remote]
fn careless() -> Result<AnyModule> {
    let none = Sequential::new();
    Ok(AnyModule::with(none, |_, (a, b): (Tensor, Tensor)| {
        Ok((&a * b.detach())?)
    }))
}

#[remote]
fn half_lost() -> Result<AnyModule> {
    let linear = Linear::new(4, 4, &mut Rng::new(0))?;
    Ok(AnyModule::with(linear, |linear, x: Tensor| {
        let y = linear.forward(&x)?;
        Ok((y.clone(), y.detach()))
    }))
}

#[test]
fn an_input_or_an_output_whose_gradient_is_lost_is_named() {
    on_rank_0(Cluster::threads(2), |world| {
        let careless = RemoteModule::new(world, 1, careless, ())?;
        let half_lost = RemoteModule::new(world, 1, half_lost, ())?;
        let a = Var::from_tensor(&numbers((2, 4), 1)?)?;
        let b = Var::from_tensor(&numbers((2, 4), 2)?)?;
        world.context(|context| {
            let inputs = (a.as_tensor().clone(), b.as_tensor().clone());
            let error = careless.call::<_, Tensor>(inputs).unwrap_err().to_string();
            assert!(error.contains("the gradient of input 1 is lost in"), "{error}");
            let error = half_lost.call::<_, (Tensor, Tensor)>(a.as_detached_tensor());
            let error = error.unwrap_err().to_string();
            assert!(error.contains("Linear (output 1 of 2)"), "{error}");
            // A detached input has no gradient to lose.
            let y: Tensor = careless.call((a.as_tensor().clone(), b.as_detached_tensor()))?;
            context.backward(&y.sum_all()?)
        })
    });
}
