//! The tensor operators, called on another worker.

use telegrad::ops;
use telegrad::prelude::*;
use telegrad_testkit::Cluster;

/// Runs the body on rank 0 of two workers.
fn with_another(body: impl Fn(World) + Send + Sync + 'static) {
    Cluster::threads(2).run(move |world| {
        if world.rank() == 0 {
            body(world);
        }
    });
}

fn tensor(values: &[f32], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape, &Device::Cpu).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// Shape and values, to the precision of 32 bits.
#[track_caller]
fn assert_close(found: &Tensor, expected: &[f32], shape: &[usize]) {
    assert_eq!(found.dims(), shape);
    let found = values(found);
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
    assert!(
        found.iter().zip(expected).all(close),
        "{found:?} is not {expected:?}"
    );
    assert_eq!(found.len(), expected.len());
}

#[test]
fn binary_operators_work_element_by_element() {
    with_another(|world| {
        let (a, b) = (
            tensor(&[1.0, 2.0, 3.0, 4.0], &[2, 2]),
            tensor(&[2.0, 4.0, 0.5, -1.0], &[2, 2]),
        );
        let both = || (a.clone(), b.clone());
        assert_close(
            &world.rpc_sync(1, ops::add, both()).unwrap(),
            &[3.0, 6.0, 3.5, 3.0],
            &[2, 2],
        );
        assert_close(
            &world.rpc_sync(1, ops::sub, both()).unwrap(),
            &[-1.0, -2.0, 2.5, 5.0],
            &[2, 2],
        );
        assert_close(
            &world.rpc_sync(1, ops::mul, both()).unwrap(),
            &[2.0, 8.0, 1.5, -4.0],
            &[2, 2],
        );
        assert_close(
            &world.rpc_sync(1, ops::div, both()).unwrap(),
            &[0.5, 0.5, 6.0, -4.0],
            &[2, 2],
        );
    });
}

#[test]
fn operands_are_broadcast() {
    with_another(|world| {
        let row = tensor(&[10.0, 20.0], &[2]);
        let column = tensor(&[1.0, 2.0, 3.0], &[3, 1]);
        let sum = world
            .rpc_sync(1, ops::add, (row.clone(), column.clone()))
            .unwrap();
        assert_close(&sum, &[11.0, 21.0, 12.0, 22.0, 13.0, 23.0], &[3, 2]);
        let difference = world.rpc_sync(1, ops::sub, (column, row.clone())).unwrap();
        assert_close(&difference, &[-9.0, -19.0, -8.0, -18.0, -7.0, -17.0], &[3, 2]);
        let scalar = Tensor::new(2f32, &Device::Cpu).unwrap();
        assert_close(
            &world
                .rpc_sync(1, ops::mul, (row.clone(), scalar.clone()))
                .unwrap(),
            &[20.0, 40.0],
            &[2],
        );
        assert_close(
            &world.rpc_sync(1, ops::div, (row, scalar)).unwrap(),
            &[5.0, 10.0],
            &[2],
        );
    });
}

#[test]
fn unary_operators_work_element_by_element() {
    with_another(|world| {
        let x = [0.25_f32, 1.0, 4.0];
        let signed = [-1.5_f32, 0.0, 2.0];
        let of = |x: &[f32]| (tensor(x, &[3]),);
        let map = |x: &[f32; 3], f: fn(f32) -> f32| x.map(f);
        assert_close(
            &world.rpc_sync(1, ops::neg, of(&signed)).unwrap(),
            &[1.5, 0.0, -2.0],
            &[3],
        );
        assert_close(
            &world.rpc_sync(1, ops::sqrt, of(&x)).unwrap(),
            &[0.5, 1.0, 2.0],
            &[3],
        );
        assert_close(
            &world.rpc_sync(1, ops::exp, of(&signed)).unwrap(),
            &map(&signed, f32::exp),
            &[3],
        );
        assert_close(
            &world.rpc_sync(1, ops::log, of(&x)).unwrap(),
            &map(&x, f32::ln),
            &[3],
        );
        assert_close(
            &world.rpc_sync(1, ops::relu, of(&signed)).unwrap(),
            &[0.0, 0.0, 2.0],
            &[3],
        );
        assert_close(
            &world.rpc_sync(1, ops::tanh, of(&signed)).unwrap(),
            &map(&signed, f32::tanh),
            &[3],
        );
        let sigmoid = map(&signed, |x| 1.0 / (1.0 + (-x).exp()));
        assert_close(
            &world.rpc_sync(1, ops::sigmoid, of(&signed)).unwrap(),
            &sigmoid,
            &[3],
        );
    });
}

