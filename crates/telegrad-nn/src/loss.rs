//! Losses, as the mean over samples or elements.

use candle_core::Tensor;
use telegrad_autograd::candle::traced;

use crate::Result;
use crate::error::{wrong_input, wrong_shape};
use crate::indices::indices;
use crate::node::{node, only_gradient};
use crate::real::{Real, read, sum_of, with_type};
use crate::softmax::max;

/// The mean negative logarithm of the probabilities that logits `[n, classes]` give to targets `[n]`.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use telegrad_nn::cross_entropy;
///
/// let logits = Tensor::new(&[[0f32, 0.0]], &Device::Cpu)?;
/// let loss = cross_entropy(&logits, &Tensor::new(&[1u32], &Device::Cpu)?)?;
/// assert!((loss.to_scalar::<f32>()? - 2f32.ln()).abs() < 1e-6);
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
///
/// # Errors
/// When the shapes do not match, or a target is not the index of a class.
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    traced("cross_entropy", &[logits], || {
        let (classes, targets) = classes("cross_entropy", logits, targets)?;
        Ok(with_type!("cross_entropy", logits, T => entropy::<T>(logits, classes, targets)?))
    })
}

/// The negative mean of the entries of `log_probs` `[n, classes]` that targets `[n]` select, usually after a
/// [`log_softmax`](crate::log_softmax()).
///
/// # Errors
/// As [`cross_entropy`].
pub fn nll(log_probs: &Tensor, targets: &Tensor) -> Result<Tensor> {
    traced("nll", &[log_probs], || {
        let (classes, targets) = classes("nll", log_probs, targets)?;
        Ok(with_type!("nll", log_probs, T => selected::<T>(log_probs, classes, targets)?))
    })
}

/// The mean squared difference of two tensors of one shape.
///
/// # Errors
/// When the shapes or the element types differ.
pub fn mse(prediction: &Tensor, target: &Tensor) -> Result<Tensor> {
    traced("mse", &[prediction, target], || {
        if prediction.dims() != target.dims() || prediction.dtype() != target.dtype() {
            let expected = format!("a target {:?} of {:?}", prediction.dims(), prediction.dtype());
            let found = format!("{:?} of {:?}", target.dims(), target.dtype());
            return Err(wrong_input("mse", expected, found));
        }
        if prediction.elem_count() == 0 {
            return Err(wrong_shape("mse", "at least one element", prediction.shape()));
        }
        Ok(with_type!("mse", prediction, T => squares::<T>(prediction, target)?))
    })
}

/// Validates scores and targets; returns the number of classes and the targets.
fn classes(layer: &'static str, scores: &Tensor, targets: &Tensor) -> Result<(usize, Vec<usize>)> {
    let [samples, classes] = *scores.dims() else {
        return Err(wrong_shape(layer, "scores [n, classes]", scores.shape()));
    };
    if targets.dims() != [samples] {
        return Err(wrong_shape(
            layer,
            format!("targets [{samples}]"),
            targets.shape(),
        ));
    }
    if samples == 0 {
        return Err(wrong_shape(layer, "at least one sample", scores.shape()));
    }
    Ok((classes, indices(layer, targets, classes)?))
}

fn entropy<T: Real>(logits: &Tensor, classes: usize, targets: Vec<usize>) -> candle_core::Result<Tensor> {
    let share = T::of(1.0 / targets.len() as f64);
    // The backward pass reuses the probabilities: the exponentials take most of the time.
    let (probs, loss) = read([logits], |[logits]: [&[T]; 1]| {
        let mut probs = Vec::with_capacity(logits.len());
        let mut loss = T::ZERO;
        for (row, &target) in logits.chunks_exact(classes).zip(&targets) {
            let (max, start) = (max(row), probs.len());
            probs.extend(row.iter().map(|&x| (x - max).exp()));
            let sum = sum_of(&probs[start..], |p| p);
            probs[start..].iter_mut().for_each(|p| *p /= sum);
            loss += sum.ln() - (row[target] - max);
        }
        (probs, loss * share)
    })?;
    node::<T>("cross_entropy", &[logits], vec![loss], (), move |pass| {
        let grad = read([&pass.grad], |[grad]: [&[T]; 1]| {
            let scale = grad[0] * share;
            let mut out: Vec<T> = probs.iter().map(|&p| scale * p).collect();
            for (row, &target) in out.chunks_exact_mut(classes).zip(&targets) {
                row[target] -= scale;
            }
            out
        })?;
        only_gradient(&pass, grad)
    })
}

fn selected<T: Real>(log_probs: &Tensor, classes: usize, targets: Vec<usize>) -> candle_core::Result<Tensor> {
    let share = T::of(1.0 / targets.len() as f64);
    let loss = read([log_probs], |[log_probs]: [&[T]; 1]| {
        let mut loss = T::ZERO;
        for (row, &target) in log_probs.chunks_exact(classes).zip(&targets) {
            loss -= row[target];
        }
        loss * share
    })?;
    node::<T>("nll", &[log_probs], vec![loss], (), move |pass| {
        let grad = read([&pass.grad], |[grad]: [&[T]; 1]| {
            let mut out = vec![T::ZERO; classes * targets.len()];
            for (row, &target) in out.chunks_exact_mut(classes).zip(&targets) {
                row[target] = -grad[0] * share;
            }
            out
        })?;
        only_gradient(&pass, grad)
    })
}

fn squares<T: Real>(prediction: &Tensor, target: &Tensor) -> candle_core::Result<Tensor> {
    let share = 1.0 / prediction.elem_count() as f64;
    let loss = read([prediction, target], |[prediction, target]: [&[T]; 2]| {
        let mut loss = T::ZERO;
        let pairs = prediction.iter().zip(target);
        pairs.for_each(|(&p, &t)| loss += (p - t) * (p - t));
        loss * T::of(share)
    })?;
    node::<T>("mse", &[prediction, target], vec![loss], (), move |pass| {
        let [prediction, target] = [&pass.args[0], &pass.args[1]];
        let gradient = |sign: f64| {
            let grad = read([prediction, target, &pass.grad], |[p, t, grad]: [&[T]; 3]| {
                let scale = grad[0] * T::of(2.0 * share * sign);
                p.iter().zip(t).map(|(&p, &t)| scale * (p - t)).collect()
            })?;
            Tensor::from_vec::<_, T>(grad, prediction.shape(), pass.grad.device())
        };
        Ok(vec![
            pass.wanted[0].then(|| gradient(1.0)).transpose()?,
            pass.wanted[1].then(|| gradient(-1.0)).transpose()?,
        ])
    })
}
