//! Derivatives of the tensor operators, compared with candle's and with finite differences.

use candle_core::Var;
use telegrad::ops;
use telegrad::prelude::*;
use telegrad_testkit::Cluster;

type Ours = fn(Tensor, Tensor) -> Result<Tensor>;
type Theirs = fn(&Tensor, &Tensor) -> candle_core::Result<Tensor>;

/// The operators on two tensors, with candle's equivalents.
const BINARY: [(&str, Ours, Theirs); 4] = [
    ("add", ops::add, |a, b| a.broadcast_add(b)),
    ("sub", ops::sub, |a, b| a.broadcast_sub(b)),
    ("mul", ops::mul, |a, b| a.broadcast_mul(b)),
    ("div", ops::div, |a, b| a.broadcast_div(b)),
];

type OursOfOne = fn(Tensor) -> Result<Tensor>;
type TheirsOfOne = fn(&Tensor) -> candle_core::Result<Tensor>;

const UNARY: [(&str, OursOfOne, TheirsOfOne); 11] = [
    ("neg", ops::neg, Tensor::neg),
    ("sqrt", ops::sqrt, Tensor::sqrt),
    ("exp", ops::exp, Tensor::exp),
    ("log", ops::log, Tensor::log),
    ("relu", ops::relu, Tensor::relu),
    ("tanh", ops::tanh, Tensor::tanh),
    ("sigmoid", ops::sigmoid, |x| (x.neg()?.exp()? + 1.0)?.recip()),
    ("sum", ops::sum, Tensor::sum_all),
    ("mean", ops::mean, Tensor::mean_all),
    ("min", ops::min, Tensor::min_all),
    ("max", ops::max, Tensor::max_all),
];

/// Positive numbers, all different.
fn numbers(shape: &[usize], seed: u64) -> Tensor {
    let count: usize = shape.iter().product();
    let mut rng = fastrand::Rng::with_seed(seed);
    let values: Vec<f64> = (0..count).map(|_| 0.5 + rng.f64()).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// A scalar that depends on each element differently.
fn weighed(y: &Tensor) -> Tensor {
    let weights = numbers(y.dims(), 99);
    (y * weights).unwrap().sum_all().unwrap()
}

#[track_caller]
fn assert_close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let distance = (found - expected).abs();
        assert!(
            distance <= tolerance * expected.abs().max(1.0),
            "{what}: {found} is not {expected}"
        );
    }
}

/// Finite differences of a function with respect to the elements of one tensor.
fn differences(inputs: &[Tensor], which: usize, f: &dyn Fn(&[Tensor]) -> Tensor) -> Vec<f64> {
    const STEP: f64 = 1e-6;
    let base = values(&inputs[which]);
    let at = |index: usize, moved: f64| {
        let mut changed = base.clone();
        changed[index] += moved;
        let mut inputs = inputs.to_vec();
        inputs[which] = Tensor::from_vec(changed, inputs[which].shape(), &Device::Cpu).unwrap();
        weighed(&f(&inputs)).to_scalar::<f64>().unwrap()
    };
    (0..base.len())
        .map(|index| (at(index, STEP) - at(index, -STEP)) / (2.0 * STEP))
        .collect()
}

/// Gradients of an operator with tracked inputs: by our derivative, by candle and by finite differences.
fn check(
    what: &str,
    world: &World,
    inputs: &[Tensor],
    tracked: &[bool],
    ours: &dyn Fn(&[Tensor]) -> Tensor,
    theirs: &dyn Fn(&[Tensor]) -> Tensor,
) {
    let variables: Vec<Option<Var>> = inputs
        .iter()
        .zip(tracked)
        .map(|(input, &tracked)| tracked.then(|| Var::from_tensor(input).unwrap()))
        .collect();
    let given: Vec<Tensor> = inputs
        .iter()
        .zip(&variables)
        .map(|(input, variable)| match variable {
            Some(variable) => variable.as_tensor().clone(),
            None => input.clone(),
        })
        .collect();
    let y = ours(&given);
    assert_close(what, &values(&y), &values(&theirs(inputs)), 1e-12);
    assert_eq!(y.track_op(), tracked.contains(&true), "{what}");
    if !y.track_op() {
        return;
    }
    let by_candle = weighed(&theirs(&given)).backward().unwrap();
    // Once through candle's backward pass and once through ours.
    let in_candle = weighed(&y).backward().unwrap();
    let weights = numbers(y.dims(), 99);
    let loss = ops::sum(ops::mul(y, weights).unwrap()).unwrap();
    let gradients = world.context(|context| {
        context.backward(&[loss])?;
        context.gradients()
    });
    let gradients = gradients.unwrap();
    for (place, variable) in variables.iter().enumerate() {
        let what = format!("{what}, operand {place}");
        let Some(variable) = variable else { continue };
        let expected = by_candle.get(variable).expect("candle has none");
        let found = gradients.of(variable).expect(&what);
        assert_eq!(found.shape(), variable.shape(), "{what}");
        assert!(!found.track_op(), "{what}");
        assert_close(&what, &values(found), &values(expected), 1e-9);
        let in_candle = in_candle.get(variable).expect(&what);
        assert_close(&what, &values(in_candle), &values(expected), 1e-9);
        let slopes = differences(inputs, place, ours);
        assert_close(&what, &values(found), &slopes, 1e-6);
    }
}