#[test]
fn sigmoid_of_large_values_is_zero_or_one() {
    with_another(|world| {
        let found = world
            .rpc_sync(1, ops::sigmoid, (tensor(&[-200.0, 200.0], &[2]),))
            .unwrap();
        assert_close(&found, &[0.0, 1.0], &[2]);
    });
}

#[test]
fn reductions_give_scalars() {
    with_another(|world| {
        let x = || (tensor(&[3.0, -1.0, 5.0, 1.0], &[2, 2]),);
        assert_close(&world.rpc_sync(1, ops::sum, x()).unwrap(), &[8.0], &[]);
        assert_close(&world.rpc_sync(1, ops::mean, x()).unwrap(), &[2.0], &[]);
        assert_close(&world.rpc_sync(1, ops::min, x()).unwrap(), &[-1.0], &[]);
        assert_close(&world.rpc_sync(1, ops::max, x()).unwrap(), &[5.0], &[]);
    });
}

#[test]
fn argmax_counts_along_a_dimension_or_in_all() {
    with_another(|world| {
        let x = || tensor(&[3.0, -1.0, 0.0, 1.0, 7.0, 2.0], &[2, 3]);
        let along = |dim| world.rpc_sync(1, ops::argmax, (x(), dim)).unwrap();
        assert_eq!(along(Some(1)).to_vec1::<u32>().unwrap(), [0, 1]);
        assert_eq!(along(Some(-1)).to_vec1::<u32>().unwrap(), [0, 1]);
        assert_eq!(along(Some(0)).to_vec1::<u32>().unwrap(), [0, 1, 1]);
        assert_eq!(along(None).to_scalar::<u32>().unwrap(), 4);
    });
}

#[test]
fn softmax_sums_to_one_also_for_large_values() {
    with_another(|world| {
        let x = tensor(&[1.0, 2.0, 3.0, 1000.0, 1000.0, 1000.0], &[2, 3]);
        let e = [1f32.exp(), 2f32.exp(), 3f32.exp()];
        let sum: f32 = e.iter().sum();
        let expected = [
            e[0] / sum,
            e[1] / sum,
            e[2] / sum,
            1.0 / 3.0,
            1.0 / 3.0,
            1.0 / 3.0,
        ];
        assert_close(
            &world.rpc_sync(1, ops::softmax, (x.clone(), -1)).unwrap(),
            &expected,
            &[2, 3],
        );
        let along_0 = world.rpc_sync(1, ops::softmax, (x, 0)).unwrap();
        assert_close(&along_0, &[0.0, 0.0, 0.0, 1.0, 1.0, 1.0], &[2, 3]);
    });
}

#[test]
fn matrices_and_batches_of_them_are_multiplied() {
    with_another(|world| {
        let a = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
        let b = tensor(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], &[3, 2]);
        let product = world.rpc_sync(1, ops::matmul, (a.clone(), b.clone())).unwrap();
        assert_close(&product, &[4.0, 5.0, 10.0, 11.0], &[2, 2]);
        let batch = Tensor::stack(&[&a, &a], 0).unwrap();
        let product = world.rpc_sync(1, ops::matmul, (batch, b)).unwrap();
        assert_close(
            &product,
            &[4.0, 5.0, 10.0, 11.0, 4.0, 5.0, 10.0, 11.0],
            &[2, 2, 2],
        );
    });
}

#[test]
fn shapes_are_changed_and_views_are_sent_as_they_look() {
    with_another(|world| {
        let x = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
        let reshaped = world.rpc_sync(1, ops::reshape, (x.clone(), vec![3, 2])).unwrap();
        assert_close(&reshaped, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]);
        let transposed = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
        assert_close(
            &world.rpc_sync(1, ops::transpose, (x.clone(), 0, 1)).unwrap(),
            &transposed,
            &[3, 2],
        );
        assert_close(
            &world.rpc_sync(1, ops::transpose, (x.clone(), -1, -2)).unwrap(),
            &transposed,
            &[3, 2],
        );
        // Not contiguous at the caller either.
        let view = x.t().unwrap();
        assert_close(
            &world.rpc_sync(1, ops::neg, (view,)).unwrap(),
            &transposed.map(|x| -x),
            &[3, 2],
        );
        let part = x.narrow(1, 1, 2).unwrap();
        assert_close(&world.rpc_sync(1, ops::sum, (part,)).unwrap(), &[16.0], &[]);
    });
}

