//! Steps on many workers match those of one process.

use telegrad_optim::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Optimizer, ParamGroup, RMSprop, RemoteGroup, Rprop,
};
use telegrad_testkit::on_threads_and_processes;

use super::*;

on_threads_and_processes! { 3 =>
    twenty_steps_of_every_algorithm_match_one_process
}

/// Compares the model on all workers, the caller in the middle, with the same model in one process.
fn compare<A: RemoteAlgorithm>(world: &World, options: A) -> Result<()> {
    let model = Model::new(world, &[1, 0, 2])?;
    let optimizer = DistributedOptimizer::new(world, model.params()?, options.clone())?;
    assert_eq!(optimizer.owners(), ["w0", "w1", "w2"]);
    let local = LocalModel::new(3)?;
    let params = local.params();
    let mut expected = Optimizer::new(params.clone(), options)?;
    let start = local.values()?;
    assert_eq!(model.values()?, start);
    for step in 0..20 {
        model.train(world, &optimizer, step..step + 1)?;
        let gradients = local.gradients(step)?;
        expected.step_with(|param| Ok(gradient_of(param, &params, &gradients)))?;
    }
    assert_close(&model.values()?, &local.values()?, A::NAME);
    for (found, start) in model.values()?.iter().zip(&start) {
        assert_ne!(found, start, "{}: unchanged", A::NAME);
    }
    assert_eq!(model.versions()?, [20; 6]);
    assert_eq!(optimizer.steps(), 20);
    Ok(())
}

fn twenty_steps_of_every_algorithm_match_one_process(cluster: Cluster) {
    on_rank_0(cluster, |world| {
        let momentum = Sgd {
            momentum: 0.9,
            weight_decay: 0.01,
            nesterov: true,
            ..sgd(0.1)
        };
        compare(world, momentum)?;
        compare(world, sgd(0.1))?;
        compare(
            world,
            Adam {
                lr: 0.01,
                ..Adam::default()
            },
        )?;
        compare(
            world,
            AdamW {
                lr: 0.01,
                ..AdamW::default()
            },
        )?;
        compare(
            world,
            Adagrad {
                lr: 0.05,
                ..Adagrad::default()
            },
        )?;
        compare(
            world,
            Adadelta {
                lr: 1.0,
                ..Adadelta::default()
            },
        )?;
        compare(
            world,
            RMSprop {
                lr: 0.01,
                ..RMSprop::default()
            },
        )?;
        compare(
            world,
            Rprop {
                lr: 0.01,
                ..Rprop::default()
            },
        )?;
        compare(
            world,
            Adamax {
                lr: 0.01,
                ..Adamax::default()
            },
        )
    });
}

#[test]
fn groups_spread_over_workers_keep_their_own_options() {
    on_rank_0(Cluster::threads(3), |world| {
        let model = Model::new(world, &[1, 0, 2])?;
        let params = model.params()?;
        let local = LocalModel::new(3)?;
        let all = local.params();
        // Two weights, three biases, and a group on one worker only.
        let pick = [vec![0, 4], vec![1, 3, 5], vec![2]];
        let options = [
            sgd(0.5),
            Sgd {
                momentum: 0.8,
                ..sgd(0.05)
            },
            Sgd {
                weight_decay: 0.3,
                ..sgd(0.2)
            },
        ];
        let groups = pick.iter().zip(&options).map(|(pick, options)| RemoteGroup {
            params: pick.iter().map(|nth| params[*nth].clone()).collect(),
            options: options.clone(),
        });
        let optimizer = DistributedOptimizer::with_groups(world, groups.collect())?;
        let groups = pick.iter().zip(&options).map(|(pick, options)| ParamGroup {
            params: pick.iter().map(|nth| all[*nth].clone()).collect(),
            options: options.clone(),
        });
        let mut expected = Optimizer::with_groups(groups)?;
        assert_eq!(optimizer.lrs(), [0.5, 0.05, 0.2]);
        for step in 0..10 {
            if step == 5 {
                optimizer.set_lr(1, 0.4)?;
                expected.set_lr(1, 0.4)?;
            }
            model.train(world, &optimizer, step..step + 1)?;
            let gradients = local.gradients(step)?;
            expected.step_with(|param| Ok(gradient_of(param, &all, &gradients)))?;
        }
        assert_close(&model.values()?, &local.values()?, "groups");
        Ok(())
    });
}

#[test]
fn parameters_without_a_gradient_are_unchanged() {
    on_rank_0(Cluster::threads(3), |world| {
        let model = Model::new(world, &[1, 2, 0])?;
        let options = Adam {
            weight_decay: 0.5,
            ..Adam::default()
        };
        let optimizer = DistributedOptimizer::new(world, model.params()?, options.clone())?;
        let before = model.values()?;
        // Only the worker of the first stage takes part in the context.
        world.context(|context| {
            let (x, target) = example(0)?;
            let y = model.0[0].rpc_sync(Stage::forward, (x,))?;
            context.backward(&[loss_of(&y, &target)?])?;
            optimizer.step(context)
        })?;
        let after = model.values()?;
        assert_ne!(after[..2], before[..2]);
        assert_eq!(after[2..], before[2..]);
        assert_eq!(model.versions()?, [1, 1, 0, 0, 0, 0]);
        // A context without a pass changes no parameter.
        world.context(|context| optimizer.step(context))?;
        assert_eq!(model.values()?, after);
        // The other stages have had no step: their first step has the bias correction of a first step.
        let local = LocalModel::new(3)?;
        let params = local.params();
        let mut expected = Optimizer::new(params.clone(), options)?;
        let first = {
            let (x, target) = example(0)?;
            let leaves = [local.0[0].weight.tensor(), local.0[0].bias.tensor()];
            let found = loss_of(&local.0[0].apply(&x)?, &target)?.backward()?;
            leaves.map(|leaf| found.get(&leaf).cloned())
        };
        expected.step_with(|param| {
            let place = params.iter().position(|other| other.is(param));
            Ok(place.and_then(|place| first.get(place).cloned().flatten()))
        })?;
        let gradients = local.gradients(1)?;
        expected.step_with(|param| Ok(gradient_of(param, &params, &gradients)))?;
        model.train(world, &optimizer, 1..2)?;
        assert_close(&model.values()?, &local.values()?, "later");
        Ok(())
    });
}

#[test]
fn passes_of_one_context_add_their_gradients() {
    on_rank_0(Cluster::threads(2), |world| {
        let model = Model::new(world, &[1])?;
        let optimizer = DistributedOptimizer::new(world, model.params()?, sgd(0.1))?;
        let local = LocalModel::new(1)?;
        let params = local.params();
        let mut expected = Optimizer::new(params.clone(), sgd(0.1))?;
        world.context(|context| {
            model.pass(context, 0)?;
            optimizer.step(context)?;
            // The second pass reads the updated parameters, and adds its gradients.
            model.pass(context, 1)?;
            optimizer.step(context)
        })?;
        let first = local.gradients(0)?;
        expected.step_with(|param| Ok(gradient_of(param, &params, &first)))?;
        let second = local.gradients(1)?;
        let both = first.iter().zip(&second).map(|(a, b)| Ok((a + b)?));
        let both = both.collect::<Result<Vec<_>>>()?;
        expected.step_with(|param| Ok(gradient_of(param, &params, &both)))?;
        assert_close(&model.values()?, &local.values()?, "both");
        Ok(())
    });
}