fn alone(body: impl Fn(World) + Send + Sync + 'static) {
    workers(1).run(body);
}

fn workers(count: usize) -> Cluster {
    Cluster::threads(count)
        .options(|options| options.extension = Some(telegrad::extension::layer::<telegrad::candle::Candle>))
}

#[test]
fn binary_operators_with_both_one_or_no_operand_tracked_and_broadcast() {
    alone(|world| {
        let shapes: [[&[usize]; 2]; 6] = [
            [&[2, 3], &[2, 3]],
            [&[2, 3], &[3]],
            [&[1], &[2, 3]],
            [&[2, 1], &[4, 1, 3]],
            [&[2, 3], &[]],
            [&[], &[]],
        ];
        for (name, ours, theirs) in BINARY {
            for [a, b] in shapes {
                for tracked in [[true, true], [true, false], [false, true], [false, false]] {
                    let what = format!("{name} of {a:?} and {b:?}, tracked {tracked:?}");
                    let inputs = [numbers(a, 1), numbers(b, 2)];
                    check(
                        &what,
                        &world,
                        &inputs,
                        &tracked,
                        &|x| ours(x[0].clone(), x[1].clone()).unwrap(),
                        &|x| theirs(&x[0], &x[1]).unwrap(),
                    );
                }
            }
        }
    });
}

#[test]
fn products_of_matrices() {
    alone(|world| {
        let shapes: [[&[usize]; 2]; 3] = [
            [&[2, 3], &[3, 4]],
            [&[5, 2, 3], &[5, 3, 4]],
            [&[5, 2, 3], &[3, 4]],
        ];
        for [a, b] in shapes {
            for tracked in [[true, true], [true, false], [false, true], [false, false]] {
                let inputs = [numbers(a, 1), numbers(b, 2)];
                check(
                    &format!("matmul of {a:?} and {b:?}, tracked {tracked:?}"),
                    &world,
                    &inputs,
                    &tracked,
                    &|x| ops::matmul(x[0].clone(), x[1].clone()).unwrap(),
                    &|x| x[0].broadcast_matmul(&x[1]).unwrap(),
                );
            }
        }
    });
}

#[test]
fn operators_on_one_tensor() {
    alone(|world| {
        for (name, ours, theirs) in UNARY {
            for shape in [&[2_usize, 3][..], &[]] {
                // candle has no gradient for the minimum and maximum of a scalar.
                if shape.is_empty() && matches!(name, "min" | "max") {
                    continue;
                }
                for tracked in [true, false] {
                    check(
                        &format!("{name} of {shape:?}, tracked {tracked}"),
                        &world,
                        &[(numbers(shape, 3) - if name == "relu" { 1.0 } else { 0.0 }).unwrap()],
                        &[tracked],
                        &|x| ours(x[0].clone()).unwrap(),
                        &|x| theirs(&x[0]).unwrap(),
                    );
                }
            }
        }
    });
}

#[test]
fn softmax_along_any_dimension() {
    alone(|world| {
        for dim in [0, 1, -1] {
            for tracked in [true, false] {
                check(
                    &format!("softmax along {dim}, tracked {tracked}"),
                    &world,
                    &[numbers(&[2, 3, 4], 4)],
                    &[tracked],
                    &|x| ops::softmax(x[0].clone(), dim).unwrap(),
                    &|x| {
                        let exp = x[0].exp().unwrap();
                        let dim = dim.rem_euclid(3) as usize;
                        exp.broadcast_div(&exp.sum_keepdim(dim).unwrap()).unwrap()
                    },
                );
            }
        }
    });
}

#[test]
fn an_operand_that_is_there_twice_has_both_gradients() {
    alone(|world| {
        for (name, ours, theirs) in BINARY {
            check(
                &format!("{name} of a tensor and itself"),
                &world,
                &[numbers(&[2, 3], 5)],
                &[true],
                &|x| ours(x[0].clone(), x[0].clone()).unwrap(),
                &|x| theirs(&x[0], &x[0]).unwrap(),
            );
        }
    });
}

