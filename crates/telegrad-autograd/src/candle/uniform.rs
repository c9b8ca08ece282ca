//! Gradients that are the same everywhere, as those of a sum are: one element, shown many times.
//!
//! Only the element travels. It is written out where an operation needs it, because candle's own way to do that looks
//! every element up.

use candle_core::{DType, Device, Result, Tensor};

/// The element, if the tensor shows one element more than once and nothing else.
pub(super) fn element(tensor: &Tensor) -> Option<Tensor> {
    let mut dims = tensor.dims().iter().zip(tensor.stride());
    let is_uniform = tensor.elem_count() > 1 && dims.all(|(&len, &stride)| len == 1 || stride == 0);
    if !is_uniform {
        return None;
    }
    // One element of it first: what has many would be copied to get another shape.
    let first = (0..tensor.rank()).try_fold(tensor.clone(), |rest, dim| rest.narrow(dim, 0, 1));
    first.and_then(|one| one.reshape(())).ok()
}

/// The tensor in row-major order.
pub(super) fn written_out(tensor: &Tensor) -> Result<Tensor> {
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
    fn one_element_shown_many_times_is_found() {
        let cpu = &Device::Cpu;
        let one = Tensor::new(1.5f32, cpu).unwrap();
        for shape in [vec![3], vec![2, 3], vec![1, 4, 1], vec![1, 2]] {
            let shown = one.broadcast_as(shape.clone()).unwrap();
            let found = element(&shown).unwrap();
            assert_eq!(found.rank(), 0, "{shape:?}");
            assert_eq!(found.to_scalar::<f32>().unwrap(), 1.5);
            let written = written_out(&shown).unwrap();
            assert!(written.is_contiguous() && written.dims() == shape);
            assert_eq!(
                written.sum_all().unwrap().to_scalar::<f32>().unwrap(),
                1.5 * written.elem_count() as f32
            );
        }
    }

    #[test]
    fn what_shows_more_than_one_element_is_left_alone() {
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
            let written = written_out(tensor).unwrap();
            assert!(written.is_contiguous());
            assert_eq!(written.to_string(), tensor.to_string());
        }
    }
}
