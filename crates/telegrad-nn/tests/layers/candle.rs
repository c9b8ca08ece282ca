//! The gradients of candle's own layers, as documented in docs/candle.md.
//!
//! A release of candle may change or fix any of them: update the page together with this file.

use std::panic::{AssertUnwindSafe, catch_unwind};

use candle_core::{DType, Device, Module, ModuleT, Result, Tensor, Var};
use candle_nn::ops;
use candle_nn::rnn::{GRUState, LSTMState, RNN};
use candle_nn::{Activation, VarBuilder, VarMap, loss, rotary_emb};

use crate::gradient::{TOLERANCE, differences, numbers, random};

/// The outcome for the gradient of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Right,
    Wrong,
    /// No gradient, and no error.
    Lost,
    /// An error or a panic of the backward pass.
    Refused,
}
use Verdict::{Lost, Refused, Right, Wrong};

fn verdict(x: &Tensor, function: impl Fn(&Tensor) -> Result<Tensor>) -> Verdict {
    let weights = random(function(x).unwrap().dims(), 99);
    let scalar = |x: &Tensor| function(x)?.mul(&weights)?.sum_all();
    let variable = Var::from_tensor(x).unwrap();
    let y = scalar(&variable).unwrap();
    let Ok(Ok(gradients)) = catch_unwind(AssertUnwindSafe(|| y.backward())) else {
        return Refused;
    };
    let Some(gradient) = gradients.get(&variable) else {
        return Lost;
    };
    let expected = differences(x, |x| scalar(x).unwrap().to_scalar().unwrap());
    let close = numbers(gradient).iter().zip(&expected).all(|(found, expected)| {
        let far = (found - expected).abs() / expected.abs().max(1.0);
        // Differences of functions with f32 constants are less exact.
        far < TOLERANCE * 10.0
    });
    if close { Right } else { Wrong }
}

fn builder() -> VarBuilder<'static> {
    // The builder keeps the variables of the map.
    VarBuilder::from_varmap(&VarMap::new(), DType::F64, &Device::Cpu)
}

#[track_caller]
fn expect_verdict(
    expected: Verdict,
    name: &str,
    dims: &[usize],
    function: impl Fn(&Tensor) -> Result<Tensor>,
) {
    let found = verdict(&random(dims, 1), function);
    assert_eq!(found, expected, "{name}");
}

#[test]
fn layers() {
    let b = builder();
    let linear = candle_nn::linear(4, 3, b.pp("linear")).unwrap();
    expect_verdict(Right, "Linear", &[2, 4], |x| linear.forward(x));
    let conv = candle_nn::conv1d(2, 3, 3, Default::default(), b.pp("conv1d")).unwrap();
    expect_verdict(Right, "Conv1d", &[1, 2, 6], |x| conv.forward(x));
    let conv = candle_nn::conv2d(2, 3, 3, Default::default(), b.pp("conv2d")).unwrap();
    expect_verdict(Right, "Conv2d", &[1, 2, 5, 5], |x| conv.forward(x));
    let conv = candle_nn::conv_transpose1d(2, 3, 3, Default::default(), b.pp("t1")).unwrap();
    expect_verdict(Refused, "ConvTranspose1d", &[1, 2, 6], |x| conv.forward(x));
    let conv = candle_nn::conv_transpose2d(2, 3, 3, Default::default(), b.pp("t2")).unwrap();
    expect_verdict(Right, "ConvTranspose2d", &[1, 2, 5, 5], |x| conv.forward(x));
    let prelu = candle_nn::prelu(None, b.pp("prelu")).unwrap();
    expect_verdict(Right, "PReLU", &[2, 4], |x| prelu.forward(x));
    let rows = Tensor::new(&[1u32, 0, 1], &Device::Cpu).unwrap();
    expect_verdict(Right, "Embedding", &[3, 4], |table| {
        candle_nn::Embedding::new(table.clone(), 4).forward(&rows)
    });
    let dropout = candle_nn::Dropout::new(0.0);
    expect_verdict(Right, "Dropout", &[2, 4], |x| dropout.forward_t(x, true));
}