#[test]
fn halves_have_gradients_too() {
    let x = Var::new(&[1f32, 2.0, 4.0], &Device::Cpu).unwrap();
    let x = Var::from_tensor(&x.to_dtype(DType::F16).unwrap()).unwrap();
    let y = ops::exp(ops::tanh(ops::relu(x.as_tensor().clone()).unwrap()).unwrap()).unwrap();
    let y = ops::sum(ops::mul(y.clone(), ops::mean(y).unwrap()).unwrap()).unwrap();
    let z = x.relu().unwrap().tanh().unwrap().exp().unwrap();
    let z = z
        .broadcast_mul(&z.mean_all().unwrap())
        .unwrap()
        .sum_all()
        .unwrap();
    let (found, expected) = (y.backward().unwrap(), z.backward().unwrap());
    let values = |tensor: &Tensor| values(&tensor.to_dtype(DType::F64).unwrap());
    let (found, expected) = (found.get(&x).unwrap(), expected.get(&x).unwrap());
    assert_close("f16", &values(found), &values(expected), 1e-2);
}

#[test]
fn tensors_without_elements_stay_as_they_are() {
    let x = Var::zeros((0, 3), DType::F64, &Device::Cpu).unwrap();
    let of = |x: &Var| x.as_tensor().clone();
    for (name, ours, _) in BINARY {
        let y = ours(of(&x), of(&x)).unwrap();
        assert_eq!((y.dims(), y.track_op()), (&[0, 3][..], true), "{name}");
    }
    let y = ops::neg(ops::exp(of(&x)).unwrap()).unwrap();
    let gradients = ops::sum(y).unwrap().backward().unwrap();
    assert_eq!(gradients.get(&x).unwrap().dims(), [0, 3]);
    assert_eq!(values(&x), [0f64; 0]);
}

#[test]
fn integers_have_no_gradient_and_are_computed_all_the_same() {
    let x = Var::new(&[1i64, 2], &Device::Cpu).unwrap();
    let y = ops::add(x.as_tensor().clone(), x.as_tensor().clone()).unwrap();
    assert_eq!(y.to_vec1::<i64>().unwrap(), [2, 4]);
}

/// On another worker of two.
fn elsewhere(body: impl Fn(&World) + Send + Sync + 'static) {
    workers(2).run(move |world| {
        if world.rank() == 0 {
            body(&world);
        }
    });
}

fn parameter(values: &[f64]) -> Param {
    Param::new(&Tensor::new(values, &Device::Cpu).unwrap()).unwrap()
}

#[test]
fn passes_add_up_and_free_what_they_went_through() {
    elsewhere(|world| {
        let (x, w) = (parameter(&[1.0, 2.0]), parameter(&[3.0, 4.0]));
        let result = world.context(|context| {
            let y = world.rpc_sync(1, ops::mul, (x.tensor(), w.tensor()))?;
            let loss = ops::sum(ops::mul(y.clone(), y)?)?;
            let retaining = Backward {
                retain_graph: true,
                ..Backward::default()
            };
            context.backward_with(std::slice::from_ref(&loss), &retaining)?;
            context.backward(std::slice::from_ref(&loss))?;
            let gradients = context.gradients()?;
            // Twice the gradient of x²w².
            let (by_x, by_w) = (gradients.get(&x)?.unwrap(), gradients.get(&w)?.unwrap());
            assert_eq!(by_x.to_vec1::<f64>()?, [36.0, 128.0]);
            assert_eq!(by_w.to_vec1::<f64>()?, [12.0, 64.0]);
            context.backward(&[loss])
        });
        let error = result.unwrap_err().to_string();
        assert!(error.contains("free"), "{error}");
    });
}

#[test]
fn a_result_that_is_used_twice_has_both_gradients() {
    elsewhere(|world| {
        let x = parameter(&[1.0, 2.0]);
        let found = world.context(|context| {
            let y = world.rpc_sync(1, ops::exp, (x.tensor(),))?;
            let once = world.rpc_sync(1, ops::mul, (y.clone(), y.clone()))?;
            let loss = ops::sum(ops::add(once, y)?)?;
            context.backward(&[loss])?;
            Ok(context.gradients()?.get(&x)?.unwrap().to_vec1::<f64>()?)
        });
        // e²ˣ + eˣ
        let expected = [1f64, 2.0].map(|x| 2.0 * (2.0 * x).exp() + x.exp());
        assert_close("2e²ˣ + eˣ", &found.unwrap(), &expected, 1e-12);
    });
}
