use candle_core::{D, DType, Device, Tensor};
use telegrad_nn::{log_softmax, softmax};

use crate::gradient::{check, near, numbers, random};

#[test]
fn values_match_the_formula() {
    let x = random(&[3, 4], 1).to_dtype(DType::F32).unwrap();
    let mut expected = Vec::new();
    for row in numbers(&x).chunks_exact(4) {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        expected.extend(row.iter().map(|x| x.exp() / sum));
    }
    near(&softmax(&x, 1).unwrap(), &expected, 1e-6);
    let logs: Vec<f64> = expected.iter().map(|y| y.ln()).collect();
    near(&log_softmax(&x, D::Minus1).unwrap(), &logs, 1e-6);
    let turned = softmax(&x.t().unwrap(), 0).unwrap().t().unwrap();
    near(&turned, &expected, 1e-6);
}

#[test]
fn large_inputs_do_not_overflow() {
    let x = Tensor::new(&[1000f32, 0.0, -1000.0], &Device::Cpu).unwrap();
    near(&softmax(&x, 0).unwrap(), &[1.0, 0.0, 0.0], 0.0);
    near(&log_softmax(&x, 0).unwrap(), &[0.0, -1000.0, -2000.0], 1e-6);
}

#[test]
fn gradients_match_finite_differences() {
    let x = random(&[2, 3, 4], 1);
    for dim in 0..3 {
        check(std::slice::from_ref(&x), |x| softmax(&x[0], dim));
        check(std::slice::from_ref(&x), |x| log_softmax(&x[0], dim));
    }
}

#[test]
fn wrong_dimensions_are_errors() {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    assert!(softmax(&zeros(&[2, 3]), 2).is_err());
    assert!(softmax(&zeros(&[2, 0]), 1).is_err());
    assert!(log_softmax(&zeros(&[]), D::Minus1).is_err());
    assert_eq!(softmax(&zeros(&[0, 3]), 1).unwrap().dims(), [0, 3]);
}
