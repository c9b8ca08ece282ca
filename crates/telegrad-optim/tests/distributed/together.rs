//! Concurrent trainers of the same parameters.

use std::sync::LazyLock;

use telegrad_testkit::{ReferenceCounts, on_threads_and_processes};

use super::learning_rate::Dot;
use super::*;

const TRAINERS: usize = 8;
const STEPS: usize = 25;

/// The gradient of one step of one trainer: whole numbers, so that sums are exact in any order.
fn gradient(trainer: usize, step: usize) -> Result<Tensor> {
    let values = [(trainer + 1) as f32, (step % 7) as f32 - 3.0, 1.0];
    Ok(Tensor::new(&values, &Device::Cpu)?)
}

/// The parameter after all steps of all trainers, with a learning rate of 1.
fn expected(trainers: usize) -> Result<Vec<f32>> {
    let mut sum = Tensor::new(&[0f32, 0.0, 0.0], &Device::Cpu)?;
    for trainer in 0..trainers {
        for step in 0..STEPS {
            sum = (sum - gradient(trainer, step)?)?;
        }
    }
    Ok(sum.to_vec1()?)
}

fn train(
    world: &World,
    trainer: usize,
    parts: &[RRef<Dot>],
    optimizer: &DistributedOptimizer<Sgd>,
) -> Result<()> {
    for step in 0..STEPS {
        world.context(|context| {
            let x = gradient(trainer, step)?;
            let mut sums = Vec::new();
            for part in parts {
                sums.push(part.rpc_sync(Dot::dot, (x.clone(),))?);
            }
            context.backward(&sums)?;
            optimizer.step(context)
        })?;
    }
    Ok(())
}

/// Runs trainers on threads of one worker, with a shared optimiser or one each.
fn threads_train_together(world: &World, shared: bool) -> Result<()> {
    let parts = [1, 0].map(|rank| world.remote(rank, Dot::new, (vec![0.0; 3],)));
    let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
    let new = || {
        let params = parts.iter().map(|part| part.rpc_sync(Dot::param, ()));
        DistributedOptimizer::new(world, params.collect::<Result<_>>()?, sgd(1.0))
    };
    let common = new()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..TRAINERS)
            .map(|trainer| {
                let (parts, common, new) = (&parts, &common, &new);
                scope.spawn(move || {
                    if shared {
                        train(world, trainer, parts, common)
                    } else {
                        train(world, trainer, parts, &new()?)
                    }
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap())
    })?;
    for part in &parts {
        assert_eq!(part.rpc_sync(Dot::value, ())?, expected(TRAINERS)?);
        assert_eq!(part.rpc_sync(Dot::version, ())?, (TRAINERS * STEPS) as u64);
    }
    assert_eq!(common.steps(), if shared { (TRAINERS * STEPS) as u64 } else { 0 });
    Ok(())
}

#[test]
fn concurrent_contexts_lose_no_step() {
    on_rank_0(Cluster::threads(2), |world| threads_train_together(world, true));
}

#[test]
fn concurrent_contexts_need_one_thread_per_worker() {
    let cluster = Cluster::threads(2).options(|options| options.num_worker_threads = 1);
    on_rank_0(cluster, |world| {
        threads_train_together(world, true)?;
        threads_train_together(world, false)
    });
}

#[test]
fn optimisers_of_the_same_parameters_lose_no_step() {
    on_rank_0(Cluster::threads(2), |world| threads_train_together(world, false));
}

on_threads_and_processes! { 4 =>
    workers_with_an_optimiser_each_lose_no_step
}

/// A reference to the one shared parameter of the process.
#[remote]
fn shared_part() -> Result<RRef<Dot>> {
    static VALUE: LazyLock<Param> = LazyLock::new(|| Dot::new(vec![0.0; 3]).unwrap().0);
    RRef::hold(&World::current()?, Dot(VALUE.clone()))
}

