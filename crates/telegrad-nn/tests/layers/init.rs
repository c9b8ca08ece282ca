use candle_core::Tensor;
use telegrad_nn::init::{self, Fan, Nonlinearity};
use telegrad_nn::{Conv2d, Conv2dOptions, Embedding, Linear, Lstm, Module, Rng};

use crate::gradient::numbers;

/// Asserts that mean and variance of many numbers are within 5% of the deviation and of the variance.
#[track_caller]
fn has_moments(tensor: &Tensor, mean: f64, std: f64) {
    let values = numbers(tensor);
    assert!(values.len() >= 20_000, "too few numbers for an estimate");
    let found = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|x| (x - found).powi(2)).sum::<f64>() / values.len() as f64;
    assert!((found - mean).abs() < 0.05 * std, "mean {found}, not {mean}");
    assert!(
        (variance / (std * std) - 1.0).abs() < 0.05,
        "variance {variance}, not {}",
        std * std
    );
}

/// Asserts that numbers fill a range around zero without exceeding it.
#[track_caller]
fn is_within(tensor: &Tensor, bound: f64) {
    let largest = numbers(tensor).iter().fold(0f64, |max, x| max.max(x.abs()));
    // In f32 the bound itself may be rounded up.
    assert!(
        largest <= bound * (1.0 + 1e-6) && largest > 0.95 * bound,
        "{largest} of {bound}"
    );
}

#[test]
fn distributions_have_their_moments() {
    let mut rng = Rng::new(3);
    has_moments(&init::normal((200, 200), 2.0, 0.5, &mut rng).unwrap(), 2.0, 0.5);
    let uniform = init::uniform((200, 200), -1.0, 3.0, &mut rng).unwrap();
    has_moments(&uniform, 1.0, 4.0 / 12f64.sqrt());
    assert!(numbers(&uniform).iter().all(|x| (-1.0..=3.0).contains(x)));
    assert!(numbers(&init::zeros(4).unwrap()).iter().all(|&x| x == 0.0));
    assert!(numbers(&init::ones(4).unwrap()).iter().all(|&x| x == 1.0));
}

#[test]
fn kaiming_and_xavier_scale_with_the_fans() {
    let mut rng = Rng::new(4);
    // 100 · 9 inputs of one output, 40 · 9 outputs of one input.
    let shape = (40, 100, 3, 3);
    assert_eq!(init::fans(shape).unwrap(), (900, 360));
    let relu = Nonlinearity::Relu;
    let std = (2.0 / 900f64).sqrt();
    has_moments(
        &init::kaiming_normal(shape, Fan::In, relu, &mut rng).unwrap(),
        0.0,
        std,
    );
    let uniform = init::kaiming_uniform(shape, Fan::In, relu, &mut rng).unwrap();
    has_moments(&uniform, 0.0, std);
    is_within(&uniform, 3f64.sqrt() * std);
    let out = init::kaiming_normal(shape, Fan::Out, Nonlinearity::Linear, &mut rng).unwrap();
    has_moments(&out, 0.0, (1.0 / 360f64).sqrt());

    let std = 1.5 * (2.0 / 1260f64).sqrt();
    has_moments(&init::xavier_normal(shape, 1.5, &mut rng).unwrap(), 0.0, std);
    let uniform = init::xavier_uniform(shape, 1.5, &mut rng).unwrap();
    has_moments(&uniform, 0.0, std);
    is_within(&uniform, 3f64.sqrt() * std);
}

#[test]
fn gains_match_torch() {
    assert_eq!(Nonlinearity::Tanh.gain(), 5.0 / 3.0);
    assert_eq!(Nonlinearity::LeakyRelu(0.0).gain(), Nonlinearity::Relu.gain());
    // With √5 the bound is √3 · √(1/3) / √fan.
    assert!((Nonlinearity::LeakyRelu(5f64.sqrt()).gain() - (1f64 / 3.0).sqrt()).abs() < 1e-15);
}

#[test]
fn initial_layers_match_torch() {
    let mut rng = Rng::new(5);
    let linear = Linear::new(400, 300, &mut rng).unwrap();
    is_within(&linear.weight().value(), 1.0 / 20.0);
    has_moments(&linear.weight().value(), 0.0, 1.0 / 20.0 / 3f64.sqrt());
    is_within(&linear.bias().unwrap().value(), 1.0 / 20.0);

    let options = Conv2dOptions {
        groups: 2,
        ..Conv2dOptions::default()
    };
    let conv = Conv2d::new(32, 400, 5, options, &mut rng).unwrap();
    is_within(&conv.weight().value(), 1.0 / 20.0);
    is_within(&conv.bias().unwrap().value(), 1.0 / 20.0);

    has_moments(
        &Embedding::new(200, 200, &mut rng).unwrap().weight().value(),
        0.0,
        1.0,
    );
    for param in Lstm::new(30, 100, 1, &mut rng).unwrap().parameters() {
        is_within(&param.value(), 0.1);
    }
}

#[test]
fn a_seed_gives_the_same_layer() {
    let weight = |seed| numbers(&Linear::new(5, 4, &mut Rng::new(seed)).unwrap().weight().value());
    assert_eq!(weight(1), weight(1));
    assert_ne!(weight(1), weight(2));
}

#[test]
fn forks_are_independent_of_later_draws_of_the_parent() {
    let (mut a, mut b) = (Rng::new(1), Rng::new(1));
    let (mut fork_a, mut fork_b) = (a.fork(), b.fork());
    a.next_u64();
    assert_eq!(fork_a.next_u64(), fork_b.next_u64());
    assert_ne!(fork_a.next_u64(), b.next_u64());
}

#[test]
fn a_shape_with_one_dimension_has_no_fans() {
    assert!(init::xavier_normal(5, 1.0, &mut Rng::new(0)).is_err());
    assert!(init::kaiming_uniform((), Fan::In, Nonlinearity::Relu, &mut Rng::new(0)).is_err());
}
