use candle_core::{DType, Device, Tensor};
use telegrad_nn::{Linear, Module, NnError, Rng, linear};

use crate::gradient::{check, check_module, near, numbers, random, tensor};

#[test]
fn linear_multiplies_and_adds() {
    let weight = Tensor::new(&[[1f32, 2.0], [3.0, 4.0], [5.0, 6.0]], &Device::Cpu).unwrap();
    let bias = Tensor::new(&[0.5f32, -0.5, 0.0], &Device::Cpu).unwrap();
    let layer = Linear::from_tensors(&weight, Some(&bias)).unwrap();
    let x = Tensor::new(&[[1f32, 1.0], [2.0, -1.0]], &Device::Cpu).unwrap();
    near(&layer.forward(&x).unwrap(), &[3.5, 6.5, 11.0, 0.5, 1.5, 4.0], 0.0);
}

#[test]
fn gradients_match_finite_differences() {
    let (weight, bias) = (random(&[4, 3], 1), random(&[4], 2));
    for shape in [&[3][..], &[5, 3], &[2, 5, 3], &[2, 1, 2, 3]] {
        let x = random(shape, 3);
        check(&[x.clone(), weight.clone(), bias.clone()], |inputs| {
            linear(&inputs[0], &inputs[1], Some(&inputs[2]))
        });
        check(&[x.clone(), weight.clone()], |inputs| {
            linear(&inputs[0], &inputs[1], None)
        });
        check_module(&Linear::from_tensors(&weight, Some(&bias)).unwrap(), &x);
    }
}

#[test]
fn few_and_many_rows_give_the_same_product() {
    let (weight, bias) = (random(&[21, 18], 1), random(&[21], 2));
    for rows in [1, 2, 31, 32, 33, 70] {
        let x = random(&[rows, 18], 3);
        let expected = x
            .matmul(&weight.t().unwrap())
            .unwrap()
            .broadcast_add(&bias)
            .unwrap();
        near(
            &linear(&x, &weight, Some(&bias)).unwrap(),
            &numbers(&expected),
            1e-12,
        );
        let strided = x.t().unwrap().contiguous().unwrap().t().unwrap();
        near(
            &linear(&strided, &weight, Some(&bias)).unwrap(),
            &numbers(&expected),
            1e-12,
        );
    }
    check(&[random(&[40, 3], 1), random(&[2, 3], 2)], |inputs| {
        linear(&inputs[0], &inputs[1], None)
    });
}

#[test]
fn leading_dimensions_are_rows() {
    let layer = Linear::new(3, 2, &mut Rng::new(0)).unwrap();
    let x = random(&[4, 5, 3], 1).to_dtype(DType::F32).unwrap();
    let batch = layer.forward(&x).unwrap();
    assert_eq!(batch.dims(), [4, 5, 2]);
    let rows = layer.forward(&x.reshape((20, 3)).unwrap()).unwrap();
    assert_eq!(numbers(&batch), numbers(&rows));
}

#[test]
fn an_empty_batch_has_an_empty_output() {
    let layer = Linear::new(3, 2, &mut Rng::new(0)).unwrap();
    let x = Tensor::zeros((0, 3), DType::F32, &Device::Cpu).unwrap();
    let y = layer.forward(&x).unwrap();
    assert_eq!(y.dims(), [0, 2]);
    let grads = y.sum_all().unwrap().backward().unwrap();
    assert_eq!(numbers(grads.get(&layer.weight().tensor()).unwrap()), [0.0; 6]);
}

#[test]
fn half_precision_uses_candle() {
    let weight = Tensor::ones((2, 3), DType::BF16, &Device::Cpu).unwrap();
    let layer = Linear::from_tensors(
        &weight,
        Some(&Tensor::ones(2, DType::BF16, &Device::Cpu).unwrap()),
    )
    .unwrap();
    let y = layer
        .forward(&Tensor::ones((1, 3), DType::BF16, &Device::Cpu).unwrap())
        .unwrap();
    near(&y, &[4.0, 4.0], 0.0);
    assert!(y.track_op());
}

#[test]
fn wrong_shapes_are_errors() {
    let layer = Linear::new(3, 2, &mut Rng::new(0)).unwrap();
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    let error = layer.forward(&zeros(&[4, 5])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "linear takes [..., 3], not one of shape [4, 5]"
    );
    assert!(layer.forward(&zeros(&[])).is_err());
    assert!(matches!(
        layer
            .forward(&tensor(&[1.0, 2.0, 3.0], &[1, 3]))
            .err()
            .unwrap()
            .nn(),
        Some(NnError::Input { .. })
    ));
    assert!(Linear::from_tensors(&zeros(&[3]), None).is_err());
    assert!(Linear::from_tensors(&zeros(&[3, 2]), Some(&zeros(&[2]))).is_err());
}
