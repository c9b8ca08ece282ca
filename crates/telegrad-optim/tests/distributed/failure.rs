//! Steps that fail on some owners.

use candle_core::Var;
use telegrad_testkit::wait_until;

use super::messages::PATIENCE;
use super::*;

/// `sum(x · value)`, with a variable that is changed in place.
struct InPlace(Param);

#[remote]
impl InPlace {
    fn new(name: String, values: Vec<f32>) -> Result<Self> {
        let variable = Var::from_tensor(&Tensor::new(values, &Device::Cpu)?)?;
        Ok(Self(Param::from_var(name, variable)))
    }

    fn dot(&self, x: Tensor) -> Result<Tensor> {
        Ok((self.0.tensor() * x)?.sum_all()?)
    }

    fn param(&self) -> Result<RRef<Param>> {
        RRef::hold(&World::current()?, self.0.clone())
    }

    fn value(&self) -> Result<Vec<f32>> {
        Ok(self.0.value().to_vec1()?)
    }
}

#[test]
fn failed_owners_are_named_and_the_others_have_made_the_step() {
    let cluster = Cluster::threads(3).no_shutdown();
    let board = cluster.board();
    with_autograd(cluster).run(move |world| match world.rank() {
        0 => {
            let body = || -> Result<()> {
                let held = world.remote(1, InPlace::new, ("held".into(), vec![5.0, 7.0]))?;
                let model = Model::new(&world, &[0, 2])?;
                let mut params = model.params()?;
                params.push(held.rpc_sync(InPlace::param, ())?);
                let optimizer = DistributedOptimizer::new(&world, params, sgd(1.0))?;
                let ones = Tensor::new(&[1f32, 1.0], &Device::Cpu)?;
                let before = model.values()?;
                world.context(|context| {
                    let (x, target) = example(0)?;
                    let y = held.rpc_sync(InPlace::dot, (ones.clone(),))?;
                    let loss = loss_of(&model.forward(&x)?, &target)?;
                    context.backward(&[(loss + y)?])?;
                    // Another context needs the present value of the variable.
                    std::thread::scope(|scope| {
                        let other = scope.spawn(|| {
                            world.context(|_| {
                                held.rpc_sync(InPlace::dot, (ones.clone(),))?;
                                board.raise("in use");
                                board.wait("over");
                                Ok(())
                            })
                        });
                        board.wait("in use");
                        board.raise("leave");
                        let departed = || world.rpc_sync(2, nothing, ()).is_err();
                        wait_until(PATIENCE, departed, || "worker `w2` does not leave");
                        let failed = owners_of(optimizer.step(context));
                        let [(first, in_use), (second, lost)] = &failed[..] else {
                            panic!("{failed:?}")
                        };
                        assert_eq!((&first[..], &second[..]), ("w1", "w2"));
                        assert!(in_use.contains("parameter `held` is a variable"), "{in_use}");
                        assert!(lost.contains("worker `w2`"), "{lost}");
                        board.raise("over");
                        other.join().unwrap()
                    })
                })?;
                assert_eq!(held.rpc_sync(InPlace::value, ())?, [5.0, 7.0]);
                // A step that fails on an owner does not count.
                assert_eq!(optimizer.steps(), 0);
                let here = &model.0[0];
                assert_eq!(here.rpc_sync(Stage::versions, ())?, [1, 1]);
                let after: Vec<f32> = here.rpc_sync(Stage::values, ())?[0].flatten_all()?.to_vec1()?;
                assert_ne!(after, before[0]);
                Ok(())
            };
            body().unwrap();
        }
        2 => {
            board.wait("leave");
            world.shutdown_now();
        }
        _ => {}
    });
}

#[remote]
fn nothing() {}

#[test]
fn no_owner_makes_a_step_in_a_failed_context() {
    on_rank_0(Cluster::threads(3), |world| {
        let model = Model::new(world, &[1, 2])?;
        let optimizer = DistributedOptimizer::new(world, model.params()?, sgd(0.1))?;
        let ended = world.context(|context| {
            let (x, target) = example(0)?;
            let loss = loss_of(&model.forward(&x)?, &target)?;
            context.backward(std::slice::from_ref(&loss))?;
            // The graph has been freed.
            context.backward(&[loss]).unwrap_err();
            let failed = owners_of(optimizer.step(context));
            let workers: Vec<_> = failed.iter().map(|(worker, _)| worker.as_str()).collect();
            assert_eq!(workers, ["w1", "w2"]);
            for (_, error) in &failed {
                assert!(error.contains("has failed"), "{error}");
            }
            Ok(())
        });
        ended?;
        assert_eq!(model.versions()?, [0; 4]);
        assert_eq!(optimizer.steps(), 0);
        // A new context works.
        model.train(world, &optimizer, 0..1)?;
        assert_eq!(model.versions()?, [1; 4]);
        Ok(())
    });
}

#[test]
fn parameters_of_a_departed_worker_are_refused() {
    let cluster = Cluster::threads(3).no_shutdown();
    let board = cluster.board();
    with_autograd(cluster).run(move |world| match world.rank() {
        0 => {
            let model = Model::new(&world, &[1, 2]).unwrap();
            let params = model.params().unwrap();
            board.raise("leave");
            let departed = || world.rpc_sync(2, nothing, ()).is_err();
            wait_until(PATIENCE, departed, || "worker `w2` does not leave");
            let failed = owners_of(DistributedOptimizer::new(&world, params.clone(), sgd(0.1)));
            let [(worker, error)] = &failed[..] else {
                panic!("{failed:?}")
            };
            assert_eq!(worker, "w2");
            assert!(error.contains("worker `w2`"), "{error}");
            // Errors of other owners are reported as well.
            let twice = [&params[..], &params[..1]].concat();
            let failed = owners_of(DistributedOptimizer::new(&world, twice, sgd(0.1)));
            let workers: Vec<_> = failed.iter().map(|(worker, _)| worker.as_str()).collect();
            assert_eq!(workers, ["w1", "w2"]);
            assert!(failed[0].1.contains("was given before"), "{failed:?}");
            // The other parameters can be optimised.
            DistributedOptimizer::new(&world, params[..2].to_vec(), sgd(0.1)).unwrap();
        }
        2 => {
            board.wait("leave");
            world.shutdown_now();
        }
        _ => {}
    });
}
