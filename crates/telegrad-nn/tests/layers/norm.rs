use candle_core::{DType, Device, Tensor};
use telegrad_nn::{LayerNorm, Module, NnError, RmsNorm, layer_norm, rms_norm};

use crate::gradient::{check, check_module, near, numbers, random};

#[test]
fn values_match_the_formulas() {
    let (x, weight, bias) = (random(&[4, 6], 1), random(&[6], 2), random(&[6], 3));
    let (scale, shift) = (numbers(&weight), numbers(&bias));
    let (mut normal, mut rms) = (Vec::new(), Vec::new());
    for row in numbers(&x).chunks_exact(6) {
        let mean = row.iter().sum::<f64>() / 6.0;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 6.0;
        let square = row.iter().map(|x| x * x).sum::<f64>() / 6.0;
        for (position, x) in row.iter().enumerate() {
            normal.push((x - mean) / (variance + 1e-5).sqrt() * scale[position] + shift[position]);
            rms.push(x / (square + 1e-5).sqrt() * scale[position]);
        }
    }
    near(&layer_norm(&x, &weight, &bias, 1e-5).unwrap(), &normal, 1e-12);
    near(&rms_norm(&x, &weight, 1e-5).unwrap(), &rms, 1e-12);
    let [x, weight, bias] = [&x, &weight, &bias].map(|t| t.to_dtype(DType::F32).unwrap());
    near(&layer_norm(&x, &weight, &bias, 1e-5).unwrap(), &normal, 1e-5);
    near(&rms_norm(&x, &weight, 1e-5).unwrap(), &rms, 1e-5);
}

#[test]
fn gradients_match_finite_differences() {
    for (x, last) in [(&[4, 6][..], &[6][..]), (&[2, 3, 4], &[3, 4]), (&[5], &[5])] {
        let (x, weight, bias) = (random(x, 1), random(last, 2), random(last, 3));
        check(&[x.clone(), weight.clone(), bias.clone()], |inputs| {
            layer_norm(&inputs[0], &inputs[1], &inputs[2], 1e-3)
        });
        check(&[x.clone(), weight.clone()], |inputs| {
            rms_norm(&inputs[0], &inputs[1], 1e-3)
        });
        check_module(&LayerNorm::from_tensors(&weight, &bias, 1e-5).unwrap(), &x);
        check_module(&RmsNorm::from_tensors(&weight, 1e-5).unwrap(), &x);
    }
}

#[test]
fn wrong_shapes_are_errors() {
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, &Device::Cpu).unwrap();
    let modules: [&dyn Module; 2] = [&LayerNorm::new((3, 4)).unwrap(), &RmsNorm::new((3, 4)).unwrap()];
    for module in modules {
        for shape in [&[4, 3][..], &[4], &[], &[2, 3, 5]] {
            let error = module.forward(&zeros(shape, DType::F32)).unwrap_err();
            assert!(matches!(error.nn(), Some(NnError::Input { .. })), "{error}");
        }
        assert!(module.forward(&zeros(&[3, 4], DType::F64)).is_err());
        assert!(module.forward(&zeros(&[0, 3, 4], DType::F32)).is_ok());
    }
}
