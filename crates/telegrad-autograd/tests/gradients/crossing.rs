//! The ways in which a tensor gets from one worker to another, and the crossings that are tracked.

use candle_core::DType;
use telegrad_wire::Wire;

use super::*;

#[remote]
fn double(x: Tensor) -> Result<Tensor> {
    Ok((x * 2.0)?)
}

#[remote]
async fn double_later(x: Tensor) -> Result<Tensor> {
    Ok((x * 2.0)?)
}

#[remote(inline)]
fn same(x: Tensor) -> Tensor {
    x
}

/// Doubles a referenced value.
#[remote]
fn double_of(x: RRef<Tensor>) -> Result<Tensor> {
    Ok((x.to_here()? * 2.0)?)
}

#[derive(Debug, Wire)]
struct Batch {
    tensors: Vec<Option<Tensor>>,
    named: BTreeMap<String, (Tensor, u32)>,
    kind: Kind,
}

#[derive(Debug, Wire)]
enum Kind {
    Plain,
    With(Tensor),
}

/// Doubles every tensor of a batch.
#[remote]
fn double_batch(batch: Batch) -> Result<Batch> {
    let double = |x: Tensor| -> Result<Tensor> { Ok((x * 2.0)?) };
    Ok(Batch {
        tensors: batch
            .tensors
            .into_iter()
            .map(|x| x.map(double).transpose())
            .collect::<Result<_>>()?,
        named: batch
            .named
            .into_iter()
            .map(|(name, (x, n))| Ok((name, (double(x)?, n))))
            .collect::<Result<_>>()?,
        kind: match batch.kind {
            Kind::Plain => Kind::Plain,
            Kind::With(x) => Kind::With(double(x)?),
        },
    })
}

/// A way to double a tensor on another worker.
type Way = fn(&World, Tensor) -> Result<Tensor>;

const WAYS: &[(&str, Way)] = &[
    ("rpc_sync", |world, x| world.rpc_sync(1, double, (x,))),
    ("rpc_async", |world, x| world.rpc_async(1, double, (x,))?.wait()),
    ("an async function", |world, x| {
        world.rpc_sync(1, double_later, (x,))
    }),
    ("an inline function", |world, x| {
        let x = world.rpc_sync(1, same, (x,))?;
        world.rpc_sync(2, double, (x,))
    }),
    ("remote and to_here", |world, x| {
        world.remote(1, double, (x,))?.to_here()
    }),
    ("a reference to another worker, passed on", |world, x| {
        let kept = world.remote(1, same, (x,))?;
        world.rpc_sync(2, double_of, (kept,))
    }),
    ("a reference to this worker, passed on", |world, x| {
        world.rpc_sync(2, double_of, (RRef::new(world, x)?,))
    }),
    ("rpc_sync to the caller", |world, x| {
        world.rpc_sync(0, double, (x,))
    }),
    ("remote to the caller", |world, x| {
        world.remote(0, double, (x,))?.to_here()
    }),
    ("a structure", |world, x| {
        let half = (&x * 0.5)?;
        let batch = Batch {
            tensors: vec![None, Some(half.clone()), None],
            named: BTreeMap::from([("quarter".into(), ((&x * 0.25)?, 3))]),
            kind: Kind::With((&x * 0.25)?),
        };
        let batch = world.rpc_sync(1, double_batch, (batch,))?;
        let (quarter, _) = &batch.named["quarter"];
        let Kind::With(other) = batch.kind else {
            unreachable!("the batch was sent with a tensor")
        };
        let rest = (quarter + other)?;
        let half = batch.tensors[1]
            .as_ref()
            .expect("the batch was sent with a tensor");
        Ok((half + rest)?)
    }),
    ("a callback", |world, x| {
        let doubled = world.rpc_async(1, double, (x,))?;
        doubled.then(|x| x.and_then(|x| Ok((x * 1.0)?))).wait()
    }),
];

#[test]
fn gradients_return_along_every_way_of_a_tensor() {
    on_rank_0(Cluster::threads(3), |world, _| {
        for (name, way) in WAYS {
            let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
            let found = world.context(|context| {
                let y = way(&world, (weight.tensor() * 3.0)?)?;
                context.backward(&[loss(&y)?])?;
                context.gradients()?.get(&weight)
            });
            // The derivative of the square of 6 w.
            let expected = (weight.value() * 72.0).unwrap();
            let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_close(&found.unwrap_or_else(|| panic!("{name}: no gradient")), &expected);
        }
    });
}

