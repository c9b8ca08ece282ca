//! `Wire` for candle's `Tensor`.

use std::any::Any;

use candle_core::{CpuStorage, Device, Storage, Tensor};

use crate::{
    Buffer, DType, Decoder, Encoder, Layouts, RawTensor, ReceivedTensor, TensorMeta, TensorSource,
    TypeNumber, Wire, WireError,
};

/// Sends the contiguous content, of a view only the visible part. Arrives on the CPU, in the allocation that received it.
impl Wire for Tensor {
    fn encode(&self, encoder: &mut Encoder) {
        match Outgoing::new(self) {
            Ok(outgoing) => encoder.tensor(outgoing),
            Err(error) => encoder.fail(error),
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        decoder.received_tensor()?.try_into()
    }

    fn layout(layouts: &mut Layouts) -> TypeNumber {
        RawTensor::layout(layouts)
    }

    fn is_quick_to_encode(&self) -> bool {
        self.is_contiguous() && self.device().is_cpu()
    }
}

/// Returns the tensor that already exists, or takes over the raw one.
impl TryFrom<ReceivedTensor> for Tensor {
    type Error = WireError;

    fn try_from(received: ReceivedTensor) -> Result<Self, WireError> {
        match received {
            ReceivedTensor::Raw(raw) => raw.try_into(),
            ReceivedTensor::Tracked(tensor) => match tensor.downcast() {
                Ok(tensor) => Ok(*tensor),
                Err(_) => Err(WireError::mismatch(
                    "a tensor of candle",
                    "one of another library",
                )),
            },
        }
    }
}

/// Takes over the allocation unless a clone of the raw tensor exists.
impl TryFrom<RawTensor> for Tensor {
    type Error = WireError;

    fn try_from(raw: RawTensor) -> Result<Self, WireError> {
        let (TensorMeta { dtype, shape }, data) = raw.into_parts();
        let cpu = &Device::Cpu;
        match dtype {
            DType::U8 => Tensor::from_vec(data.try_into_vec::<u8>()?, shape, cpu),
            DType::U32 => Tensor::from_vec(data.try_into_vec::<u32>()?, shape, cpu),
            DType::I16 => Tensor::from_vec(data.try_into_vec::<i16>()?, shape, cpu),
            DType::I32 => Tensor::from_vec(data.try_into_vec::<i32>()?, shape, cpu),
            DType::I64 => Tensor::from_vec(data.try_into_vec::<i64>()?, shape, cpu),
            DType::BF16 => Tensor::from_vec(data.try_into_vec::<half::bf16>()?, shape, cpu),
            DType::F16 => Tensor::from_vec(data.try_into_vec::<half::f16>()?, shape, cpu),
            DType::F32 => Tensor::from_vec(data.try_into_vec::<f32>()?, shape, cpu),
            DType::F64 => Tensor::from_vec(data.try_into_vec::<f64>()?, shape, cpu),
            // candle does not re-export this element type, so its vector cannot be handed over.
            DType::F8E4M3 => {
                Tensor::from_raw_buffer(data.as_bytes(), candle_core::DType::F8E4M3, &shape, cpu)
            }
        }
        .map_err(|error| WireError::mismatch("a tensor that candle accepts", error.to_string()))
    }
}

/// Copies the content.
impl TryFrom<&Tensor> for RawTensor {
    type Error = WireError;

    fn try_from(tensor: &Tensor) -> Result<Self, WireError> {
        let outgoing = Outgoing::new(tensor)?;
        let mut data = None;
        outgoing.with_bytes(&mut |bytes| data = Some(Buffer::copy_from(outgoing.dtype, bytes)));
        let data = data.ok_or_else(|| unsendable("candle cannot read its content"))?;
        RawTensor::new(outgoing.meta(), data)
    }
}

/// A tensor to be sent.
struct Outgoing {
    /// The tensor that the user passed, a node of the user's graph, by which autograd identifies it.
    tensor: Tensor,
    /// A contiguous copy in main memory, if the tensor itself is not.
    copy: Option<Tensor>,
    dtype: DType,
}

impl Outgoing {
    fn new(tensor: &Tensor) -> Result<Self, WireError> {
        let dtype = dtype_of(tensor)?;
        let copy = if tensor.device().is_cpu() && tensor.is_contiguous() {
            None
        } else {
            // Detached, so that the copy is no operation in the user's graph. Contiguous first, so that only the visible
            // part of a view leaves its device.
            let copy = tensor
                .detach()
                .contiguous()
                .and_then(|tensor| tensor.to_device(&Device::Cpu));
            Some(copy.map_err(|error| unsendable(error.to_string()))?)
        };
        Ok(Self {
            tensor: tensor.clone(),
            copy,
            dtype,
        })
    }
}

impl TensorSource for Outgoing {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        self.tensor.dims()
    }

    fn with_bytes(&self, read: &mut dyn FnMut(&[u8])) {
        let (storage, layout) = self.copy.as_ref().unwrap_or(&self.tensor).storage_and_layout();
        // `new` ensures both.
        let (Storage::Cpu(storage), Some((start, end))) = (&*storage, layout.contiguous_offsets()) else {
            unreachable!("an outgoing tensor is contiguous and on the CPU");
        };
        let elements = start..end;
        match storage {
            CpuStorage::U8(v) => read(&v[elements]),
            CpuStorage::U32(v) => read(bytemuck::cast_slice(&v[elements])),
            CpuStorage::I16(v) => read(bytemuck::cast_slice(&v[elements])),
            CpuStorage::I32(v) => read(bytemuck::cast_slice(&v[elements])),
            CpuStorage::I64(v) => read(bytemuck::cast_slice(&v[elements])),
            CpuStorage::BF16(v) => read(bytemuck::cast_slice(&v[elements])),
            CpuStorage::F16(v) => read(bytemuck::cast_slice(&v[elements])),
            CpuStorage::F32(v) => read(bytemuck::cast_slice(&v[elements])),
            CpuStorage::F64(v) => read(bytemuck::cast_slice(&v[elements])),
            // This element type is not `Pod`: only its own methods give its bytes.
            CpuStorage::F8E4M3(v) => read(&v[elements].iter().map(|x| x.to_bits()).collect::<Vec<u8>>()),
            CpuStorage::F6E2M3(_) | CpuStorage::F6E3M2(_) | CpuStorage::F4(_) | CpuStorage::F8E8M0(_) => {
                unreachable!("`dtype_of` rejects this element type")
            }
        }
    }

    fn as_any(&self) -> &dyn Any {
        &self.tensor
    }
}

fn dtype_of(tensor: &Tensor) -> Result<DType, WireError> {
    Ok(match tensor.dtype() {
        candle_core::DType::U8 => DType::U8,
        candle_core::DType::U32 => DType::U32,
        candle_core::DType::I16 => DType::I16,
        candle_core::DType::I32 => DType::I32,
        candle_core::DType::I64 => DType::I64,
        candle_core::DType::BF16 => DType::BF16,
        candle_core::DType::F16 => DType::F16,
        candle_core::DType::F32 => DType::F32,
        candle_core::DType::F64 => DType::F64,
        candle_core::DType::F8E4M3 => DType::F8E4M3,
        // candle has these as raw blocks only; their elements share bytes or scales.
        other => {
            return Err(unsendable(format!("element type {other:?} is not supported")));
        }
    })
}

fn unsendable(why: impl Into<String>) -> WireError {
    WireError::Unsendable { why: why.into() }
}
