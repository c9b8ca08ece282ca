//! Parameters and options that a distributed optimiser refuses.

use candle_core::DType;
use telegrad_optim::{Adam, CosineAnnealingLr, OneCycleLr, RemoteGroup, StepLr};

use super::*;

#[remote]
fn make(values: Vec<f32>) -> Result<Param> {
    Param::named("made", &Tensor::new(values, &Device::Cpu)?)
}

#[remote]
fn make_integers() -> Result<Param> {
    Param::named("counts", &Tensor::zeros(2, DType::U32, &Device::Cpu)?)
}

#[remote]
fn fail_to_make() -> Result<Param> {
    Err(Error::other("the parameter cannot be made"))
}

#[test]
fn an_optimiser_without_parameters_is_refused() {
    on_rank_0(Cluster::threads(1), |world| {
        let none = DistributedOptimizer::new(world, Vec::new(), sgd(0.1));
        assert!(matches!(optim_error(none), OptimError::NoParameters));
        let none = DistributedOptimizer::<Sgd>::with_groups(world, Vec::new());
        assert!(matches!(optim_error(none), OptimError::NoParameters));
        let empty = RemoteGroup {
            params: Vec::new(),
            options: sgd(0.1),
        };
        let none = DistributedOptimizer::with_groups(world, vec![empty.clone(), empty]);
        assert!(matches!(optim_error(none), OptimError::NoParameters));
        Ok(())
    });
}

#[test]
fn a_duplicate_parameter_is_refused() {
    on_rank_0(Cluster::threads(3), |world| {
        let model = Model::new(world, &[1, 2])?;
        let params = model.params()?;
        // Other references to the same parameters.
        let again = model.params()?;
        let twice = vec![params[0].clone(), params[2].clone(), again[2].clone()];
        let failed = owners_of(DistributedOptimizer::new(world, twice, sgd(0.1)));
        let [(worker, error)] = &failed[..] else {
            panic!("{failed:?}")
        };
        assert_eq!(worker, "w2");
        assert!(error.contains("parameter `weight 1` was given before"), "{error}");
        // The same parameter in another group.
        let groups = [&params, &again].map(|params| RemoteGroup {
            params: params[..1].to_vec(),
            options: sgd(0.1),
        });
        let failed = owners_of(DistributedOptimizer::with_groups(world, groups.into()));
        assert_eq!(failed.len(), 1);
        assert!(failed[0].1.contains("`weight 0` was given before"), "{failed:?}");
        // A parameter can have two optimisers.
        let first = DistributedOptimizer::new(world, params, sgd(0.1))?;
        let second = DistributedOptimizer::new(world, again, sgd(0.1))?;
        model.train(world, &first, 0..1)?;
        model.train(world, &second, 1..2)?;
        assert_eq!(model.versions()?, [2; 4]);
        Ok(())
    });
}

#[test]
fn invalid_options_are_named() {
    on_rank_0(Cluster::threads(2), |world| {
        let params = Model::new(world, &[1])?.params()?;
        let named = |error: OptimError, of: &str, option: &str| {
            let text = error.to_string();
            assert!(text.starts_with(&format!("{of}: `{option}` is ")), "{text}");
        };
        let made = |options| DistributedOptimizer::new(world, params.clone(), options);
        named(optim_error(made(sgd(-0.1))), "sgd", "lr");
        let momentum = Sgd {
            momentum: f64::NAN,
            ..sgd(0.1)
        };
        named(optim_error(made(momentum)), "sgd", "momentum");
        let betas = Adam {
            betas: (0.9, 1.0),
            ..Adam::default()
        };
        let adam = DistributedOptimizer::new(world, params.clone(), betas);
        named(optim_error(adam), "adam", "betas.1");
        // Also the options of a group without parameters.
        let groups = [params.clone(), Vec::new()].map(|params| RemoteGroup {
            options: sgd(if params.is_empty() { f64::INFINITY } else { 0.1 }),
            params,
        });
        let group = DistributedOptimizer::with_groups(world, groups.into());
        named(optim_error(group), "sgd", "lr");

        for max_norm in [0.0, -1.0, f64::NAN] {
            let clipping = made(sgd(0.1))?.with_max_norm(max_norm);
            named(optim_error(clipping), "clipping", "max_norm");
        }
        let schedule = made(sgd(0.1))?.with_schedule(StepLr::new(0));
        named(optim_error(schedule), "step_lr", "step_size");
        let schedule = made(sgd(0.1))?.with_schedule(CosineAnnealingLr::new(0));
        named(optim_error(schedule), "cosine_annealing_lr", "t_max");
        let schedule = made(sgd(0.1))?.with_schedule(OneCycleLr::new(f64::NAN, 5));
        named(optim_error(schedule), "one_cycle_lr", "max_lr");
        Ok(())
    });
}

#[test]
fn unavailable_parameters_are_reported_with_their_worker() {
    // With one thread, a wait for a pending parameter must not block the thread that makes it.
    let cluster = Cluster::threads(3).options(|options| options.num_worker_threads = 1);
    on_rank_0(cluster, |world| {
        let good = world.remote(1, make, (vec![1.0],))?;
        let integers = world.remote(2, make_integers, ())?;
        let failing = world.remote(0, fail_to_make, ())?;
        let all = vec![good.clone(), integers, failing];
        let failed = owners_of(DistributedOptimizer::new(world, all, sgd(0.1)));
        let [(first, not_made), (second, no_floats)] = &failed[..] else {
            panic!("{failed:?}")
        };
        assert_eq!((&first[..], &second[..]), ("w0", "w2"));
        assert!(not_made.contains("the parameter cannot be made"), "{not_made}");
        assert!(
            no_floats.contains("parameter `counts` has elements of type U32"),
            "{no_floats}"
        );
        // The optimiser waits for pending parameters.
        let later = world.remote(1, make, (vec![2.0],))?;
        let optimizer = DistributedOptimizer::new(world, vec![good, later], sgd(0.1))?;
        assert_eq!(optimizer.owners(), ["w1"]);
        let shown = format!("{optimizer:?}");
        assert!(shown.contains("sgd") && shown.contains("w1"), "{shown}");
        Ok(())
    });
}
