//! candle's tensors on the wire.
#![cfg(feature = "candle")]

use candle_core::{DType, Device, IndexOp, Result, Tensor, Var};
use telegrad_wire::{Buffer, Decoder, Encoder, Payload, RawTensor, TensorMeta, Wire};

fn encoded(value: &impl Wire) -> Payload {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder.finish().unwrap()
}

/// Transfers the tensors of a payload as a link does.
fn transported(payload: &Payload) -> Vec<RawTensor> {
    let transport = payload.tensors.iter().map(|tensor| {
        let (meta, mut data) = (tensor.meta(), None);
        tensor.with_bytes(&mut |bytes| data = Some(Buffer::copy_from(meta.dtype, bytes)));
        RawTensor::new(meta, data.expect("the content was lent")).unwrap()
    });
    transport.collect()
}

fn sent(tensor: &Tensor) -> Tensor {
    let payload = encoded(tensor);
    let mut decoder = Decoder::with_tensors(&payload.body, transported(&payload));
    let back = Tensor::decode(&mut decoder).unwrap();
    decoder.finish().unwrap();
    back
}

fn bytes_sent(tensor: &Tensor) -> usize {
    let mut sum = 0;
    encoded(tensor).tensors[0].with_bytes(&mut |bytes| sum += bytes.len());
    sum
}

/// Asserts equal type, shape and elements.
#[track_caller]
fn same(a: &Tensor, b: &Tensor) -> Result<()> {
    assert_eq!(a.dtype(), b.dtype());
    assert_eq!(a.dims(), b.dims());
    // Not by way of `F64`: candle 0.11 never returns from converting `F8E4M3` to it.
    let values = |t: &Tensor| t.flatten_all()?.to_dtype(DType::F32)?.to_vec1::<f32>();
    assert_eq!(values(a)?, values(b)?);
    Ok(())
}

fn numbers() -> Result<Tensor> {
    Tensor::arange(0_f32, 24.0, &Device::Cpu)?.reshape((2, 3, 4))
}

#[test]
fn every_element_type_returns() -> Result<()> {
    use DType::*;
    for dtype in [U8, U32, I16, I32, I64, BF16, F16, F32, F64, F8E4M3] {
        let tensor = Tensor::new(&[[0_f32, 1.0, 2.0], [7.0, 12.0, 96.0]], &Device::Cpu)?.to_dtype(dtype)?;
        same(&sent(&tensor), &tensor)?;
        assert_eq!(bytes_sent(&tensor), 6 * dtype.size_in_bytes());
    }
    Ok(())
}

#[test]
fn scalars_and_empty_tensors_return() -> Result<()> {
    let scalar = Tensor::new(2.5_f64, &Device::Cpu)?;
    assert_eq!(sent(&scalar).to_scalar::<f64>()?, 2.5);
    for shape in [&[0][..], &[0, 3], &[2, 0, 3]] {
        let empty = Tensor::zeros(shape, DType::F32, &Device::Cpu)?;
        same(&sent(&empty), &empty)?;
        assert_eq!(bytes_sent(&empty), 0);
    }
    Ok(())
}

#[test]
fn views_send_only_their_visible_part() -> Result<()> {
    let all = numbers()?;
    let views = [
        all.narrow(0, 1, 1)?,
        all.narrow(1, 1, 2)?,
        all.i((1, 2))?,
        all.i((.., .., 3))?,
        all.transpose(0, 2)?,
        all.i(1)?.t()?.narrow(0, 1, 2)?,
        all.i((0, 0, 0..1))?.broadcast_as((5, 1))?,
    ];
    for view in views {
        same(&sent(&view), &view)?;
        assert_eq!(bytes_sent(&view), view.elem_count() * 4, "{:?}", view.layout());
    }
    Ok(())
}