fn workers_with_an_optimiser_each_lose_no_step(cluster: Cluster) {
    with_autograd(cluster).run(|world| {
        let part = world.rpc_sync(0, shared_part, ()).unwrap();
        if world.rank() != 0 {
            let params = vec![part.rpc_sync(Dot::param, ()).unwrap()];
            let optimizer = DistributedOptimizer::new(&world, params, sgd(1.0)).unwrap();
            train(
                &world,
                world.rank() as usize - 1,
                std::slice::from_ref(&part),
                &optimizer,
            )
            .unwrap();
        }
        world.barrier().unwrap();
        assert_eq!(part.rpc_sync(Dot::value, ()).unwrap(), expected(3).unwrap());
        assert_eq!(part.rpc_sync(Dot::version, ()).unwrap(), 3 * STEPS as u64);
        world.barrier().unwrap();
    });
}

/// `sum(value²)`, with twice the read value as gradient.
struct Square(Param);

#[remote]
impl Square {
    fn new(values: Vec<f32>) -> Result<Self> {
        Ok(Self(Param::new(&Tensor::new(values, &Device::Cpu)?)?))
    }

    fn forward(&self) -> Result<Tensor> {
        Ok(self.0.tensor().sqr()?.sum_all()?)
    }

    fn param(&self) -> Result<RRef<Param>> {
        RRef::hold(&World::current()?, self.0.clone())
    }

    fn value(&self) -> Result<Vec<f32>> {
        Ok(self.0.value().to_vec1()?)
    }
}

#[test]
fn a_step_uses_the_gradient_of_the_value_that_its_context_read() {
    on_rank_0(Cluster::threads(2), |world| {
        // Other contexts make one step, then many, between the read and the write.
        for others in [1, 40] {
            let start = [1024f32, -2048.0];
            let square = world.remote(1, Square::new, (start.to_vec(),))?;
            let params = vec![square.rpc_sync(Square::param, ())?];
            let optimizer = DistributedOptimizer::new(world, params, sgd(0.75))?;
            let step = |between: &(dyn Fn() -> Result<()> + Sync)| {
                world.context(|context| {
                    let y = square.rpc_sync(Square::forward, ())?;
                    between()?;
                    context.backward(&[y])?;
                    optimizer.step(context)
                })
            };
            step(&|| {
                std::thread::scope(|scope| {
                    let made = scope.spawn(|| (0..others).try_for_each(|_| step(&|| Ok(()))));
                    made.join().unwrap()
                })
            })?;
            // Each of the other steps multiplies the value by -0.5.
            let expected = start.map(|x| x * (-0.5f32).powi(others) - 0.75 * (2.0 * x));
            assert_eq!(square.rpc_sync(Square::value, ())?, expected);
            assert_eq!(optimizer.steps(), others as u64 + 1);
        }
        Ok(())
    });
}

/// Makes a step in the caller's context.
#[remote]
fn step_for(params: Vec<RRef<Param>>) -> Result<()> {
    let optimizer = DistributedOptimizer::new(&World::current()?, params, sgd(1.0))?;
    optimizer.step(&Context::current()?)
}

#[test]
fn other_threads_and_workers_can_make_steps_in_a_context() {
    on_rank_0(Cluster::threads(3), |world| {
        let part = world.remote(1, Dot::new, (vec![0.0; 3],))?;
        let params = vec![part.rpc_sync(Dot::param, ())?];
        let optimizer = DistributedOptimizer::new(world, params.clone(), sgd(1.0))?;
        world.context(|context| {
            let x = Tensor::new(&[1f32, 2.0, 3.0], &Device::Cpu)?;
            context.backward(&[part.rpc_sync(Dot::dot, (x,))?])?;
            std::thread::scope(|scope| scope.spawn(|| optimizer.step(context)).join().unwrap())?;
            world.rpc_sync(2, step_for, (params.clone(),))
        })?;
        assert_eq!(part.rpc_sync(Dot::value, ())?, [-2.0, -4.0, -6.0]);
        Ok(())
    });
}

#[test]
fn a_dropped_optimiser_leaves_no_state() {
    let cluster = with_autograd(Cluster::threads(3));
    let board = cluster.board();
    cluster.run(move |world| {
        if world.rank() == 0 {
            let model = Model::new(&world, &[0, 1, 2]).unwrap();
            let optimizer = DistributedOptimizer::new(&world, model.params().unwrap(), sgd(0.1)).unwrap();
            model.train(&world, &optimizer, 0..3).unwrap();
            board.raise("dropped");
        }
        board.wait("dropped");
        ReferenceCounts::default().wait(&world);
        let info = world.autograd_info().unwrap();
        assert_eq!((info.contexts, info.gradients), (0, 0));
    });
}
