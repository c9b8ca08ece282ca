//! Files in the safetensors format.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use candle_core::Tensor;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use telegrad_autograd::Replacement;
use telegrad_rpc::Result;

use crate::OptimError;
use crate::param_element::{with_elements, with_param_element};

/// The size of the write buffer: large enough to make the cost of system calls negligible.
const BUFFER: usize = 1 << 20;

/// A tensor to write.
pub(crate) struct FileTensor<'a> {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    content: TensorData<'a>,
}

/// The elements of a tensor to write.
pub(crate) enum TensorData<'a> {
    Bytes(&'a [u8]),
    Tensor(Tensor),
}

impl<'a> FileTensor<'a> {
    pub(crate) fn new(name: String, dtype: Dtype, shape: &[usize], content: TensorData<'a>) -> Self {
        let shape = shape.to_vec();
        Self {
            name,
            dtype,
            shape,
            content,
        }
    }

    fn size(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }

    fn write(&self, out: &mut impl Write) -> Result<io::Result<()>> {
        match &self.content {
            TensorData::Bytes(bytes) => Ok(out.write_all(bytes)),
            TensorData::Tensor(tensor) => {
                let written = with_param_element!(tensor.dtype(), T => {
                    with_elements(tensor, |elements: &[T]| out.write_all(bytemuck::cast_slice(elements)))?
                });
                // Optimisers refuse parameters of other types.
                Ok(written.unwrap_or(Ok(())))
            }
        }
    }
}

/// The error that a file is not a valid saved optimiser.
pub(crate) fn damaged(path: &Path, why: impl Display) -> OptimError {
    OptimError::Damaged {
        path: path.into(),
        why: why.to_string(),
    }
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, OptimError> {
    fs::read(path).map_err(|source| OptimError::File {
        action: "read",
        path: path.into(),
        source,
    })
}

/// Writes a file, and replaces an existing one atomically.
pub(crate) fn write(path: &Path, metadata: (String, String), tensors: Vec<FileTensor<'_>>) -> Result<()> {
    let failed = |source| OptimError::File {
        action: "write",
        path: path.into(),
        source,
    };
    let new = Replacement::beside(path).map_err(failed)?;
    let mut out = BufWriter::with_capacity(BUFFER, new.file());
    write_to(&mut out, metadata, tensors)?.map_err(failed)?;
    out.flush().map_err(failed)?;
    drop(out);
    new.replace(path).map_err(failed)?;
    Ok(())
}

/// Returns the bytes of a file.
pub(crate) fn to_bytes(metadata: (String, String), tensors: Vec<FileTensor<'_>>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Writing to a vector cannot fail.
    write_to(&mut bytes, metadata, tensors)?.map_err(telegrad_rpc::Error::other)?;
    Ok(bytes)
}

fn write_to(
    out: &mut impl Write,
    metadata: (String, String),
    mut tensors: Vec<FileTensor<'_>>,
) -> Result<io::Result<()>> {
    // Wide elements first, for alignment.
    tensors.sort_by(|a, b| b.dtype.cmp(&a.dtype).then_with(|| a.name.cmp(&b.name)));
    let header = header(metadata, &tensors).map_err(telegrad_rpc::Error::other)?;
    let length = (header.len() as u64).to_le_bytes();
    if let Err(error) = out.write_all(&length).and_then(|()| out.write_all(&header)) {
        return Ok(Err(error));
    }
    for tensor in &tensors {
        if let Err(error) = tensor.write(out)? {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

fn header(
    metadata: (String, String),
    tensors: &[FileTensor<'_>],
) -> Result<Vec<u8>, safetensors::SafeTensorError> {
    let mut offset = 0;
    let mut infos = Vec::new();
    for tensor in tensors {
        let end = offset + tensor.size();
        let info = TensorInfo {
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            data_offsets: (offset, end),
        };
        infos.push((tensor.name.clone(), info));
        offset = end;
    }
    let metadata = Metadata::new(Some(HashMap::from([metadata])), infos)?;
    let mut header = serde_json::to_vec(&metadata)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(header)
}
