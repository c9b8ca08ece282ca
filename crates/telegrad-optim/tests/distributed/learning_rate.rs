//! Clipping, schedules and learning rates.

use telegrad_optim::{
    Adam, CosineAnnealingLr, LinearLr, OneCycleLr, Optimizer, RemoteGroup, Schedule, StepLr, WarmUp,
};

use super::*;

/// `sum(x · value)`, with the gradient `x`.
pub(super) struct Dot(pub(super) Param);

#[remote]
impl Dot {
    pub(super) fn new(values: Vec<f32>) -> Result<Self> {
        Ok(Self(Param::named("value", &Tensor::new(values, &Device::Cpu)?)?))
    }

    pub(super) fn dot(&self, x: Tensor) -> Result<Tensor> {
        Ok((self.0.tensor() * x)?.sum_all()?)
    }

    pub(super) fn param(&self) -> Result<RRef<Param>> {
        RRef::hold(&World::current()?, self.0.clone())
    }

    pub(super) fn value(&self) -> Result<Vec<f32>> {
        Ok(self.0.value().to_vec1()?)
    }

    pub(super) fn version(&self) -> u64 {
        self.0.version()
    }
}

#[test]
fn gradients_are_clipped_by_the_norm_over_all_workers() {
    on_rank_0(Cluster::threads(3), |world| {
        // Always, sometimes and never clipped.
        for (max_norm, expected) in [(0.05, 20..21), (0.8, 1..20), (1e9, 0..1)] {
            let model = Model::new(world, &[1, 0, 2])?;
            let options = Sgd {
                momentum: 0.5,
                ..sgd(0.3)
            };
            let optimizer = DistributedOptimizer::new(world, model.params()?, options.clone())?
                .with_max_norm(max_norm)?;
            let here = LocalModel::new(3)?;
            let params = here.params();
            let mut local = Optimizer::new(params.clone(), options)?;
            let mut clipped = 0;
            for step in 0..20 {
                model.train(world, &optimizer, step..step + 1)?;
                // As in torch.nn.utils.clip_grad_norm_.
                let mut gradients = here.gradients(step)?;
                let mut squares = 0.0;
                for gradient in &gradients {
                    squares += f64::from(gradient.sqr()?.sum_all()?.to_scalar::<f32>()?);
                }
                let factor = max_norm / (squares.sqrt() + 1e-6);
                if factor < 1.0 {
                    clipped += 1;
                    for gradient in &mut gradients {
                        *gradient = (&*gradient * factor)?;
                    }
                }
                local.step_with(|param| Ok(gradient_of(param, &params, &gradients)))?;
            }
            assert_close(&model.values()?, &here.values()?, &format!("{max_norm}"));
            assert!(expected.contains(&clipped), "{max_norm}: {clipped} times");
        }
        Ok(())
    });
}

#[test]
fn gradients_without_a_finite_norm_change_nothing_and_name_the_worker() {
    on_rank_0(Cluster::threads(3), |world| {
        let parts = [1, 2].map(|rank| world.remote(rank, Dot::new, (vec![1.0, 2.0],)));
        let [first, second] = parts.map(Result::unwrap);
        let params = vec![first.rpc_sync(Dot::param, ())?, second.rpc_sync(Dot::param, ())?];
        let optimizer = DistributedOptimizer::new(world, params, Adam::default())?.with_max_norm(1.0)?;
        for bad in [f32::INFINITY, f32::NAN] {
            let step = world.context(|context| {
                let good = first.rpc_sync(Dot::dot, (Tensor::new(&[1f32, 2.0], &Device::Cpu)?,))?;
                let bad = second.rpc_sync(Dot::dot, (Tensor::new(&[1f32, bad], &Device::Cpu)?,))?;
                context.backward(&[(good + bad)?])?;
                optimizer.step(context)
            });
            let error = optim_error(step);
            assert!(
                matches!(&error, OptimError::NotFinite(workers) if workers == &["w2"]),
                "{error}"
            );
            assert!(error.to_string().contains("no step was made"), "{error}");
        }
        for part in [&first, &second] {
            assert_eq!(part.rpc_sync(Dot::value, ())?, [1.0, 2.0]);
        }
        assert_eq!(optimizer.steps(), 0);
        Ok(())
    });
}

