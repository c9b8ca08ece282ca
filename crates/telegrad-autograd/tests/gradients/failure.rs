//! Killed workers: the others notice, no state is left, and training continues without them.

use std::time::Instant;

use telegrad_testkit::on_cluster;

use super::operations::{Effect, special_through};
use super::*;

/// A loss is detected at once; this allows for a busy machine.
const SOON: Duration = Duration::from_secs(10);

on_cluster! { unix: Cluster::processes(4) =>
a_worker_killed_in_the_forward_pass
a_worker_killed_between_the_passes
a_worker_killed_in_the_backward_pass
a_worker_killed_in_the_middle_of_a_chain
a_caller_killed_before_the_end_of_the_context
a_caller_killed_after_the_failure_of_the_context
an_opener_killed_with_an_open_context
an_opener_killed_in_a_pass
}

on_cluster! { tcp: Cluster::processes(4).tcp() =>
a_worker_killed_in_the_backward_pass
a_worker_killed_in_the_middle_of_a_chain
an_opener_killed_in_a_pass
}

#[remote]
fn stay(_x: Tensor, board: Board) {
    board.raise("in forward");
    board.wait("go on");
}

/// Runs the body on rank 0, which kills `mortal`, and then trains with the others.
fn with_mortal(cluster: Cluster, mortal: u32, body: impl Fn(&World, &Board) + Send + Sync + 'static) {
    let board = cluster.board();
    with_autograd(cluster).may_die(mortal).run(move |world| {
        if world.rank() == 0 {
            body(&world, &board);
            let others: Vec<u32> = (0..4).filter(|rank| *rank != mortal).collect();
            wait_for_nothing(&world, &others);
            train(&world, &others[1..]);
            wait_for_nothing(&world, &others);
            board.raise("body ended");
        }
        board.wait("body ended");
    });
}

/// Trains layers on these workers for one step.
fn train(world: &World, on: &[u32]) {
    let (layers, weights) = layers(world, on);
    let x = numbers((2, 3), 9).unwrap();
    let step = |context: &Context| {
        let (first, rest) = layers.split_first().expect("workers to train on");
        let y = first.rpc_sync(Layer::forward_through, (x.clone(), rest.to_vec()))?;
        context.backward(&[loss(&y)?])?;
        check(&layers, &weights, &loss(&apply_all(&x, &weights)?)?);
        Ok(())
    };
    world.context(step).unwrap();
}

fn x() -> Param {
    Param::new(&numbers((2, 3), 1).unwrap()).unwrap()
}

/// Sends a tensor through these workers; the last one has the effect in the backward pass.
fn send_through(world: &World, workers: &[u32], effect: Effect) -> Result<Tensor> {
    let (first, rest) = workers.split_first().expect("workers to go through");
    world.rpc_sync(*first, special_through, (x().tensor(), effect, rest.to_vec()))
}

/// Runs a pass through these workers, and kills `mortal` while the last one blocks in its part.
#[track_caller]
fn pass_with_a_kill(world: &World, board: &Board, workers: &[u32], mortal: u32) {
    let through = |context: &Context| {
        let y = send_through(world, workers, Effect::Wait(board.clone()))?;
        let root = loss(&y)?;
        let killer = std::thread::spawn({
            let board = board.clone();
            move || {
                board.wait("in backward");
                board.kill(mortal);
                Instant::now()
            }
        });
        let error = context.backward(&[root]).unwrap_err();
        let killed = killer.join().unwrap();
        assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
        assert!(error.to_string().contains(&format!("`w{mortal}`")), "{error}");
        let error = context.gradients().map(drop).unwrap_err();
        let AutogradError::Failed { cause, .. } = autograd_error(&error) else {
            panic!("{error}")
        };
        assert!(cause.contains(&format!("`w{mortal}`")), "{cause}");
        // All others are notified before the context ends.
        let others = workers.iter().filter(|worker| **worker != mortal);
        for other in others {
            let freed = || {
                let info = world.context_free(*other);
                info.sent + info.received + info.passes == 0
            };
            wait_until(SOON, freed, || {
                format!("worker {other}: {:?}", world.context_free(*other))
            });
        }
        Ok(())
    };
    let started = Instant::now();
    world.context(through).unwrap();
    assert!(started.elapsed() < 2 * SOON, "{:?}", started.elapsed());
}

