//! Gradients against central differences in f64.

use candle_core::{D, DType, Device, Tensor, Var};
use telegrad_nn::{Module, Result, Rng};

/// Half the distance of a central difference. The error of the difference is about its square; rounding adds about
/// 1e-16 / 1e-5.
const STEP: f64 = 1e-5;

/// The allowed error of a gradient, relative to the larger of it and one.
pub(crate) const TOLERANCE: f64 = 1e-7;

/// Checks the gradient with respect to every element of every input.
///
/// Also checks that gradients are detached, that each is the same when only its input has one, and that inputs may have
/// any layout.
#[track_caller]
pub(crate) fn check(inputs: &[Tensor], function: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let output = function(inputs).unwrap();
    assert_eq!(output.dtype(), DType::F64);
    assert!(!output.track_op(), "no input has a gradient");
    let weights = random(output.dims(), 99);
    let scalar =
        |inputs: &[Tensor]| -> Tensor { (function(inputs).unwrap() * &weights).unwrap().sum_all().unwrap() };

    let vars: Vec<Tensor> = inputs.iter().map(variable).collect();
    let grads = scalar(&vars).backward().unwrap();
    for (index, var) in vars.iter().enumerate() {
        let grad = grads
            .get(var)
            .unwrap_or_else(|| panic!("input {index} has no gradient"));
        assert!(!grad.track_op(), "the gradient of input {index} is not detached");
        assert_eq!(grad.dims(), var.dims());
        let value = |replaced: &Tensor| {
            let mut inputs = inputs.to_vec();
            inputs[index] = replaced.clone();
            number(&scalar(&inputs))
        };
        compare(
            &format!("input {index}"),
            grad,
            &differences(&inputs[index], value),
        );

        let mut alone = inputs.to_vec();
        alone[index] = variable(&inputs[index]);
        let grads = scalar(&alone).backward().unwrap();
        compare("alone", grads.get(&alone[index]).unwrap(), &numbers(grad));
    }

    let strided: Vec<Tensor> = vars.iter().map(strided).collect();
    let grads = scalar(&strided).backward().unwrap();
    for (index, var) in vars.iter().enumerate() {
        let grad = grads.get(var).unwrap();
        let straight = scalar(&vars).backward().unwrap();
        compare(
            &format!("strided input {index}"),
            grad,
            &numbers(straight.get(var).unwrap()),
        );
    }
}

/// Checks the gradients of a module with respect to an input of floats and to all parameters.
#[track_caller]
pub(crate) fn check_module(module: &dyn Module, x: &Tensor) {
    check(std::slice::from_ref(x), |inputs| Ok(detached(module, &inputs[0])));
    check_parameters(module, || module.forward(x));
}

/// Checks the gradients with respect to all parameters.
#[track_caller]
pub(crate) fn check_parameters(module: &dyn Module, forward: impl Fn() -> Result<Tensor>) {
    let weights = random(forward().unwrap().dims(), 98);
    let scalar = || (forward().unwrap() * &weights).unwrap().sum_all().unwrap();
    for (name, param) in module.named_parameters() {
        let leaf = param.tensor();
        let grads = scalar().backward().unwrap();
        let grad = grads
            .get(&leaf)
            .unwrap_or_else(|| panic!("`{name}` has no gradient"));
        let differences = differences(&leaf.detach(), |value| {
            param.set(value).unwrap();
            number(&scalar())
        });
        param.set(&leaf.detach()).unwrap();
        compare(&name, grad, &differences);
    }
}

/// A tensor of fixed normal numbers in f64.
pub(crate) fn random(shape: &[usize], seed: u64) -> Tensor {
    let values = Rng::new(seed).normal_tensor(shape, 0.0, 1.0).unwrap();
    values.to_dtype(DType::F64).unwrap()
}

/// A tensor of f64.
pub(crate) fn tensor(values: &[f64], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape, &Device::Cpu).unwrap()
}

/// All elements in row-major order.
pub(crate) fn numbers(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor.flatten_all().unwrap().to_dtype(DType::F64).unwrap();
    flat.to_vec1().unwrap()
}

/// Asserts that all elements are close to the expected ones.
#[track_caller]
pub(crate) fn near(tensor: &Tensor, expected: &[f64], tolerance: f64) {
    let found = numbers(tensor);
    assert_eq!(found.len(), expected.len());
    for (position, (found, expected)) in found.iter().zip(expected).enumerate() {
        let far = (found - expected).abs() > tolerance * expected.abs().max(1.0);
        assert!(
            !far && !found.is_nan(),
            "element {position} is {found}, not {expected}"
        );
    }
}

#[track_caller]
fn compare(what: &str, grad: &Tensor, expected: &[f64]) {
    let found = numbers(grad);
    assert_eq!(found.len(), expected.len(), "{what}");
    for (position, (found, expected)) in found.iter().zip(expected).enumerate() {
        let far = (found - expected).abs() > TOLERANCE * expected.abs().max(1.0);
        assert!(
            !far && !found.is_nan(),
            "{what}, element {position}: gradient {found}, difference {expected}"
        );
    }
}

pub(crate) fn differences(at: &Tensor, function: impl Fn(&Tensor) -> f64) -> Vec<f64> {
    let values = numbers(at);
    let moved = |position: usize, by: f64| {
        let mut values = values.clone();
        values[position] += by;
        function(&tensor(&values, at.dims()))
    };
    let positions = 0..values.len();
    positions
        .map(|position| (moved(position, STEP) - moved(position, -STEP)) / (2.0 * STEP))
        .collect()
}

/// The same values with another layout, by an operation that is part of the graph.
fn strided(tensor: &Tensor) -> Tensor {
    if tensor.rank() < 2 {
        return tensor.clone();
    }
    let strided = tensor.t().unwrap().contiguous().unwrap().t().unwrap();
    assert!(
        !strided.is_contiguous()
            || strided.dim(D::Minus1).unwrap() == 1
            || strided.dim(D::Minus2).unwrap() == 1
    );
    strided
}

/// The output, detached unless the input is tracked.
fn detached(module: &dyn Module, x: &Tensor) -> Tensor {
    let y = module.forward(x).unwrap();
    if x.track_op() { y } else { y.detach() }
}

fn variable(tensor: &Tensor) -> Tensor {
    Var::from_tensor(tensor).unwrap().into_inner()
}

fn number(tensor: &Tensor) -> f64 {
    tensor.to_scalar().unwrap()
}

#[test]
#[should_panic(expected = "gradient")]
fn a_wrong_gradient_is_found() {
    // The slope that candle gives the rectifier at zero is neither that of torch nor the difference.
    check(&[tensor(&[0.0], &[1])], |x| Ok(x[0].relu()?));
}

#[test]
#[should_panic(expected = "has no gradient")]
fn a_lost_gradient_is_found() {
    check(&[tensor(&[1.0, 2.0], &[2])], |x| Ok((x[0].detach() * 2.0)?));
}
