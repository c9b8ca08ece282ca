//! Tensors in memory shared by workers on one host.

use telegrad::prelude::*;
use telegrad::{ElementType, RawTensor, TensorMeta, shared_tensor};
use telegrad_testkit::Cluster;

/// Keeps received tensors in lent memory.
#[global_allocator]
static ALLOC: telegrad::TensorAlloc = telegrad::TensorAlloc::new();

const ELEMENTS: usize = 300_000;

fn numbers(first: f32) -> RawTensor {
    let meta = TensorMeta {
        dtype: ElementType::F32,
        shape: vec![ELEMENTS],
    };
    let fill = |bytes: &mut [u8]| {
        for (i, number) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *number = (first + i as f32).to_le_bytes();
        }
    };
    shared_tensor(meta, fill).unwrap()
}

fn sum(first: f32) -> f64 {
    (0..ELEMENTS).map(|i| f64::from(first + i as f32)).sum()
}

/// Sums the elements.
#[remote]
fn add_up(shown: RawTensor) -> f64 {
    let numbers = shown.bytes().as_chunks::<4>().0.iter();
    numbers.map(|number| f64::from(f32::from_le_bytes(*number))).sum()
}

/// Creates a tensor in shared memory.
#[remote]
fn count_from(first: f32) -> RawTensor {
    numbers(first)
}

#[test]
fn a_shared_tensor_as_argument_and_result() {
    Cluster::processes(2).run(|world| {
        if world.rank() == 0 {
            let shown = numbers(1.0);
            for _ in 0..20 {
                assert_eq!(world.rpc_sync("w1", add_up, (shown.clone(),)).unwrap(), sum(1.0));
            }
            let kept: Vec<_> = (0..20)
                .map(|i| world.rpc_sync("w1", count_from, (i as f32,)).unwrap())
                .collect();
            for (i, kept) in kept.into_iter().enumerate() {
                let tensor = Tensor::try_from(kept).unwrap();
                let total = tensor.to_dtype(DType::F64).unwrap().sum_all().unwrap();
                assert_eq!(total.to_scalar::<f64>().unwrap(), sum(i as f32));
            }
        }
    });
}
