//! Candle models.

use candle_core::DType;
use candle_nn::{Linear, Module, VarBuilder, VarMap};
use telegrad_optim::{AdamW, Optimizer};

use super::*;

/// Two candle layers, with their variables in a map.
struct Net {
    variables: VarMap,
    first: Linear,
    second: Linear,
}

#[remote]
impl Net {
    fn new(seed: u64) -> Result<Self> {
        let variables = VarMap::new();
        let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
        let first = candle_nn::linear(WIDTH, 5, builder.pp("first"))?;
        let second = candle_nn::linear(5, WIDTH, builder.pp("second"))?;
        let net = Self {
            variables,
            first,
            second,
        };
        // candle's initial values differ from run to run.
        for (nth, (_, variable)) in net.sorted().into_iter().enumerate() {
            let count = variable.elem_count();
            variable.set(&numbers((1, count), seed + nth as u64)?.reshape(variable.shape())?)?;
        }
        Ok(net)
    }

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        Ok(self.second.forward(&self.first.forward(&x)?.tanh()?)?)
    }

    fn params(&self) -> Result<Vec<RRef<Param>>> {
        let world = World::current()?;
        let params = self.own().into_iter();
        params.map(|param| RRef::hold(&world, param)).collect()
    }

    fn values(&self) -> Result<Vec<Tensor>> {
        Ok(self
            .sorted()
            .into_iter()
            .map(|(_, variable)| variable.as_detached_tensor())
            .collect())
    }
}

impl Net {
    fn sorted(&self) -> Vec<(String, candle_core::Var)> {
        let map = self.variables.data().lock().unwrap();
        let mut all: Vec<_> = map
            .iter()
            .map(|(name, variable)| (name.clone(), variable.clone()))
            .collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    fn own(&self) -> Vec<Param> {
        let all = self.sorted().into_iter();
        all.map(|(name, variable)| Param::from_var(name, variable))
            .collect()
    }
}

fn flat(values: &[Tensor]) -> Result<Vec<Vec<f32>>> {
    values
        .iter()
        .map(|value| Ok(value.flatten_all()?.to_vec1()?))
        .collect()
}

#[test]
fn a_candle_model_is_trained_on_its_worker() {
    on_rank_0(Cluster::threads(3), |world| {
        let nets = [1, 2].map(|rank| world.remote(rank, Net::new, (u64::from(rank) * 10,)).unwrap());
        let params = [
            nets[0].rpc_sync(Net::params, ())?,
            nets[1].rpc_sync(Net::params, ())?,
        ]
        .concat();
        assert_eq!(params.len(), 8);
        let options = AdamW {
            lr: 0.02,
            ..AdamW::default()
        };
        let optimizer = DistributedOptimizer::new(world, params, options.clone())?;
        let here = [Net::new(10)?, Net::new(20)?];
        let own: Vec<_> = here.iter().flat_map(Net::own).collect();
        let mut expected = Optimizer::new(own.clone(), options)?;
        let mut losses = Vec::new();
        for _ in 0..30 {
            let (x, target) = example(0)?;
            let loss = world.context(|context| {
                let y = nets[1].rpc_sync(Net::forward, (nets[0].rpc_sync(Net::forward, (x.clone(),))?,))?;
                let loss = loss_of(&y, &target)?;
                context.backward(std::slice::from_ref(&loss))?;
                optimizer.step(context)?;
                Ok(loss.to_scalar::<f32>()?)
            })?;
            losses.push(loss);
            let y = here[1].forward(here[0].forward(x)?)?;
            expected.step(&loss_of(&y, &target)?.backward()?)?;
        }
        assert!(losses[29] < losses[0] / 4.0, "{losses:?}");
        for (net, here) in nets.iter().zip(&here) {
            let found = flat(&net.rpc_sync(Net::values, ())?)?;
            assert_close(&found, &flat(&here.values()?)?, "VarMap");
        }
        Ok(())
    });
}

#[test]
fn a_variable_needed_by_another_context_is_not_changed() {
    let cluster = Cluster::threads(3);
    let board = cluster.board();
    on_rank_0(cluster, move |world| {
        let net = world.remote(1, Net::new, (10,))?;
        let model = Model::new(world, &[2])?;
        let params = [model.params()?, net.rpc_sync(Net::params, ())?].concat();
        // With clipping too: computing the norm changes no variable.
        let optimizer = DistributedOptimizer::new(world, params, sgd(0.5))?.with_max_norm(100.0)?;
        let before = flat(&net.rpc_sync(Net::values, ())?)?;
        let pass = |context: &Context, step| {
            let (x, target) = example(step)?;
            let y = net.rpc_sync(Net::forward, (model.forward(&x)?,))?;
            context.backward(&[loss_of(&y, &target)?])
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                world.context(|context| {
                    let (x, target) = example(7)?;
                    let y = net.rpc_sync(Net::forward, (x,))?;
                    board.raise("read");
                    board.wait("refused");
                    // The value that this context has read is unchanged.
                    context.backward(&[loss_of(&y, &target)?])
                })
            });
            board.wait("read");
            world.context(|context| {
                pass(context, 0)?;
                let failed = owners_of(optimizer.step(context));
                let [(worker, error)] = &failed[..] else {
                    panic!("{failed:?}")
                };
                assert_eq!(worker, "w1");
                let text = "parameter `first.bias` is a variable that is changed in place, and";
                assert!(error.contains(text) && error.contains("still needs"), "{error}");
                Ok(())
            })?;
            assert_eq!(flat(&net.rpc_sync(Net::values, ())?)?, before);
            assert_eq!(model.versions()?, [1, 1]);
            board.raise("refused");
            other.join().unwrap()
        })?;
        // No other context needs the variable now.
        world.context(|context| {
            pass(context, 1)?;
            optimizer.step(context)
        })?;
        let after = flat(&net.rpc_sync(Net::values, ())?)?;
        for (after, before) in after.iter().zip(&before) {
            assert_ne!(after, before);
        }
        assert_eq!(model.versions()?, [2, 2]);
        Ok(())
    });
}

#[test]
fn a_step_ignores_variables_in_use_that_it_does_not_change() {
    let cluster = Cluster::threads(2);
    let board = cluster.board();
    on_rank_0(cluster, move |world| {
        let nets = [10, 20].map(|seed| world.remote(1, Net::new, (seed,)).unwrap());
        let params = [
            nets[0].rpc_sync(Net::params, ())?,
            nets[1].rpc_sync(Net::params, ())?,
        ]
        .concat();
        let optimizer = DistributedOptimizer::new(world, params, sgd(0.5))?;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                world.context(|context| {
                    let (x, target) = example(7)?;
                    let y = nets[0].rpc_sync(Net::forward, (x,))?;
                    board.raise("read");
                    board.wait("stepped");
                    context.backward(&[loss_of(&y, &target)?])?;
                    optimizer.step(context)
                })
            });
            board.wait("read");
            // Uses the second net only.
            let step = world.context(|context| {
                let (x, target) = example(0)?;
                let y = nets[1].rpc_sync(Net::forward, (x,))?;
                context.backward(&[loss_of(&y, &target)?])?;
                optimizer.step(context)
            });
            board.raise("stepped");
            step?;
            other.join().unwrap()
        })
    });
}
