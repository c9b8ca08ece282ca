//! The scope and the life cycle of contexts.

use std::collections::BTreeSet;
use std::sync::Mutex;

use telegrad_rpc::{Options, init_with};

use super::*;

/// The context of the last call of [`keep_context`].
static KEPT: Mutex<Option<Context>> = Mutex::new(None);

#[remote]
fn keep_context() -> Result<()> {
    *KEPT.lock().unwrap() = Some(Context::current()?);
    Ok(())
}

#[remote]
fn open_another() -> Result<()> {
    World::current()?.context(|_| Ok(()))
}

#[remote]
fn context_here() -> Option<u64> {
    let world = World::current().unwrap();
    world.current_context().map(|context| context.0)
}

#[remote]
fn context_there(rank: u32) -> Result<Option<u64>> {
    World::current()?.rpc_sync(rank, context_here, ())
}

#[test]
fn contexts_do_not_nest() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let through = |context: &Context| {
            let error = world.context(|_| Ok(())).unwrap_err();
            assert_eq!(autograd_error(&error), &AutogradError::Nested(context.id()));
            // Not on another worker either.
            let error = world.rpc_sync(1, open_another, ()).unwrap_err();
            let text = AutogradError::Nested(context.id()).to_string();
            assert!(error.to_string().contains(&text), "{error}");
            // The outer context remains usable.
            context.gradients().map(drop)
        };
        world.context(through).unwrap();
        world.rpc_sync(1, open_another, ()).unwrap();
    });
}

#[test]
fn nested_calls_inherit_the_context_of_their_caller() {
    on_rank_0(Cluster::threads(3), |world, _| {
        let through = |context: &Context| {
            let here = Some(context.id().0);
            assert_eq!(world.rpc_sync(1, context_here, ())?, here);
            assert_eq!(world.rpc_sync(1, context_there, (2,))?, here);
            assert_eq!(world.rpc_sync(1, context_there, (0,))?, here);
            // Another thread is in the context after it enters.
            std::thread::scope(|scope| {
                let apart = scope.spawn(|| world.rpc_sync(1, context_here, ()));
                assert_eq!(apart.join().unwrap()?, None);
                let within = scope.spawn(|| context.enter(|| world.rpc_sync(1, context_here, ())));
                assert_eq!(within.join().unwrap()?, here);
                Ok(())
            })
        };
        world.context(through).unwrap();
        assert_eq!(world.rpc_sync(1, context_here, ()).unwrap(), None);
        let error = Context::<Candle>::current().map(drop).unwrap_err();
        assert!(error.to_string().contains("remote function"), "{error}");
    });
}

#[remote]
fn ask_for_context() -> Result<()> {
    Context::<Candle>::current().map(drop)
}

#[test]
fn current_outside_of_a_context_is_an_error() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let error = world.rpc_sync(1, ask_for_context, ()).unwrap_err();
        let text = AutogradError::NoContext.to_string();
        assert!(error.to_string().contains(&text), "{error}");
    });
}

#[test]
fn a_world_without_autograd_returns_an_error() {
    let options = Options {
        init_method: "mem://without autograd".into(),
        rank: Some(0),
        world_size: Some(1),
        ..Options::default()
    };
    let world = init_with("alone", options).unwrap();
    for error in [
        world.context(|_| Ok(())).unwrap_err(),
        world.autograd_info().map(drop).unwrap_err(),
    ] {
        assert_eq!(autograd_error(&error), &AutogradError::NotThere);
    }
    world.shutdown().unwrap();
}

#[test]
fn context_names_are_unique_in_the_world() {
    let board = Cluster::threads(3).board();
    let cluster = with_autograd(Cluster::threads(3));
    cluster.run(move |world| {
        for _ in 0..100 {
            let name = world.context(|context| Ok(context.id().0)).unwrap();
            board.post("names", &name.to_string());
        }
        world.barrier().unwrap();
        let names: BTreeSet<_> = board.notes("names").into_iter().collect();
        assert_eq!(names.len(), 300);
    });
}

#[test]
fn an_ended_context_has_no_gradients() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
        let opened = world.context(|context| {
            world.rpc_sync(0, keep_context, ())?;
            Ok(context.id())
        });
        let ended = AutogradError::Ended(opened.unwrap());
        let kept = KEPT.lock().unwrap().take().unwrap();
        let error = kept.gradients().map(drop).unwrap_err();
        assert_eq!(autograd_error(&error), &ended);
        let error = kept.backward(&[loss(&weight.tensor()).unwrap()]).unwrap_err();
        assert_eq!(autograd_error(&error), &ended);
        // Messages sent in an ended context are ordinary messages.
        let x = kept
            .enter(|| world.rpc_sync(1, echo, (weight.tensor(),)))
            .unwrap();
        assert!(!x.track_op());
    });
}

#[remote]
fn echo(x: Tensor) -> Tensor {
    x
}

#[test]
fn a_root_must_be_a_scalar_that_depends_on_a_leaf() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
        let through = |context: &Context| {
            let good = loss(&weight.tensor())?;
            let error = context.backward(&[]).unwrap_err();
            assert_eq!(autograd_error(&error), &AutogradError::NoRoots);
            let bad = [
                (weight.tensor(), "shape [2, 3]"),
                (weight.value().sum_all()?, "depends on no parameter"),
                (
                    weight.tensor().ge(0f32)?.narrow(0, 0, 1)?.narrow(1, 0, 1)?,
                    "depends on no parameter",
                ),
            ];
            for (root, expected) in bad {
                let error = context.backward(&[good.clone(), root]).unwrap_err();
                let AutogradError::Root { index: 1, why } = autograd_error(&error) else {
                    panic!("{error}")
                };
                assert!(why.contains(expected), "{why}");
            }
            // A refused pass leaves the context usable.
            assert!(context.gradients()?.is_empty());
            context.backward(&[good])?;
            let found = context.gradients()?.get(&weight)?.expect("no gradient");
            assert_close(&found, &(weight.value() * 2.0)?);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[test]
fn a_loss_that_depends_on_a_leaf_of_another_context_is_an_error() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
        let through = |outer: &Context| {
            let y = world.rpc_sync(1, echo, (weight.tensor(),))?;
            let other = std::thread::scope(|scope| {
                let apart = scope.spawn(|| {
                    let through = |context: &Context| {
                        let error = context.backward(&[loss(&y)?]).unwrap_err();
                        Ok((autograd_error(&error).clone(), context.id()))
                    };
                    world.context(through)
                });
                apart.join().unwrap()
            });
            let (error, context) = other?;
            let other = outer.id();
            assert_eq!(error, AutogradError::Foreign { context, other });
            // The leaf works in its own context, and detached in any.
            outer.backward(&[loss(&y)?, loss(&(y.detach() * weight.tensor())?)?])
        };
        world.context(through).unwrap();
    });
}
