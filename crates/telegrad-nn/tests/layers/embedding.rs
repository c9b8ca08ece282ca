use candle_core::{DType, Device, Tensor};
use telegrad_nn::{Embedding, Module, NnError, Rng, embedding};

use crate::gradient::{check, check_parameters, near, numbers, random};

#[test]
fn an_embedding_selects_rows() {
    let weight = Tensor::new(&[[1f32, 2.0], [3.0, 4.0], [5.0, 6.0]], &Device::Cpu).unwrap();
    let table = Embedding::from_tensors(&weight, None).unwrap();
    let ids = Tensor::new(&[[2u32, 0], [0, 1]], &Device::Cpu).unwrap();
    for dtype in [DType::U8, DType::U32, DType::I64] {
        let y = table.forward(&ids.to_dtype(dtype).unwrap()).unwrap();
        assert_eq!(y.dims(), [2, 2, 2]);
        near(&y, &[5.0, 6.0, 1.0, 2.0, 1.0, 2.0, 3.0, 4.0], 0.0);
    }
}

#[test]
fn gradients_match_finite_differences() {
    let weight = random(&[4, 3], 1);
    let ids = Tensor::new(&[[2u32, 0, 2], [2, 3, 0]], &Device::Cpu).unwrap();
    check(std::slice::from_ref(&weight), |weight| {
        embedding(&ids, &weight[0], None)
    });
    let table = Embedding::from_tensors(&weight, None).unwrap();
    check_parameters(&table, || table.forward(&ids));
}

#[test]
fn the_padding_is_zero_and_does_not_learn() {
    let table = Embedding::with_padding(4, 3, 2, &mut Rng::new(0)).unwrap();
    let ids = Tensor::new(&[2u32, 1, 2], &Device::Cpu).unwrap();
    let y = table.forward(&ids).unwrap();
    assert_eq!(numbers(&y)[..3], [0.0; 3]);
    let grads = y.sum_all().unwrap().backward().unwrap();
    let grad = numbers(grads.get(&table.weight().tensor()).unwrap());
    assert_eq!(grad, [0., 0., 0., 1., 1., 1., 0., 0., 0., 0., 0., 0.]);
}

#[test]
fn invalid_indices_are_errors() {
    let table = Embedding::new(4, 3, &mut Rng::new(0)).unwrap();
    let error = table
        .forward(&Tensor::new(&[[0u32, 1], [3, 4]], &Device::Cpu).unwrap())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Embedding: index 4 at position 3 is not below 4"
    );
    let negative = Tensor::new(&[-1i64], &Device::Cpu).unwrap();
    assert!(matches!(
        table.forward(&negative).err().unwrap().nn(),
        Some(NnError::Index { index: -1, .. })
    ));
    let floats = Tensor::new(&[1f32], &Device::Cpu).unwrap();
    assert!(matches!(
        table.forward(&floats).err().unwrap().nn(),
        Some(NnError::Input { .. })
    ));
    assert!(matches!(
        Embedding::with_padding(4, 3, 4, &mut Rng::new(0))
            .err()
            .unwrap()
            .nn(),
        Some(NnError::Options { .. })
    ));
}
