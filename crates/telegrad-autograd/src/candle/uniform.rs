//! Uniform gradients, such as that of a sum: one element broadcast to a shape.
//!
//! Only the element is sent. Operations that need row-major order materialize it here, because candle's own way looks
//! up every element.

use candle_core::{DType, Device, Result, Tensor};

/// Returns the element of a tensor that broadcasts a single one.
pub(super) fn element(tensor: &Tensor) -> Option<Tensor> {
    let mut dims = tensor.dims().iter().zip(tensor.stride());
    let is_uniform = tensor.elem_count() > 1 && dims.all(|(&len, &stride)| len == 1 || stride == 0);
    if !is_uniform {
        return None;
    }
    // Narrow first: reshaping the whole would copy it.
    let first = (0..tensor.rank()).try_fold(tensor.clone(), |rest, dim| rest.narrow(dim, 0, 1));
    first.and_then(|one| one.reshape(())).ok()
}

/// Returns the tensor in row-major order.
pub(super) fn materialized(tensor: &Tensor) -> Result<Tensor> {
    let Some(element) = element(tensor).filter(|_| tensor.device().is_cpu()) else {
        return tensor.contiguous();
    };
    match tensor.dtype() {
        DType::F32 => Tensor::full(element.to_scalar::<f32>()?, tensor.shape(), &Device::Cpu),
        DType::F64 => Tensor::full(element.to_scalar::<f64>()?, tensor.shape(), &Device::Cpu),
        _ => tensor.contiguous(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broadcast_element_is_found() {
        let cpu = &Device::Cpu;
        let one = Tensor::new(1.5f32, cpu).unwrap();
        for shape in [vec![3], vec![2, 3], vec![1, 4, 1], vec![1, 2]] {
            let broadcast = one.broadcast_as(shape.clone()).unwrap();
            let found = element(&broadcast).unwrap();
            assert_eq!(found.rank(), 0, "{shape:?}");
            assert_eq!(found.to_scalar::<f32>().unwrap(), 1.5);
            let written = materialized(&broadcast).unwrap();
            assert!(written.is_contiguous() && written.dims() == shape);
            assert_eq!(
                written.sum_all().unwrap().to_scalar::<f32>().unwrap(),
                1.5 * written.elem_count() as f32
            );
        }
    }

    #[test]
    fn a_tensor_with_several_or_single_elements_is_not_uniform() {
        let cpu = &Device::Cpu;
        let row = Tensor::new(&[1f32, 2.0], cpu).unwrap();
        let rows = row.broadcast_as((3, 2)).unwrap();
        for tensor in [
            &row,
            &rows,
            &rows.t().unwrap(),
            &Tensor::new(1f32, cpu).unwrap(),
            &Tensor::new(&[1f32], cpu).unwrap(),
            &Tensor::zeros((0, 2), DType::F32, cpu).unwrap(),
        ] {
            assert!(element(tensor).is_none(), "{:?}", tensor.shape());
            let written = materialized(tensor).unwrap();
            assert!(written.is_contiguous());
            assert_eq!(written.to_string(), tensor.to_string());
        }
    }
}
