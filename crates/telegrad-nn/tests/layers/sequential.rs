use candle_core::{DType, Device, Tensor};
use telegrad_nn::{Func, Linear, Module, NnError, Relu, Result, Rng, Sequential, Tanh};

use crate::gradient::{check_module, near, numbers, random};

fn linear(inputs: usize, outputs: usize, seed: u64) -> Linear {
    let bias = random(&[outputs], seed + 1);
    Linear::from_tensors(&random(&[outputs, inputs], seed), Some(&bias)).unwrap()
}

#[test]
fn stages_run_in_order() {
    let net = Sequential::new()
        .push(linear(3, 5, 1))
        .push(Tanh)
        .push(linear(5, 2, 3));
    assert_eq!(net.len(), 3);
    let x = random(&[4, 3], 5);
    let expected = linear(3, 5, 1).forward(&x).unwrap().tanh().unwrap();
    let expected = linear(5, 2, 3).forward(&expected).unwrap();
    near(&net.forward(&x).unwrap(), &numbers(&expected), 1e-12);
    check_module(&net, &x);
}

#[test]
fn an_empty_chain_is_the_identity() {
    let x = random(&[2], 1);
    assert!(Sequential::new().is_empty());
    assert_eq!(numbers(&Sequential::new().forward(&x).unwrap()), numbers(&x));
}

#[test]
fn names_are_positions_unless_given() {
    let inner = Sequential::new()
        .push(linear(3, 3, 1))
        .push_named("fc", linear(3, 3, 1));
    let net = Sequential::new().push(Relu).push(inner);
    let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["1.0.weight", "1.0.bias", "1.fc.weight", "1.fc.bias"]);
}

#[test]
fn an_error_names_its_stage() {
    let x = Tensor::zeros((2, 3), DType::F32, &Device::Cpu).unwrap();
    let mut rng = Rng::new(0);
    let net = Sequential::new()
        .push(Linear::new(3, 5, &mut rng).unwrap())
        .push(Relu)
        .push_named("head", Linear::new(4, 2, &mut rng).unwrap());
    let error = net.forward(&x).unwrap_err();
    assert!(matches!(error.nn(), Some(NnError::Stage { index: 2, .. })));
    assert_eq!(
        error.to_string(),
        "stage 2 (Linear, `head`): linear takes [..., 4], not one of shape [2, 5]"
    );
}

#[test]
fn a_stage_that_loses_the_gradient_is_named() {
    let net = Sequential::new()
        .push(linear(3, 3, 1))
        .push(Func::new("cut", |x| Ok(x.detach())));
    let error = net.forward(&random(&[2, 3], 2)).unwrap_err().to_string();
    assert!(
        error.starts_with("stage 1 (cut): the gradient is lost in cut"),
        "{error}"
    );
}

#[test]
fn a_user_module_that_loses_the_gradient_is_named() {
    struct Frozen;
    impl Module for Frozen {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            Ok(x.detach())
        }
    }
    let net = Sequential::new().push(linear(3, 3, 1)).push(Frozen);
    let error = net.forward(&random(&[2, 3], 2)).unwrap_err().to_string();
    assert!(
        error.starts_with("stage 1 (Frozen): the gradient is lost in Frozen"),
        "{error}"
    );
    // Before the first parameter there is no gradient to lose.
    let net = Sequential::new().push(Frozen).push(linear(3, 3, 1));
    assert!(net.forward(&random(&[2, 3], 2)).is_ok());
}

#[test]
fn a_boxed_stage_has_the_name_of_its_module() {
    let boxed: Box<dyn Module> = Box::new(linear(4, 2, 1));
    let error = Sequential::new()
        .push(boxed)
        .forward(&random(&[2, 3], 2))
        .unwrap_err();
    assert!(error.to_string().starts_with("stage 0 (Linear): "), "{error}");
}
