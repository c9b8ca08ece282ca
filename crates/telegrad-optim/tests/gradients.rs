//! Scaling of gradients, norms, and NaN.

use candle_core::{DType, Device, Tensor};
use half::bf16;
use telegrad_autograd::Param;
use telegrad_optim::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Algorithm, OptimError, Optimizer, RMSprop, Rprop, Sgd,
    clip_factor, squared_norm,
};

fn param(values: &[f32]) -> Param {
    Param::new(&Tensor::new(values, &Device::Cpu).unwrap()).unwrap()
}

fn elements(param: &Param) -> Vec<f32> {
    param.value().to_vec1().unwrap()
}

#[test]
fn a_scaled_step_matches_a_step_by_scaled_gradients() {
    fn compare<A: Algorithm + Default>() {
        let mut random = fastrand::Rng::with_seed(5);
        let start: Vec<f32> = (0..37).map(|_| random.f32() - 0.5).collect();
        let (one, other) = (param(&start), param(&start));
        let mut scaled = Optimizer::new([one.clone()], A::default()).unwrap();
        let mut reference = Optimizer::new([other.clone()], A::default()).unwrap();
        for _ in 0..5 {
            let gradient: Vec<f32> = (0..37).map(|_| random.f32() - 0.5).collect();
            let tensor = Tensor::new(gradient.as_slice(), &Device::Cpu).unwrap();
            let scale = random.f64() * 3.0;
            let product: Vec<f32> = gradient.iter().map(|element| element * scale as f32).collect();
            let product = Tensor::new(product.as_slice(), &Device::Cpu).unwrap();
            scaled.step_scaled(scale, |_| Ok(Some(tensor.clone()))).unwrap();
            reference.step_with(|_| Ok(Some(product.clone()))).unwrap();
            assert_eq!(elements(&one), elements(&other), "{}", A::NAME);
        }
        assert_ne!(elements(&one), start);
    }
    compare::<Sgd>();
    compare::<Adam>();
    compare::<AdamW>();
    compare::<Adamax>();
    compare::<Adagrad>();
    compare::<Adadelta>();
    compare::<RMSprop>();
    compare::<Rprop>();
}

#[test]
fn the_norm_covers_all_gradients_and_clips_to_the_limit() {
    let mut random = fastrand::Rng::with_seed(11);
    let all: Vec<f64> = (0..1003).map(|_| random.f64() * 8.0 - 4.0).collect();
    let expected: f64 = all.iter().map(|element| element * element).sum();
    let (first, rest) = all.split_at(77);
    let first = Tensor::new(first, &Device::Cpu).unwrap();
    let rest = Tensor::new(rest, &Device::Cpu).unwrap();
    let found = squared_norm([&first, &rest]).unwrap();
    assert!(
        (found / expected - 1.0).abs() < 1e-14,
        "{found} and not {expected}"
    );
    assert_eq!(squared_norm([]).unwrap(), 0.0);
    // In f32 or f16 the sum would overflow.
    let large = Tensor::new(&[1e30f32, 1e30], &Device::Cpu).unwrap();
    assert!((squared_norm([&large]).unwrap() / 2e60 - 1.0).abs() < 1e-7);
    let half = Tensor::new(&[bf16::from_f32(3.0), bf16::from_f32(4.0)], &Device::Cpu).unwrap();
    assert_eq!(squared_norm([&half]).unwrap(), 25.0);
    let whole = Tensor::new(&[3u8], &Device::Cpu).unwrap();
    let error = squared_norm([&whole]).unwrap_err();
    assert!(matches!(
        error.optim(),
        Some(OptimError::NormDType { dtype: DType::U8 })
    ));

    let norm = found.sqrt();
    let factor = clip_factor(norm, 2.0);
    let clipped = squared_norm([&(first * factor).unwrap(), &(rest * factor).unwrap()])
        .unwrap()
        .sqrt();
    assert!(clipped <= 2.0 && clipped > 1.999_99, "{clipped}");
    assert_eq!(clip_factor(0.5, 2.0), 1.0);
    assert_eq!(clip_factor(0.0, 2.0), 1.0);
    assert!(clip_factor(f64::NAN, 2.0).is_nan());
}

#[test]
fn nan_propagates_to_the_parameter() {
    fn spreads<A: Algorithm>(options: A) {
        let a = param(&[1.0, 1.0]);
        let mut optimizer = Optimizer::new([a.clone()], options).unwrap();
        for first in [f32::NAN, 1.0] {
            let gradient = Tensor::new(&[first, 1.0], &Device::Cpu).unwrap();
            optimizer.step_with(|_| Ok(Some(gradient.clone()))).unwrap();
        }
        let found = elements(&a);
        assert!(
            found[0].is_nan() && found[1].is_finite(),
            "{}: {found:?}",
            A::NAME
        );
    }
    spreads(Sgd::default());
    spreads(Adam {
        amsgrad: true,
        ..Adam::default()
    });
    spreads(Adamax::default());
    spreads(RMSprop {
        centered: true,
        eps: 0.1,
        ..RMSprop::default()
    });
}
