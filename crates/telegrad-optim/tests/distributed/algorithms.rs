//! Steps on many workers are those of one process.

use telegrad_optim::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Optimizer, ParamGroup, RMSprop, RemoteGroup, Rprop,
};
use telegrad_testkit::on_threads_and_processes;

use super::*;

on_threads_and_processes! { 3 =>
    twenty_steps_of_every_algorithm_are_those_of_one_process
}

/// The model on all workers, the caller's own in the middle, against the same in one process.
fn compare<A: RemoteAlgorithm>(world: &World, options: A) -> Result<()> {
    let model = Model::new(world, &[1, 0, 2])?;
    let optimizer = DistributedOptimizer::new(world, model.params()?, options.clone())?;
    assert_eq!(optimizer.owners(), ["w0", "w1", "w2"]);
    let here = Here::new(3)?;
    let params = here.params();
    let mut expected = Optimizer::new(params.clone(), options)?;
    let start = here.values()?;
    assert_eq!(model.values()?, start);
    for step in 0..20 {
        model.train(world, &optimizer, step..step + 1)?;
        let gradients = here.gradients(step)?;
        expected.step_with(|param| Ok(gradient_of(param, &params, &gradients)))?;
    }
    assert_close(&model.values()?, &here.values()?, A::NAME);
    for (found, start) in model.values()?.iter().zip(&start) {
        assert_ne!(found, start, "{}: it has moved", A::NAME);
    }
    assert_eq!(model.versions()?, [20; 6]);
    assert_eq!(optimizer.steps(), 20);
    Ok(())
}

fn twenty_steps_of_every_algorithm_are_those_of_one_process(cluster: Cluster) {
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
        let here = Here::new(3)?;
        let all = here.params();
        // Weights, biases, and one of each that is on one worker only.
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
            let gradients = here.gradients(step)?;
            expected.step_with(|param| Ok(gradient_of(param, &all, &gradients)))?;
        }
        assert_close(&model.values()?, &here.values()?, "groups");
        Ok(())
    });
}

#[test]
fn what_has_no_gradient_is_left_alone() {
    on_rank_0(Cluster::threads(3), |world| {
        let model = Model::new(world, &[1, 2, 0])?;
        let options = Adam {
            weight_decay: 0.5,
            ..Adam::default()
        };
        let optimizer = DistributedOptimizer::new(world, model.params()?, options.clone())?;
        let before = model.values()?;
        // Nobody but the first stage takes part: not even in the context.
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
        // And in a context without any pass, nobody moves.
        world.context(|context| optimizer.step(context))?;
        assert_eq!(model.values()?, after);
        // What waited has had no step: its first one is a first one, with the momentum of one.
        let here = Here::new(3)?;
        let params = here.params();
        let mut expected = Optimizer::new(params.clone(), options)?;
        let first = {
            let (x, target) = example(0)?;
            let leaves = [here.0[0].weight.tensor(), here.0[0].bias.tensor()];
            let found = loss_of(&here.0[0].apply(&x)?, &target)?.backward()?;
            leaves.map(|leaf| found.get(&leaf).cloned())
        };
        expected.step_with(|param| {
            let place = params.iter().position(|other| other.is(param));
            Ok(place.and_then(|place| first.get(place).cloned().flatten()))
        })?;
        let gradients = here.gradients(1)?;
        expected.step_with(|param| Ok(gradient_of(param, &params, &gradients)))?;
        model.train(world, &optimizer, 1..2)?;
        assert_close(&model.values()?, &here.values()?, "later");
        Ok(())
    });
}

#[test]
fn two_steps_in_one_context_add_to_the_gradients_that_are_there() {
    on_rank_0(Cluster::threads(2), |world| {
        let model = Model::new(world, &[1])?;
        let optimizer = DistributedOptimizer::new(world, model.params()?, sgd(0.1))?;
        let here = Here::new(1)?;
        let params = here.params();
        let mut expected = Optimizer::new(params.clone(), sgd(0.1))?;
        world.context(|context| {
            model.pass(context, 0)?;
            optimizer.step(context)?;
            // The second pass is through what the first step made, and its gradient is added.
            model.pass(context, 1)?;
            optimizer.step(context)
        })?;
        let first = here.gradients(0)?;
        expected.step_with(|param| Ok(gradient_of(param, &params, &first)))?;
        let second = here.gradients(1)?;
        let both = first.iter().zip(&second).map(|(a, b)| Ok((a + b)?));
        let both = both.collect::<Result<Vec<_>>>()?;
        expected.step_with(|param| Ok(gradient_of(param, &params, &both)))?;
        assert_close(&model.values()?, &here.values()?, "both");
        Ok(())
    });
}
