use candle_core::{DType, Device, Tensor};
use telegrad_nn::{NnError, cross_entropy, log_softmax, mse, nll};

use crate::gradient::{check, near, random};

fn targets(values: &[u32]) -> Tensor {
    Tensor::new(values, &Device::Cpu).unwrap()
}

#[test]
fn cross_entropy_matches_a_manual_calculation() {
    // Probabilities 1/4 and 3/4, then 1/2 and 1/2: minus the mean of ln(3/4) and ln(1/2).
    let logits = Tensor::new(&[[0f32, 3f32.ln()], [5.0, 5.0]], &Device::Cpu).unwrap();
    let loss = cross_entropy(&logits, &targets(&[1, 0])).unwrap();
    assert_eq!(loss.rank(), 0);
    near(&loss, &[-(0.75f64.ln() + 0.5f64.ln()) / 2.0], 1e-6);
    let signed = targets(&[1, 0]).to_dtype(DType::I64).unwrap();
    near(
        &cross_entropy(&logits, &signed).unwrap(),
        &[-(0.75f64.ln() + 0.5f64.ln()) / 2.0],
        1e-6,
    );
}

#[test]
fn cross_entropy_is_nll_after_log_softmax() {
    let (logits, targets) = (random(&[5, 4], 1), targets(&[0, 3, 2, 2, 1]));
    let steps = nll(&log_softmax(&logits, 1).unwrap(), &targets).unwrap();
    near(
        &cross_entropy(&logits, &targets).unwrap(),
        &[steps.to_scalar().unwrap()],
        1e-12,
    );
}

#[test]
fn large_logits_do_not_overflow() {
    let logits = Tensor::new(&[[1000f32, -1000.0]], &Device::Cpu).unwrap();
    near(&cross_entropy(&logits, &targets(&[0])).unwrap(), &[0.0], 0.0);
    near(&cross_entropy(&logits, &targets(&[1])).unwrap(), &[2000.0], 0.0);
}

#[test]
fn mse_matches_a_manual_calculation() {
    let a = Tensor::new(&[1f32, 2.0, 3.0, 4.0], &Device::Cpu).unwrap();
    let b = Tensor::new(&[1f32, 0.0, 6.0, 4.0], &Device::Cpu).unwrap();
    near(&mse(&a, &b).unwrap(), &[13.0 / 4.0], 1e-6);
}

#[test]
fn gradients_match_finite_differences() {
    let (scores, targets) = (random(&[5, 4], 1), targets(&[0, 3, 2, 2, 1]));
    check(std::slice::from_ref(&scores), |x| cross_entropy(&x[0], &targets));
    check(std::slice::from_ref(&scores), |x| nll(&x[0], &targets));
    check(&[scores, random(&[5, 4], 2)], |x| mse(&x[0], &x[1]));
}

#[test]
fn wrong_shapes_and_targets_are_errors() {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    for loss in [cross_entropy, nll] {
        let error = loss(&zeros(&[3, 4]), &targets(&[0, 1, 4])).unwrap_err();
        assert!(
            matches!(
                error.nn(),
                Some(NnError::Index {
                    index: 4,
                    position: 2,
                    limit: 4,
                    ..
                })
            ),
            "{error}"
        );
        for (scores, count) in [(&[3, 4][..], 2), (&[4], 1), (&[0, 4], 0), (&[3, 4, 2], 3)] {
            let error = loss(&zeros(scores), &targets(&vec![0; count])).unwrap_err();
            assert!(matches!(error.nn(), Some(NnError::Input { .. })), "{error}");
        }
        let floats = zeros(&[3]);
        assert!(matches!(
            loss(&zeros(&[3, 4]), &floats).err().unwrap().nn(),
            Some(NnError::Input { .. })
        ));
    }
    assert!(mse(&zeros(&[2, 3]), &zeros(&[3, 2])).is_err());
    assert!(mse(&zeros(&[0]), &zeros(&[0])).is_err());
    assert!(mse(&zeros(&[1]), &Tensor::zeros(1, DType::F64, &Device::Cpu).unwrap()).is_err());
}
