use candle_core::{DType, Device, Tensor, Var};
use telegrad_nn::{Dropout, Module, NnError, Rng, Sequential};

use crate::gradient::{numbers, random};

fn ones(count: usize) -> Tensor {
    Tensor::ones(count, DType::F32, &Device::Cpu).unwrap()
}

#[test]
fn dropout_has_its_probability_and_preserves_the_mean() {
    let dropout = Dropout::new(0.3, &mut Rng::new(1)).unwrap();
    let y = numbers(&dropout.forward(&ones(100_000)).unwrap());
    let dropped = y.iter().filter(|&&y| y == 0.0).count() as f64 / y.len() as f64;
    assert!((dropped - 0.3).abs() < 0.005, "{dropped}");
    assert!(y.iter().all(|&y| y == 0.0 || (y - 1.0 / 0.7).abs() < 1e-6));
    let mean = y.iter().sum::<f64>() / y.len() as f64;
    assert!((mean - 1.0).abs() < 0.01, "{mean}");
}

#[test]
fn gradient_and_value_have_the_same_mask() {
    let dropout = Dropout::new(0.5, &mut Rng::new(1)).unwrap();
    let x = Var::from_tensor(&random(&[8, 8], 1)).unwrap();
    let y = dropout.forward(&x).unwrap();
    let grads = y.sum_all().unwrap().backward().unwrap();
    let grad = numbers(grads.get(&x).unwrap());
    for ((x, y), grad) in numbers(&x).iter().zip(numbers(&y)).zip(grad) {
        assert_eq!(y, x * grad);
    }
}

#[test]
fn passes_differ_and_runs_repeat() {
    let run = || {
        let dropout = Dropout::new(0.5, &mut Rng::new(1)).unwrap();
        [0, 1].map(|_| numbers(&dropout.forward(&ones(64)).unwrap()))
    };
    let [first, second] = run();
    assert_ne!(first, second);
    assert_eq!([first, second], run());
}

#[test]
fn set_training_reaches_nested_modules() {
    let dropout = Dropout::new(0.5, &mut Rng::new(1)).unwrap();
    let net = Sequential::new().push(Sequential::new().push(dropout));
    net.set_training(false);
    assert_eq!(numbers(&net.forward(&ones(64)).unwrap()), [1.0; 64]);
    net.set_training(true);
    assert_ne!(numbers(&net.forward(&ones(64)).unwrap()), [1.0; 64]);
}

#[test]
fn probabilities_zero_and_one_are_valid() {
    let forward = |p| {
        numbers(
            &Dropout::new(p, &mut Rng::new(1))
                .unwrap()
                .forward(&ones(8))
                .unwrap(),
        )
    };
    assert_eq!(forward(0.0), [1.0; 8]);
    assert_eq!(forward(1.0), [0.0; 8]);
    for p in [-0.1, 1.1, f64::NAN] {
        assert!(matches!(
            Dropout::new(p, &mut Rng::new(1)).err().unwrap().nn(),
            Some(NnError::Options { .. })
        ));
    }
}