/// Makes steps with a schedule, and checks that each one subtracts the expected learning rate.
fn follow(world: &World, schedule: impl Schedule + Send + Sync + 'static, expected: &[f64]) -> Result<()> {
    let part = world.remote(1, Dot::new, (vec![0.0],))?;
    let other = world.remote(0, Dot::new, (vec![0.0],))?;
    let group = |part: &RRef<Dot>, lr| {
        Ok(RemoteGroup {
            params: vec![part.rpc_sync(Dot::param, ())?],
            options: sgd(lr),
        })
    };
    let groups: Result<_> = [group(&part, 1.0), group(&other, 0.5)].into_iter().collect();
    let optimizer = DistributedOptimizer::with_groups(world, groups?)?.with_schedule(schedule)?;
    let one = Tensor::new(&[1f32], &Device::Cpu)?;
    let mut at = [0.0, 0.0];
    for (step, lr) in expected.iter().enumerate() {
        let lrs = optimizer.lrs();
        assert!((lrs[0] - lr).abs() < 1e-9, "{lrs:?} in step {step}, not {lr}");
        world.context(|context| {
            let sum =
                (part.rpc_sync(Dot::dot, (one.clone(),))? + other.rpc_sync(Dot::dot, (one.clone(),))?)?;
            context.backward(&[sum])?;
            optimizer.step(context)
        })?;
        for (part, (at, lr)) in [&part, &other].into_iter().zip(at.iter_mut().zip(&lrs)) {
            *at -= lr;
            let found = f64::from(part.rpc_sync(Dot::value, ())?[0]);
            assert!((found - *at).abs() < 1e-6, "{found} after step {step}, not {at}");
        }
    }
    Ok(())
}

#[test]
fn schedules_drive_the_learning_rate_of_every_owner() {
    on_rank_0(Cluster::threads(2), |world| {
        let halved = StepLr {
            step_size: 2,
            gamma: 0.5,
        };
        follow(world, halved, &[1.0, 1.0, 0.5, 0.5, 0.25])?;
        follow(
            world,
            CosineAnnealingLr::new(4),
            &[1.0, 0.853_553_390_593, 0.5, 0.146_446_609_407, 0.0],
        )?;
        let up = LinearLr {
            start_factor: 0.25,
            total_iters: 3,
            ..LinearLr::default()
        };
        follow(world, up.clone(), &[0.25, 0.5, 0.75, 1.0, 1.0])?;
        let then = StepLr {
            step_size: 1,
            gamma: 0.1,
        };
        follow(world, WarmUp { first: up, then }, &[0.25, 0.5, 0.75, 1.0, 0.1])?;
        // torch.optim.lr_scheduler.OneCycleLR(max_lr=2.0, total_steps=5)
        let cycle = OneCycleLr {
            pct_start: 0.4,
            ..OneCycleLr::new(2.0, 5)
        };
        follow(world, cycle, &[0.08, 2.0, 1.500_002, 0.500_006, 0.000_008])
    });
}

#[test]
fn the_learning_rate_can_be_replaced() {
    on_rank_0(Cluster::threads(2), |world| {
        let part = world.remote(1, Dot::new, (vec![0.0],))?;
        let one = Tensor::new(&[1f32], &Device::Cpu)?;
        let step = |optimizer: &DistributedOptimizer<Sgd>| -> Result<f32> {
            let before = part.rpc_sync(Dot::value, ())?[0];
            world.context(|context| {
                context.backward(&[part.rpc_sync(Dot::dot, (one.clone(),))?])?;
                optimizer.step(context)
            })?;
            Ok(before - part.rpc_sync(Dot::value, ())?[0])
        };
        let new = || DistributedOptimizer::new(world, vec![part.rpc_sync(Dot::param, ())?], sgd(1.0));
        let plain = new()?;
        assert_eq!(step(&plain)?, 1.0);
        plain.set_lr(0, 0.25)?;
        assert_eq!(plain.lrs(), [0.25]);
        assert_eq!(step(&plain)?, 0.25);
        // With a schedule, `set_lr` replaces the base.
        let halved = StepLr {
            step_size: 1,
            gamma: 0.5,
        };
        let scheduled = new()?.with_schedule(halved)?;
        assert_eq!(step(&scheduled)?, 1.0);
        scheduled.set_lr(0, 4.0)?;
        assert_eq!(scheduled.lrs(), [2.0]);
        assert_eq!(step(&scheduled)?, 2.0);
        assert_eq!(step(&scheduled)?, 1.0);
        for lr in [-1.0, f64::NAN, f64::INFINITY] {
            let error = optim_error(plain.set_lr(0, lr));
            assert!(error.to_string().starts_with("sgd: `lr` is "), "{error}");
        }
        let error = optim_error(plain.set_lr(1, 0.5));
        assert!(
            matches!(error, OptimError::NoGroup { group: 1, groups: 1 }),
            "{error}"
        );
        assert_eq!(plain.lrs(), [0.25]);
        Ok(())
    });
}