#[test]
fn tensors_are_put_together() {
    with_another(|world| {
        let (a, b) = (tensor(&[1.0, 2.0], &[1, 2]), tensor(&[3.0, 4.0], &[1, 2]));
        let cat = |dim| {
            world
                .rpc_sync(1, ops::cat, (vec![a.clone(), b.clone()], dim))
                .unwrap()
        };
        assert_close(&cat(0), &[1.0, 2.0, 3.0, 4.0], &[2, 2]);
        assert_close(&cat(-1), &[1.0, 2.0, 3.0, 4.0], &[1, 4]);
    });
}

#[test]
fn tensors_are_made_from_a_shape() {
    with_another(|world| {
        assert_close(
            &world.rpc_sync(1, ops::ones, (vec![2, 2],)).unwrap(),
            &[1.0; 4],
            &[2, 2],
        );
        assert_close(
            &world.rpc_sync(1, ops::zeros, (vec![3],)).unwrap(),
            &[0.0; 3],
            &[3],
        );
        assert_close(&world.rpc_sync(1, ops::zeros, (vec![],)).unwrap(), &[0.0], &[]);
        assert_close(
            &world.rpc_sync(1, ops::ones, (vec![0, 4],)).unwrap(),
            &[],
            &[0, 4],
        );
        let random = world.rpc_sync(1, ops::randn, (vec![100, 100],)).unwrap();
        assert_eq!((random.dims(), random.dtype()), (&[100, 100][..], DType::F32));
        let mean = random.mean_all().unwrap().to_scalar::<f32>().unwrap();
        let square = random
            .sqr()
            .unwrap()
            .mean_all()
            .unwrap()
            .to_scalar::<f32>()
            .unwrap();
        // With ten thousand samples, a larger deviation occurs once in many million runs.
        assert!(
            mean.abs() < 0.06 && (square - 1.0).abs() < 0.1,
            "mean {mean}, mean of squares {square}"
        );
        let again = world.rpc_sync(1, ops::randn, (vec![100, 100],)).unwrap();
        assert_ne!(values(&random), values(&again));
    });
}

#[test]
fn element_types_are_kept() {
    with_another(|world| {
        for dtype in [
            DType::F64,
            DType::F32,
            DType::F16,
            DType::BF16,
            DType::I64,
            DType::U32,
            DType::U8,
        ] {
            let x = tensor(&[2.0, 4.0, 6.0], &[3]).to_dtype(dtype).unwrap();
            let y = tensor(&[1.0, 4.0, 2.0], &[3]).to_dtype(dtype).unwrap();
            let both = || (x.clone(), y.clone());
            for (found, expected) in [
                (world.rpc_sync(1, ops::add, both()), [3.0, 8.0, 8.0]),
                (world.rpc_sync(1, ops::sub, both()), [1.0, 0.0, 4.0]),
                (world.rpc_sync(1, ops::mul, both()), [2.0, 16.0, 12.0]),
                (world.rpc_sync(1, ops::div, both()), [2.0, 1.0, 3.0]),
            ] {
                let found = found.unwrap();
                assert_eq!(found.dtype(), dtype);
                assert_close(&found.to_dtype(DType::F32).unwrap(), &expected, &[3]);
            }
        }
    });
}

/// Element type and shape of a tensor on the worker that created it.
#[remote]
fn shown(x: RRef<Tensor>) -> Result<Vec<f32>> {
    Ok(values(&*x.local_value()?))
}

#[test]
fn results_that_stay_are_tensors_for_whoever_uses_them_there() {
    with_another(|world| {
        let x = tensor(&[1.0, 2.0], &[2]);
        let sum = world.remote(1, ops::add, (x.clone(), x)).unwrap();
        assert_eq!(world.rpc_sync(1, shown, (sum.clone(),)).unwrap(), [2.0, 4.0]);
        assert_eq!(values(&sum.to_here().unwrap()), [2.0, 4.0]);
    });
}

#[test]
fn large_tensors_take_the_same_operators() {
    Cluster::threads(2).unix().run(|world| {
        let x = Tensor::ones(300_000, DType::F32, &Device::Cpu).unwrap();
        let sum = world
            .rpc_sync(1 - world.rank(), ops::add, (x.clone(), x))
            .unwrap();
        assert!(values(&sum).iter().all(|&x| x == 2.0));
    });
}