#[test]
fn norms() {
    let b = builder();
    // The fused kernels do not support f64.
    let narrow = VarBuilder::from_varmap(&VarMap::new(), DType::F32, &Device::Cpu);
    let x = Var::from_tensor(&random(&[2, 4], 1).to_dtype(DType::F32).unwrap()).unwrap();
    let norm = candle_nn::layer_norm(4, 1e-5, narrow.pp("ln")).unwrap();
    assert!(!norm.forward(&x).unwrap().track_op(), "LayerNorm");
    let norm = candle_nn::rms_norm(4, 1e-5, narrow.pp("rms")).unwrap();
    assert!(!norm.forward(&x).unwrap().track_op(), "RmsNorm");
    let norm = candle_nn::layer_norm_no_bias(4, 1e-5, b.pp("nb")).unwrap();
    expect_verdict(Right, "LayerNorm without bias", &[2, 4], |x| norm.forward(x));
    let norm = candle_nn::rms_norm(4, 1e-5, b.pp("rms")).unwrap();
    expect_verdict(Right, "RmsNorm::forward_diff", &[2, 4], |x| norm.forward_diff(x));
    let norm = candle_nn::group_norm(2, 4, 1e-5, b.pp("group")).unwrap();
    expect_verdict(Right, "GroupNorm", &[2, 4, 3], |x| norm.forward(x));
    let norm = candle_nn::batch_norm(4, 1e-5, b.pp("batch")).unwrap();
    expect_verdict(Right, "BatchNorm in training", &[3, 4], |x| {
        norm.forward_t(x, true)
    });
    expect_verdict(Right, "BatchNorm in evaluation", &[3, 4], |x| {
        norm.forward_t(x, false)
    });
}

#[test]
fn activations_and_softmax() {
    for activation in [
        Activation::Gelu,
        Activation::NewGelu,
        Activation::GeluPytorchTanh,
        Activation::Relu,
        Activation::Relu2,
        Activation::Relu6,
        Activation::Silu,
        Activation::Sigmoid,
        Activation::Swiglu,
        Activation::Swish,
        Activation::Mish,
        Activation::HardSigmoid,
        Activation::HardSwish,
        Activation::Elu(1.0),
        Activation::LeakyRelu(0.1),
    ] {
        expect_verdict(Right, &format!("{activation:?}"), &[2, 4], |x| {
            activation.forward(x)
        });
    }
    expect_verdict(Right, "softmax", &[2, 4], |x| ops::softmax(x, 1));
    expect_verdict(Right, "log_softmax", &[2, 4], |x| ops::log_softmax(x, 1));
    expect_verdict(Lost, "softmax_last_dim", &[2, 4], ops::softmax_last_dim);
    expect_verdict(Right, "tanh", &[2, 4], Tensor::tanh);
    // At zero, candle's rectifier has the slope one; torch's has zero.
    let zero = Var::new(0f64, &Device::Cpu).unwrap();
    let slope = zero.relu().unwrap().backward().unwrap();
    assert_eq!(slope.get(&zero).unwrap().to_scalar::<f64>().unwrap(), 1.0);
}

#[test]
fn pools_and_samples() {
    expect_verdict(Right, "avg_pool2d", &[1, 1, 4, 4], |x| x.avg_pool2d(2));
    expect_verdict(Refused, "avg_pool2d with a stride", &[1, 1, 5, 5], |x| {
        x.avg_pool2d_with_stride(3, 1)
    });
    expect_verdict(Wrong, "max_pool2d", &[1, 1, 4, 4], |x| x.max_pool2d(2));
    expect_verdict(Refused, "max_pool2d with a stride", &[1, 1, 5, 5], |x| {
        x.max_pool2d_with_stride(3, 1)
    });
    expect_verdict(Right, "upsample_nearest1d", &[1, 1, 4], |x| {
        x.upsample_nearest1d(8)
    });
    expect_verdict(Wrong, "upsample_nearest2d twice", &[1, 1, 2, 2], |x| {
        x.upsample_nearest2d(4, 4)? + x.upsample_nearest2d(4, 4)?
    });
    expect_verdict(Right, "upsample_nearest2d", &[1, 1, 2, 2], |x| {
        x.upsample_nearest2d(4, 4)
    });
    expect_verdict(Right, "pixel_shuffle", &[1, 4, 2, 2], |x| {
        ops::pixel_shuffle(x, 2)
    });
}