/// Kills a worker, and waits until calls to it fail.
fn kill(world: &World, board: &Board, rank: u32) {
    board.kill(rank);
    let is_lost = || world.in_context(None, || world.rpc_sync(rank, info, ())).is_err();
    wait_until(SOON, is_lost, || format!("worker {rank} still answers"));
}

/// Reads counters outside of the context, where a failed one would refuse the call.
trait ContextFree {
    fn context_free(&self, rank: u32) -> AutogradInfo;
}

impl ContextFree for World {
    fn context_free(&self, rank: u32) -> AutogradInfo {
        self.in_context(None, || self.rpc_sync(rank, info, ())).unwrap()
    }
}

fn a_worker_killed_in_the_forward_pass(cluster: Cluster) {
    with_mortal(cluster, 2, |world, board| {
        let (layers, _) = layers(world, &[1]);
        let through = |_: &Context| {
            let y = layers[0].rpc_sync(Layer::forward, (numbers((2, 3), 9)?,))?;
            let call = world.rpc_async(2, stay, (y, board.clone()))?;
            board.wait("in forward");
            board.kill(2);
            call.wait()
        };
        let started = Instant::now();
        let error = world.context(through).unwrap_err();
        assert!(error.to_string().contains("`w2`"), "{error}");
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    });
}

fn a_worker_killed_between_the_passes(cluster: Cluster) {
    with_mortal(cluster, 2, |world, board| {
        let through = |context: &Context| {
            let y = send_through(world, &[1, 2], Effect::Fail)?;
            board.kill(2);
            let error = context.backward(&[loss(&y)?]).unwrap_err();
            assert!(error.to_string().contains("`w2`"), "{error}");
            Ok(())
        };
        let started = Instant::now();
        world.context(through).unwrap();
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    });
}

fn a_worker_killed_in_the_backward_pass(cluster: Cluster) {
    with_mortal(cluster, 2, |world, board| {
        pass_with_a_kill(world, board, &[1, 2], 2);
    });
}

fn a_worker_killed_in_the_middle_of_a_chain(cluster: Cluster) {
    with_mortal(cluster, 2, |world, board| {
        pass_with_a_kill(world, board, &[1, 2, 3], 2);
        board.raise("go on");
    });
}

/// The callees of the killed worker learn of the end from the opener.
fn a_caller_killed_before_the_end_of_the_context(cluster: Cluster) {
    with_mortal(cluster, 1, |world, board| {
        let through = |_: &Context| {
            send_through(world, &[1, 2, 3], Effect::Fail)?;
            assert_eq!(world.context_free(3).contexts, 1);
            kill(world, board, 1);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

fn a_caller_killed_after_the_failure_of_the_context(cluster: Cluster) {
    with_mortal(cluster, 1, |world, board| {
        let through = |context: &Context| {
            let y = send_through(world, &[1, 2], Effect::Fail)?;
            let error = context.backward(&[loss(&y)?]).unwrap_err();
            assert!(error.to_string().contains("cannot be differentiated"), "{error}");
            let failed = || world.context_free(2).sent == 0;
            wait_until(SOON, failed, || "worker 2 was not notified");
            assert_eq!(world.context_free(2).contexts, 1);
            kill(world, board, 1);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

fn an_opener_killed_with_an_open_context(cluster: Cluster) {
    opener_killed(cluster, |_, _| Ok(()));
}

fn an_opener_killed_in_a_pass(cluster: Cluster) {
    opener_killed(cluster, |context, y| context.backward(&[loss(&y)?]));
}

/// Rank 3 sends a tensor through ranks 1 and 2, runs `then` on the result, and is killed.
fn opener_killed(cluster: Cluster, then: fn(&Context, Tensor) -> Result<()>) {
    let board = cluster.board();
    with_autograd(cluster)
        .may_die(3)
        .run(move |world| match world.rank() {
            3 => {
                let through = |context: &Context| {
                    let y = send_through(&world, &[1, 2], Effect::Wait(board.clone()))?;
                    board.raise("open");
                    then(context, y)?;
                    board.wait("body ended");
                    Ok(())
                };
                world.context(through).unwrap();
            }
            0 => {
                board.wait("open");
                for rank in [1, 2] {
                    assert_eq!(world.rpc_sync(rank, info, ()).unwrap().contexts, 1);
                }
                board.kill(3);
                wait_for_nothing(&world, &[0, 1, 2]);
                board.raise("go on");
                train(&world, &[1, 2]);
                wait_for_nothing(&world, &[0, 1, 2]);
                board.raise("body ended");
            }
            _ => board.wait("body ended"),
        });
}
