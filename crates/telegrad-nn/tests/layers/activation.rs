use candle_core::{DType, Device, Tensor, Var};
use telegrad_nn::{
    Gelu, GeluTanh, LeakyRelu, Module, NnError, Relu, Sigmoid, Silu, Softplus, Tanh, gelu, gelu_tanh,
    leaky_relu, relu, sigmoid, silu, softplus, tanh,
};

use crate::gradient::{check, near, numbers, random, tensor};

const POINTS: [f64; 7] = [-30.0, -2.5, -0.3, 0.0, 0.1, 1.0, 40.0];

#[test]
fn values_match_the_formulas() {
    let x = Tensor::new(&POINTS.map(|x| x as f32), &Device::Cpu).unwrap();
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    type Formula<'a> = &'a dyn Fn(f64) -> f64;
    let cases: [(&str, Tensor, Formula<'_>); 7] = [
        ("relu", relu(&x).unwrap(), &|x| x.max(0.0)),
        ("leaky_relu", leaky_relu(&x, 0.2).unwrap(), &|x| x.max(0.2 * x)),
        ("silu", silu(&x).unwrap(), &|x| x * logistic(x)),
        ("sigmoid", sigmoid(&x).unwrap(), &logistic),
        ("tanh", tanh(&x).unwrap(), &|x| {
            1.0 - 2.0 / ((2.0 * x).exp() + 1.0)
        }),
        ("softplus", softplus(&x).unwrap(), &|x| x.exp().ln_1p()),
        ("gelu_tanh", gelu_tanh(&x).unwrap(), &|x| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }),
    ];
    for (name, found, expected) in cases {
        let expected = POINTS.map(expected);
        assert_eq!(found.dtype(), DType::F32, "{name}");
        near(&found, &expected, 1e-6);
    }
}

#[test]
fn gelu_matches_known_values() {
    // From tables of the normal distribution: Φ(1) = 0.8413447461, Φ(-2.5) = 0.0062096653.
    let y = gelu(&tensor(&[1.0, -2.5, 0.0], &[3])).unwrap();
    near(&y, &[0.841_344_746_1, -2.5 * 0.006_209_665_3, 0.0], 1e-9);
}

#[test]
fn gradients_match_finite_differences() {
    let x = random(&[3, 5], 1);
    let modules: [&dyn Module; 8] = [
        &Relu,
        &LeakyRelu(0.2),
        &Gelu,
        &GeluTanh,
        &Silu,
        &Sigmoid,
        &Tanh,
        &Softplus,
    ];
    for module in modules {
        check(std::slice::from_ref(&x), |x| module.forward(&x[0]));
    }
}

#[test]
fn large_inputs_do_not_overflow() {
    let x = tensor(&[-1000.0, 1000.0], &[2]);
    let functions = [relu, gelu, gelu_tanh, silu, sigmoid, tanh, softplus];
    for function in functions {
        let x = Var::from_tensor(&x).unwrap();
        let y = function(&x).unwrap();
        let grads = y.sum_all().unwrap().backward().unwrap();
        let grad = numbers(grads.get(&x).unwrap());
        assert!(numbers(&y).iter().chain(&grad).all(|number| number.is_finite()));
    }
}

#[test]
fn the_slope_of_the_rectifier_at_zero_is_zero() {
    let x = Var::new(&[-1f32, 0.0, 1.0], &Device::Cpu).unwrap();
    let grads = relu(&x).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(numbers(grads.get(&x).unwrap()), [0.0, 0.0, 1.0]);
}

#[test]
fn nan_propagates() {
    let x = Tensor::new(&[f32::NAN], &Device::Cpu).unwrap();
    assert!(numbers(&relu(&x).unwrap())[0].is_nan());
}

#[test]
fn an_element_type_without_a_kernel_is_refused() {
    let x = Tensor::zeros(3, DType::BF16, &Device::Cpu).unwrap();
    let error = relu(&x).unwrap_err();
    assert!(
        matches!(error.nn(), Some(NnError::Unsupported { layer: "relu", .. })),
        "{error}"
    );
    assert_eq!(
        error.to_string(),
        "relu computes in f32 or f64 on the CPU, not in BF16 on the CPU"
    );
}
