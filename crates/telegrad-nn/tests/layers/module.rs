use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use telegrad_nn::{Error, Flatten, Func, Linear, Module, NnError, Param, Result, Rng, relu, tracked};

use crate::gradient::{check, check_module, random};

/// A model with its own parameter and a layer used twice.
struct Tied {
    scale: Param,
    layer: Arc<Linear>,
}

impl Module for Tied {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = relu(&self.layer.forward(x)?)?;
        Ok(self.layer.forward(&x)?.broadcast_mul(&self.scale.tensor())?)
    }

    fn own_parameters(&self) -> Vec<(&str, &Param)> {
        vec![("scale", &self.scale)]
    }

    fn children(&self) -> Vec<(&str, &dyn Module)> {
        vec![("encoder", &self.layer), ("decoder", &self.layer)]
    }
}

fn tied() -> Tied {
    let layer = Linear::from_tensors(&random(&[3, 3], 1), Some(&random(&[3], 2))).unwrap();
    Tied {
        scale: Param::new(&random(&[3], 3)).unwrap(),
        layer: Arc::new(layer),
    }
}

#[test]
fn parameters_have_paths_and_are_listed_once() {
    let module = tied();
    let names: Vec<String> = module
        .named_parameters()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        [
            "scale",
            "encoder.weight",
            "encoder.bias",
            "decoder.weight",
            "decoder.bias"
        ]
    );
    assert_eq!(module.parameters().len(), 3);
    let boxed: Box<dyn Module> = Box::new(module);
    assert_eq!(boxed.parameters().len(), 3);
}

#[test]
fn a_layer_used_twice_gets_both_gradients() {
    check_module(&tied(), &random(&[4, 3], 4));
}

#[test]
fn flatten_keeps_the_first_dimension() {
    let x = random(&[2, 3, 4], 1);
    assert_eq!(Flatten.forward(&x).unwrap().dims(), [2, 12]);
    assert_eq!(Flatten.forward(&random(&[5], 1)).unwrap().dims(), [5]);
    check(&[x], |x| Flatten.forward(&x[0]));
}

#[test]
fn a_function_that_loses_the_gradient_is_named() {
    let param = Param::new(&random(&[3], 1)).unwrap();
    let frozen = Func::new("frozen", |x| Ok(x.detach()));
    let error = frozen.forward(&param.tensor()).unwrap_err();
    assert!(
        matches!(error.nn(), Some(NnError::LostGradient { layer }) if layer == "frozen"),
        "{error}"
    );
    // Untracked inputs and integer outputs have no gradient to lose.
    assert!(frozen.forward(&param.value()).is_ok());
    let largest = Func::new("argmax", |x| Ok(x.argmax(0)?));
    assert!(largest.forward(&param.tensor()).is_ok());
}

#[test]
fn tracked_checks_all_inputs() {
    let (a, b) = (random(&[2], 1), Param::new(&random(&[2], 2)).unwrap().tensor());
    let sum = (&a + &b.detach()).unwrap();
    assert!(tracked("sum", &[&a, &a], sum.clone()).is_ok());
    assert!(matches!(
        tracked("sum", &[&a, &b], sum).err().unwrap().nn(),
        Some(NnError::LostGradient { .. })
    ));
    assert!(tracked("sum", &[&a, &b], (&a + &b).unwrap()).is_ok());
}

#[test]
fn many_threads_share_one_model() {
    let model = Linear::new(8, 4, &mut Rng::new(0)).unwrap();
    let x = Tensor::ones((16, 8), DType::F32, &Device::Cpu).unwrap();
    let expected = model.forward(&x).unwrap().to_vec2::<f32>().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let y = model.forward(&x).unwrap();
                    y.sum_all().unwrap().backward().unwrap();
                    assert_eq!(y.to_vec2::<f32>().unwrap(), expected);
                }
            });
        }
    });
}

#[test]
fn errors_of_layers_and_of_candle_are_variants() {
    let lost = NnError::LostGradient { layer: "x".into() };
    let text = lost.to_string();
    let error = Error::from(lost);
    assert!(matches!(error, Error::Nn(_)));
    assert_eq!(error.to_string(), text);
    let error = Error::from(candle_core::Error::Msg("no".into()));
    assert!(matches!(error, Error::Tensor(_)));
}
