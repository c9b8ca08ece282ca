use candle_core::{DType, Device, Tensor, Var};
use telegrad_nn::{AvgPool2d, MaxPool2d, Module, NnError, Pair};

use crate::gradient::{check, near, numbers, random};

/// Kernel, stride and padding.
const CASES: [[(usize, usize); 3]; 6] = [
    [(2, 2), (2, 2), (0, 0)],
    [(3, 3), (1, 1), (0, 0)],
    [(3, 3), (2, 2), (1, 1)],
    [(2, 3), (1, 2), (1, 0)],
    [(2, 2), (3, 3), (0, 0)],
    [(1, 1), (1, 1), (0, 0)],
];

/// Folds the numbers under the window at each place, by the definition.
fn plain(x: &Tensor, [kernel, stride, padding]: [(usize, usize); 3], fold: fn(&[f64]) -> f64) -> Vec<f64> {
    let (n, c, h, w) = x.dims4().unwrap();
    let x = numbers(x);
    let mut out = Vec::new();
    for plane in x.chunks_exact(h * w).take(n * c) {
        for top in 0..(h + 2 * padding.0 - kernel.0) / stride.0 + 1 {
            for left in 0..(w + 2 * padding.1 - kernel.1) / stride.1 + 1 {
                let mut under = Vec::new();
                for row in 0..kernel.0 {
                    for column in 0..kernel.1 {
                        let y = (top * stride.0 + row).wrapping_sub(padding.0);
                        let z = (left * stride.1 + column).wrapping_sub(padding.1);
                        if y < h && z < w {
                            under.push(plane[y * w + z]);
                        }
                    }
                }
                out.push(fold(&under));
            }
        }
    }
    out
}

fn modules([kernel, stride, padding]: [(usize, usize); 3]) -> (MaxPool2d, AvgPool2d) {
    let [kernel, stride, padding] = [kernel, stride, padding].map(Pair::from);
    let max = MaxPool2d {
        kernel,
        stride,
        padding,
    };
    let avg = AvgPool2d {
        kernel,
        stride,
        padding,
    };
    (max, avg)
}

#[test]
fn values_match_the_definition() {
    let x = random(&[2, 3, 6, 7], 1);
    for case in CASES {
        let (max, avg) = modules(case);
        let expected = plain(&x, case, |under| under.iter().copied().fold(f64::MIN, f64::max));
        near(&max.forward(&x).unwrap(), &expected, 0.0);
        let size = (case[0].0 * case[0].1) as f64;
        let sums = plain(&x, case, |under| under.iter().sum());
        let expected: Vec<f64> = sums.iter().map(|sum| sum / size).collect();
        near(&avg.forward(&x).unwrap(), &expected, 1e-12);
        near(
            &avg.forward(&x.to_dtype(DType::F32).unwrap()).unwrap(),
            &expected,
            1e-6,
        );
    }
}

#[test]
fn gradients_match_finite_differences() {
    let x = random(&[2, 2, 5, 6], 1);
    for case in CASES {
        let (max, avg) = modules(case);
        check(std::slice::from_ref(&x), |x| max.forward(&x[0]));
        check(std::slice::from_ref(&x), |x| avg.forward(&x[0]));
    }
}

#[test]
fn the_first_of_equal_maxima_gets_the_gradient() {
    let x = Var::ones((1, 1, 2, 2), DType::F32, &Device::Cpu).unwrap();
    let y = MaxPool2d::new(2).forward(&x).unwrap();
    let grads = y.sum_all().unwrap().backward().unwrap();
    assert_eq!(numbers(grads.get(&x).unwrap()), [1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn infinities_and_nan_propagate() {
    let forward = |values: [f32; 4]| {
        let x = Tensor::from_slice(&values, (1, 1, 2, 2), &Device::Cpu).unwrap();
        let x = Var::from_tensor(&x).unwrap();
        let y = MaxPool2d::new(2).forward(&x).unwrap();
        y.sum_all().unwrap().backward().unwrap();
        numbers(&y)[0]
    };
    assert_eq!(forward([f32::NEG_INFINITY; 4]), f64::NEG_INFINITY);
    assert!(forward([1.0, f32::NAN, 2.0, 3.0]).is_nan());
}

#[test]
fn wrong_shapes_and_options_are_errors() {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    let wide = MaxPool2d {
        padding: 2.into(),
        ..MaxPool2d::new(3)
    };
    assert!(matches!(
        wide.forward(&zeros(&[1, 1, 8, 8])).err().unwrap().nn(),
        Some(NnError::Options { .. })
    ));
    for shape in [&[1, 8, 8][..], &[1, 1, 1, 8], &[1, 1, 0, 8]] {
        assert!(MaxPool2d::new(2).forward(&zeros(shape)).is_err(), "{shape:?}");
        assert!(AvgPool2d::new(2).forward(&zeros(shape)).is_err(), "{shape:?}");
    }
}