#[test]
fn contiguous_content_is_lent_from_the_tensor_itself() -> Result<()> {
    let content: Vec<f32> = vec![1.0, 2.0, 3.0, 4.0];
    let at = content.as_ptr();
    let tensor = Tensor::from_vec(content, 4, &Device::Cpu)?;
    let mut lent = None;
    encoded(&tensor).tensors[0].with_bytes(&mut |bytes| lent = Some(bytes.as_ptr()));
    assert_eq!(lent, Some(at.cast()));
    encoded(&tensor.narrow(0, 1, 2)?).tensors[0].with_bytes(&mut |bytes| lent = Some(bytes.as_ptr()));
    assert_eq!(lent, Some(at.wrapping_add(1).cast()));
    Ok(())
}

#[test]
fn a_received_tensor_keeps_the_allocation_it_was_received_into() -> Result<()> {
    let meta = TensorMeta {
        dtype: telegrad_wire::DType::F32,
        shape: vec![3],
    };
    let raw = RawTensor::new(meta, Buffer::from_vec(vec![1_f32, 2.0, 3.0])).unwrap();
    let at = raw.bytes().as_ptr();
    let body = [0xd6, 1, 0, 0, 0, 0];
    let tensor = Tensor::decode(&mut Decoder::with_tensors(&body, vec![raw])).unwrap();
    assert_eq!(tensor.to_vec1::<f32>()?, [1.0, 2.0, 3.0]);
    encoded(&tensor).tensors[0].with_bytes(&mut |bytes| assert_eq!(bytes.as_ptr(), at));
    Ok(())
}

#[test]
fn the_side_table_keeps_the_tensor_that_the_user_passed() -> Result<()> {
    // Autograd identifies the user's graph by it, also if the bytes come from a copy.
    let view = (Var::from_tensor(&numbers()?)?.as_tensor() * 2.0)?.transpose(0, 1)?;
    let payload = encoded(&view);
    let kept = payload.tensors[0]
        .as_any()
        .downcast_ref::<Tensor>()
        .expect("a candle tensor");
    assert_eq!(kept.id(), view.id());
    assert!(kept.track_op());
    Ok(())
}

#[test]
fn a_received_tensor_belongs_to_no_graph() -> Result<()> {
    let tracked = Var::from_tensor(&numbers()?)?;
    let arrived = sent(tracked.as_tensor());
    assert!(!arrived.track_op());
    assert!(!arrived.is_variable());
    Ok(())
}

#[test]
fn tensors_are_sent_inside_other_values() -> Result<()> {
    let value = (
        vec![Some(numbers()?), None],
        5_u8,
        Box::new(Tensor::new(1_u8, &Device::Cpu)?),
    );
    let payload = encoded(&value);
    assert!(payload.body.len() < 30, "tensor bytes in the body");
    let mut decoder = Decoder::with_tensors(&payload.body, transported(&payload));
    let back = <(Vec<Option<Tensor>>, u8, Box<Tensor>)>::decode(&mut decoder).unwrap();
    same(
        back.0[0].as_ref().expect("a tensor"),
        value.0[0].as_ref().expect("a tensor"),
    )?;
    assert!(back.0[1].is_none());
    assert_eq!(back.2.to_scalar::<u8>()?, 1);
    Ok(())
}

#[test]
fn an_element_type_without_a_code_is_an_error_that_names_it() -> Result<()> {
    let raw = Tensor::from_raw_buffer(&[0; 4], DType::F8E8M0, &[4], &Device::Cpu)?;
    let mut encoder = Encoder::new();
    raw.encode(&mut encoder);
    let error = encoder.finish().unwrap_err().to_string();
    assert_eq!(
        error,
        "this tensor cannot be sent: element type F8E8M0 is not supported"
    );
    Ok(())
}

#[test]
fn raw_tensors_convert_both_ways() -> Result<()> {
    let view = numbers()?.transpose(1, 2)?;
    let raw = RawTensor::try_from(&view).unwrap();
    assert_eq!(raw.meta().to_string(), "f32[2, 4, 3]");
    same(&Tensor::try_from(raw).unwrap(), &view)
}

#[test]
fn a_contiguous_tensor_on_the_cpu_is_quick_to_encode() -> Result<()> {
    let tensor = Tensor::zeros((2, 3), DType::F32, &Device::Cpu)?;
    assert!(tensor.is_quick_to_encode());
    assert!(!tensor.t()?.is_quick_to_encode());
    Ok(())
}