#[test]
fn what_does_not_fit_says_what_and_where() {
    with_another(|world| {
        let (a, b) = (tensor(&[1.0, 2.0], &[2]), tensor(&[1.0, 2.0, 3.0], &[3]));
        let failed = |error: Error, function: &str, reason: &str| {
            let text = error.to_string();
            assert!(
                text.starts_with(&format!("`telegrad::{function}` failed on worker `w1`: ")),
                "{text}"
            );
            assert!(text.contains(reason), "{text}");
        };
        let error = world.rpc_sync(1, ops::add, (a.clone(), b.clone())).unwrap_err();
        failed(
            error,
            "add",
            "shape mismatch in broadcast_add, lhs: [2], rhs: [3]",
        );
        let error = world
            .rpc_sync(1, ops::mul, (a.clone(), a.to_dtype(DType::F64).unwrap()))
            .unwrap_err();
        failed(error, "mul", "dtype mismatch in mul, lhs: F32, rhs: F64");
        let error = world.rpc_sync(
            1,
            ops::matmul,
            (tensor(&[0.0; 6], &[2, 3]), tensor(&[0.0; 4], &[2, 2])),
        );
        failed(
            error.unwrap_err(),
            "matmul",
            "shape mismatch in matmul, lhs: [2, 3], rhs: [2, 2]",
        );
        let error = world.rpc_sync(1, ops::reshape, (a.clone(), vec![3])).unwrap_err();
        failed(error, "reshape", "got buffer of size 2 ");
        let dimension = "no dimension 1 in a tensor with 1 dimensions";
        failed(
            world.rpc_sync(1, ops::softmax, (a.clone(), 1)).unwrap_err(),
            "softmax",
            dimension,
        );
        let dimension = "no dimension -2 in a tensor with 1 dimensions";
        failed(
            world.rpc_sync(1, ops::argmax, (a.clone(), Some(-2))).unwrap_err(),
            "argmax",
            dimension,
        );
        failed(
            world.rpc_sync(1, ops::transpose, (a.clone(), 0, -2)).unwrap_err(),
            "transpose",
            dimension,
        );
        failed(
            world.rpc_sync(1, ops::cat, (vec![], 0)).unwrap_err(),
            "cat",
            "cat needs at least one tensor",
        );
        failed(
            world.rpc_sync(1, ops::cat, (vec![a, b], 5)).unwrap_err(),
            "cat",
            "no dimension 5 in a tensor with 1",
        );
        let huge = vec![usize::MAX, 2];
        let reason = "a tensor of shape [18446744073709551615, 2] is too large";
        failed(
            world.rpc_sync(1, ops::ones, (huge.clone(),)).unwrap_err(),
            "ones",
            reason,
        );
        failed(
            world.rpc_sync(1, ops::zeros, (huge.clone(),)).unwrap_err(),
            "zeros",
            reason,
        );
        failed(
            world.rpc_sync(1, ops::randn, (huge,)).unwrap_err(),
            "randn",
            reason,
        );
        assert_close(&world.rpc_sync(1, ops::zeros, (vec![1],)).unwrap(), &[0.0], &[1]);
    });
}

#[test]
fn integers_are_refused_by_name_where_floats_are_needed() {
    with_another(|world| {
        for dtype in [DType::U8, DType::U32, DType::I64] {
            let x = tensor(&[1.0, 2.0], &[2]).to_dtype(dtype).unwrap();
            let one = || (x.clone(),);
            let results = [
                ("neg", world.rpc_sync(1, ops::neg, one())),
                ("sqrt", world.rpc_sync(1, ops::sqrt, one())),
                ("exp", world.rpc_sync(1, ops::exp, one())),
                ("log", world.rpc_sync(1, ops::log, one())),
                ("tanh", world.rpc_sync(1, ops::tanh, one())),
                ("sigmoid", world.rpc_sync(1, ops::sigmoid, one())),
                ("softmax", world.rpc_sync(1, ops::softmax, (x.clone(), 0))),
                // Zero or a rounded number instead of a panic.
                ("mean", world.rpc_sync(1, ops::mean, one())),
            ];
            for (operator, result) in results {
                let error = result.unwrap_err();
                let text = format!(
                    "`telegrad::{operator}` failed on worker `w1`: unsupported dtype {dtype:?} for op {operator}"
                );
                assert_eq!(error.to_string(), text);
            }
            // Others are defined for integers too.
            let relu = world.rpc_sync(1, ops::relu, one()).unwrap();
            assert_eq!(relu.dtype(), dtype);
            world.rpc_sync(1, ops::sum, one()).unwrap();
        }
        assert!(
            ops::exp(Tensor::new(1_u32, &Device::Cpu).unwrap()).is_err(),
            "also on the spot"
        );
    });
}
