//! Chains of modules on several workers.

use telegrad_nn::Func;
use telegrad_testkit::on_threads_and_processes;

use super::*;

on_threads_and_processes! { 4 =>
    gradients_match_the_local_chain
    intermediate_tensors_bypass_the_caller
}

fn gradients_match_the_local_chain(cluster: Cluster) {
    on_rank_0(cluster, |world| {
        let mut there = RemoteSequential::new();
        let mut here = Sequential::new();
        for (nth, rank) in [1, 2, 3].into_iter().enumerate() {
            there = there.push(RemoteModule::new(world, rank, block, (4, 6, 4, nth as u64))?);
            here = here.push(layers(4, 6, 4, nth as u64)?);
        }
        assert_eq!(there.stages().len(), 3);
        let params = there.remote_parameters()?;
        let own = here.parameters();
        let owners: Vec<_> = params.iter().map(|param| param.owner().rank).collect();
        assert_eq!(owners, [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);

        let x = Var::from_tensor(&numbers((5, 4), 40)?)?;
        let leaves: Vec<_> = own.iter().map(Param::tensor).collect();
        let y = here.forward(&x)?;
        let expected = y.sqr()?.sum_all()?.backward()?;
        let optimizer = DistributedOptimizer::new(world, params.clone(), unit_sgd())?;
        world.context(|context| {
            let found = there.forward(&x)?;
            assert_close(&found, &y);
            context.backward(&[found.sqr()?.sum_all()?])?;
            // The gradient of the input returns to this worker.
            let gradients = context.gradients()?;
            assert_close(gradients.of(&x).unwrap(), expected.get(&x).unwrap());
            optimizer.step(context)
        })?;
        for ((param, own), leaf) in params.iter().zip(&own).zip(&leaves) {
            let moved = (own.value() - expected.get(leaf).unwrap())?;
            assert_close(&fetch(world, param)?, &moved);
        }
        Ok(())
    });
}

fn intermediate_tensors_bypass_the_caller(cluster: Cluster) {
    on_rank_0(cluster, |world| {
        const WIDE: usize = 10_000;
        let wide = RemoteSequential::new()
            .push(RemoteModule::new(world, 1, block, (4, 4, WIDE, 0))?)
            .push(RemoteModule::new(world, 2, block, (WIDE, 4, WIDE, 1))?)
            .push(RemoteModule::new(world, 3, block, (WIDE, 4, 4, 2))?);
        let x = numbers((1, 4), 0)?;
        // All modules are made, and the workers are connected.
        wide.forward(&x)?;
        let before = world.debug_info();
        wide.forward(&x)?;
        let after = world.debug_info();
        let bytes = (after.bytes_in + after.bytes_out) - (before.bytes_in + before.bytes_out);
        // There are two intermediate tensors, with four bytes for each number.
        assert!(bytes < WIDE as u64, "{bytes} bytes");
        Ok(())
    });
}

/// Makes a module that counts its calls under `name`, and blocks until `until` reaches a count.
#[remote]
fn gate(board: Board, name: String, until: String, times: usize) -> Result<AnyModule> {
    let pass = move |x: &Tensor| {
        board.raise(&name);
        board.wait_for(&until, times);
        Ok((x * 2.0)?)
    };
    Ok(AnyModule::new(Func::new("gate", pass)))
}

#[test]
fn calls_run_in_different_stages_at_the_same_time() {
    let cluster = Cluster::threads(4).options(|options| options.num_worker_threads = 2);
    let board = cluster.board();
    on_rank_0(cluster, move |world| {
        let gate = |rank, name: &str, until: &str, times| {
            let args = (board.clone(), name.into(), until.into(), times);
            RemoteModule::new(world, rank, gate, args)
        };
        // The first call leaves the last stage once the second is in the first stage.
        let gates = RemoteSequential::new()
            .push(gate(1, "first", "first", 1)?)
            .push(gate(2, "second", "second", 1)?)
            .push(gate(3, "third", "first", 2)?);
        let [one, other] = [1f32, 2.0].map(|x| Tensor::new(&[x], &Device::Cpu).unwrap());
        let first = gates.forward_async(&one)?;
        board.wait("third");
        assert!(!first.done());
        let second = gates.forward_async(&other)?;
        assert_eq!(flat(&first.wait()?)?, [8.0]);
        assert_eq!(flat(&second.wait()?)?, [16.0]);
        Ok(())
    });
}

#[test]
fn many_calls_in_flight_need_one_thread_per_worker() {
    let cluster = Cluster::threads(4).options(|options| options.num_worker_threads = 1);
    on_rank_0(cluster, |world| {
        let mut there = RemoteSequential::new();
        let mut here = Sequential::new();
        // The chain visits workers twice, and the caller too.
        for (nth, rank) in [1, 2, 3, 1, 0].into_iter().enumerate() {
            there = there.push(RemoteModule::new(world, rank, block, (4, 6, 4, nth as u64))?);
            here = here.push(layers(4, 6, 4, nth as u64)?);
        }
        let xs = (0..16)
            .map(|seed| numbers((2, 4), seed))
            .collect::<Result<Vec<_>>>()?;
        let optimizer = DistributedOptimizer::new(world, there.remote_parameters()?, unit_sgd())?;
        let own = here.parameters();
        let leaves: Vec<_> = own.iter().map(Param::tensor).collect();
        let mut sum = Tensor::zeros((), DType::F32, &Device::Cpu)?;
        world.context(|context| {
            let calls = xs.iter().map(|x| there.forward_async(x));
            let calls = calls.collect::<Result<Vec<_>>>()?;
            let mut losses = Vec::new();
            for (x, call) in xs.iter().zip(calls) {
                let (found, expected) = (call.wait()?, here.forward(x)?);
                assert_close(&found, &expected);
                sum = (&sum + expected.sqr()?.mean_all()?)?;
                losses.push(found.sqr()?.mean_all()?);
            }
            context.backward(&losses)?;
            optimizer.step(context)
        })?;
        let expected = sum.backward()?;
        for ((param, own), leaf) in there.remote_parameters()?.iter().zip(&own).zip(&leaves) {
            let moved = (own.value() - expected.get(leaf).unwrap())?;
            assert_close(&fetch(world, param)?, &moved);
        }
        Ok(())
    });
}

#[test]
fn an_error_in_a_later_stage_names_its_worker() {
    on_rank_0(Cluster::threads(4), |world| {
        let stages = RemoteSequential::new()
            .push(RemoteModule::new(world, 1, block, (4, 4, 4, 0))?)
            .push(RemoteModule::new(world, 2, block, (4, 4, 4, 0))?)
            .push(RemoteModule::new(world, 3, block, (5, 4, 4, 0))?);
        let x = numbers((1, 4), 0)?;
        for error in [stages.forward(&x), stages.forward_async(&x)?.wait()] {
            let error = error.unwrap_err();
            assert_eq!(error.remote().map(|error| error.worker()), Some("w3"));
            let text = error.to_string();
            assert!(
                text.contains("worker `w3`") && text.contains("stage 0 (Linear, `first`)"),
                "{text}"
            );
        }
        Ok(())
    });
}

#[test]
fn an_empty_chain_is_the_identity() {
    on_rank_0(Cluster::threads(1), |_| {
        let none = RemoteSequential::new();
        let x = numbers((1, 4), 0)?;
        assert_eq!(flat(&none.forward(&x)?)?, flat(&x)?);
        // There is no worker for an asynchronous call.
        let error = none.forward_async(&x).map(drop).unwrap_err();
        assert!(error.to_string().contains("has no stages"), "{error}");
        assert!(none.remote_parameters()?.is_empty());
        none.train()?;
        none.eval()?;
        Ok(())
    });
}