#[test]
fn indices() {
    let index = Tensor::new(&[[0u32, 2], [1, 0]], &Device::Cpu).unwrap();
    let full = Tensor::new(&[[0u32, 2, 2], [1, 0, 1]], &Device::Cpu).unwrap();
    let (source, other) = (random(&[2, 2], 3), random(&[2, 3], 4));
    expect_verdict(Right, "gather", &[2, 3], |x| x.gather(&index, 1));
    // candle gathers the gradient of the target as if it were that of the source.
    expect_verdict(Refused, "scatter_add", &[2, 3], |x| {
        x.scatter_add(&index, &source, 1)
    });
    expect_verdict(Wrong, "scatter_add to the same shape", &[2, 3], |x| {
        x.scatter_add(&full, &other, 1)
    });
    expect_verdict(Right, "scatter_add of the same shape", &[2, 3], |x| {
        other.scatter_add(&full, x, 1)
    });
    let rows = Tensor::new(&[1u32, 0], &Device::Cpu).unwrap();
    expect_verdict(Right, "index_select", &[2, 3], |x| x.index_select(&rows, 0));
    expect_verdict(Right, "index_add", &[2, 3], |x| other.index_add(&rows, x, 0));
}

#[test]
fn positions() {
    let (cos, sin) = (random(&[3, 2], 5), random(&[3, 2], 6));
    expect_verdict(Lost, "rope", &[1, 1, 3, 4], |x| rotary_emb::rope(x, &cos, &sin));
    expect_verdict(Lost, "rope_i", &[1, 1, 3, 4], |x| {
        rotary_emb::rope_i(x, &cos, &sin)
    });
    expect_verdict(Right, "rope_slow", &[1, 1, 3, 4], |x| {
        rotary_emb::rope_slow(x, &cos, &sin)
    });
    expect_verdict(Right, "rope_i_slow", &[1, 1, 3, 4], |x| {
        rotary_emb::rope_i_slow(x, &cos, &sin)
    });
}

#[test]
fn recurrent_layers() {
    let b = builder();
    let lstm = candle_nn::lstm(4, 3, Default::default(), b.pp("lstm")).unwrap();
    let (h, c) = (random(&[2, 3], 7), random(&[2, 3], 8));
    expect_verdict(Right, "LSTM", &[2, 4], |x| {
        let state = LSTMState {
            h: h.clone(),
            c: c.clone(),
        };
        Ok(lstm.step(x, &state)?.h)
    });
    let gru = candle_nn::gru(4, 3, Default::default(), b.pp("gru")).unwrap();
    expect_verdict(Right, "GRU", &[2, 4], |x| {
        Ok(gru.step(x, &GRUState { h: h.clone() })?.h)
    });
}

#[test]
fn losses() {
    let classes = Tensor::new(&[1u32, 0], &Device::Cpu).unwrap();
    let target = random(&[2, 4], 9);
    let bits = target.ge(0.0).unwrap().to_dtype(DType::F64).unwrap();
    expect_verdict(Right, "nll", &[2, 4], |x| loss::nll(x, &classes));
    expect_verdict(Right, "cross_entropy", &[2, 4], |x| {
        loss::cross_entropy(x, &classes)
    });
    expect_verdict(Right, "mse", &[2, 4], |x| loss::mse(x, &target));
    expect_verdict(Right, "bce", &[2, 4], |x| {
        loss::binary_cross_entropy_with_logit(x, &bits)
    });
    expect_verdict(Right, "huber", &[2, 4], |x| loss::huber(x, &target, 0.5));
}