/// The numbers of tracked messages that this worker sent and received.
fn tracked(world: &World) -> (usize, usize) {
    let info = world.autograd_info().unwrap();
    (info.sent, info.received)
}

#[test]
fn only_tensors_that_require_a_gradient_are_tracked() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
        let plain = numbers((2, 3), 2).unwrap();
        let through = |_: &Context| {
            for untracked in [
                plain.clone(),
                weight.value(),
                weight.tensor().detach(),
                // Computed from a parameter by an operation without a gradient.
                weight.tensor().ge(0f32)?,
                plain.to_dtype(DType::U32)?,
                plain.to_dtype(DType::I64)?,
            ] {
                let y = world.rpc_sync(1, same, (untracked,))?;
                assert!(!y.track_op());
                assert_eq!(tracked(&world), (0, 0));
                assert_eq!(world.rpc_sync(1, info, ())?.sent, 0);
            }
            let y = world.rpc_sync(1, same, (weight.tensor(),))?;
            assert!(y.is_variable());
            assert_eq!(tracked(&world), (1, 1));
            let there = world.rpc_sync(1, info, ())?;
            assert_eq!((there.sent, there.received), (1, 1));
            Ok(())
        };
        world.context(through).unwrap();
        // Outside of a context, nothing is tracked.
        let y = world.rpc_sync(1, same, (weight.tensor(),)).unwrap();
        assert!(!y.track_op());
        assert_eq!(tracked(&world), (0, 0));
    });
}

/// Returns the tensors, and whether each is tracked here.
#[remote]
fn look(tensors: Vec<Tensor>) -> Vec<(Tensor, bool)> {
    let look = |tensor: Tensor| (tensor.clone(), tensor.track_op());
    tensors.into_iter().map(look).collect()
}

#[test]
fn tracked_and_untracked_tensors_travel_in_one_message() {
    on_rank_0(Cluster::threads(2), |world, _| {
        let weight = Param::new(&numbers((2, 3), 1).unwrap()).unwrap();
        let plain = numbers((2, 3), 2).unwrap();
        let whole = Tensor::new(&[1u32, 2, 3], &Device::Cpu).unwrap();
        let through = |context: &Context| {
            let w = weight.tensor();
            let tensors = vec![plain.clone(), (&w * 2.0)?, whole.clone(), w.clone(), w];
            let back = world.rpc_sync(1, look, (tensors,))?;
            let there: Vec<_> = back.iter().map(|(_, tracked)| *tracked).collect();
            assert_eq!(there, [false, true, false, true, true]);
            let here: Vec<_> = back.iter().map(|(tensor, _)| tensor.track_op()).collect();
            assert_eq!(here, there);
            assert_eq!(back[2].0.to_vec1::<u32>()?, [1, 2, 3]);
            assert_eq!(tracked(&world), (1, 1));
            // One of the three is unused, and another is used twice.
            let product = ((&back[1].0 * &back[0].0)? + (&back[4].0 * &back[4].0)?)?;
            context.backward(&[product.sum_all()?])?;
            let found = context.gradients()?.get(&weight)?.expect("no gradient");
            let expected = ((&plain * 2.0)? + (weight.value() * 2.0)?)?;
            assert_close(&found, &expected);
            Ok(())
        };
        world.context(through).unwrap();
    });
}

#[test]
fn views_and_all_float_types_have_gradients() {
    on_rank_0(Cluster::threads(2), |world, _| {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            let value = numbers((2, 3), 1).unwrap().to_dtype(dtype).unwrap();
            let weight = Param::new(&value).unwrap();
            let through = |context: &Context| {
                let view = weight.tensor().t()?.narrow(0, 1, 2)?;
                let y = world.rpc_sync(1, same, (view,))?;
                assert_eq!((y.dims(), y.dtype()), ([2, 2].as_slice(), dtype));
                context.backward(&[(y * 4.0)?.sum_all()?])?;
                let found = context.gradients()?.get(&weight)?.expect("no gradient");
                let expected = Tensor::new(&[[0f32, 4.0, 4.0], [0.0, 4.0, 4.0]], &Device::Cpu)?;
                assert_eq!(found.dtype(), dtype);
                assert_close(&found.to_dtype(DType::F32)?, &expected);
                Ok(())
            };
            world.context(through).unwrap();
        }
    });
}
