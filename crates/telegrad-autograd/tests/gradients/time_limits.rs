//! Time limits of passes.

use std::time::Instant;

use super::operations::{Effect, special, special_through};
use super::*;

/// A short limit.
const LIMIT: Duration = Duration::from_millis(300);

/// A limit that leaves each worker on the path time to report that the next one was late.
const LONGER: Duration = Duration::from_secs(2);

/// The upper bound of a test's waits.
const SOON: Duration = Duration::from_secs(10);

fn limited(limit: Duration) -> Backward {
    Backward {
        timeout: Some(limit),
        ..Backward::default()
    }
}

#[test]
fn a_pass_that_takes_too_long_fails_and_names_the_busy_worker() {
    on_rank_0(Cluster::threads(3), |world, board| {
        let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
        let through = |context: &Context| {
            let z = world.rpc_sync(2, special, (weight.tensor(), Effect::Wait(board.clone())))?;
            let started = Instant::now();
            let error = context.backward_with(&[loss(&z)?], &limited(LIMIT)).unwrap_err();
            assert!(started.elapsed() >= LIMIT);
            assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
            let AutogradError::TimedOut { limit, why } = autograd_error(&error) else {
                panic!("{error}")
            };
            assert_eq!(*limit, LIMIT);
            assert!(why.contains("`w2`"), "{why}");
            let error = context.gradients().map(drop).unwrap_err();
            assert!(
                matches!(autograd_error(&error), AutogradError::Failed { .. }),
                "{error}"
            );
            Ok(())
        };
        let started = Instant::now();
        world.context(through).unwrap();
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
        assert_eq!(board.count("in backward"), 1);
        assert_nothing_left(&world);
        board.raise("go on");
    });
}

#[test]
fn the_limit_covers_a_chain_of_workers() {
    on_rank_0(Cluster::threads(4), |world, board| {
        let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
        let through = |context: &Context| {
            let effect = Effect::Wait(board.clone());
            let z = world.rpc_sync(1, special_through, (weight.tensor(), effect, vec![2, 3]))?;
            let started = Instant::now();
            let error = context.backward_with(&[loss(&z)?], &limited(LONGER)).unwrap_err();
            assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
            assert!(
                matches!(autograd_error(&error), AutogradError::TimedOut { .. }),
                "{error}"
            );
            // The blocked worker, not one that waits for it.
            assert!(error.to_string().contains("`w3`"), "{error}");
            Ok(())
        };
        world.context(through).unwrap();
        assert_nothing_left(&world);
        board.raise("go on");
    });
}

#[test]
fn the_default_limit_is_that_of_calls() {
    on_rank_0(Cluster::threads(2), |world, board| {
        let hasty = world.with_timeout(LIMIT);
        let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
        let through = |context: &Context| {
            let z = world.rpc_sync(1, special, (weight.tensor(), Effect::Wait(board.clone())))?;
            let error = context.backward(&[loss(&z)?]).unwrap_err();
            assert!(
                matches!(autograd_error(&error), AutogradError::TimedOut { .. }),
                "{error}"
            );
            Ok(())
        };
        hasty.context(through).unwrap();
        board.raise("go on");
    });
}

#[test]
fn a_pass_without_limit_outlasts_the_limit_of_calls() {
    on_rank_0(Cluster::threads(2), |world, board| {
        let hasty = world.with_timeout(LIMIT);
        let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
        let through = |context: &Context| {
            let z = world.rpc_sync(1, special, (weight.tensor(), Effect::Wait(board.clone())))?;
            let release = std::thread::spawn({
                let board = board.clone();
                let started = Instant::now();
                move || {
                    board.wait("in backward");
                    wait_until(
                        SOON,
                        || started.elapsed() > 2 * LIMIT,
                        || "the limit has not passed",
                    );
                    board.raise("go on");
                }
            });
            let unlimited = Backward {
                timeout: Some(Duration::ZERO),
                ..Backward::default()
            };
            context.backward_with(&[loss(&z)?], &unlimited)?;
            release.join().unwrap();
            assert_close(
                &context.gradients()?.get(&weight)?.expect("no gradient"),
                &(weight.value() * 2.0)?,
            );
            Ok(())
        };
        hasty.context(through).unwrap();
    });
}
