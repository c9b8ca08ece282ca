//! Reading and writing whole files.

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
use crate::stored::{with_elements, with_stored};

/// How much is gathered before it is written: enough that a system call costs nothing against it.
const GATHERED: usize = 1 << 20;

/// A tensor on its way to a file.
pub(crate) struct Piece<'a> {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    content: Content<'a>,
}

/// The elements of a tensor on its way to a file.
pub(crate) enum Content<'a> {
    Bytes(&'a [u8]),
    Tensor(Tensor),
}

impl<'a> Piece<'a> {
    pub(crate) fn new(name: String, dtype: Dtype, shape: &[usize], content: Content<'a>) -> Self {
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
            Content::Bytes(bytes) => Ok(out.write_all(bytes)),
            Content::Tensor(tensor) => {
                let written = with_stored!(tensor.dtype(), T => {
                    with_elements(tensor, |elements: &[T]| out.write_all(bytemuck::cast_slice(elements)))?
                });
                // Parameters of other types are not taken.
                Ok(written.unwrap_or(Ok(())))
            }
        }
    }
}

/// What to say of a file that is not as it should be.
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

/// Writes a new file beside the old one and puts it into its place when all of it is on the disk.
pub(crate) fn write(path: &Path, metadata: (String, String), pieces: Vec<Piece<'_>>) -> Result<()> {
    let failed = |source| OptimError::File {
        action: "write",
        path: path.into(),
        source,
    };
    let new = Replacement::beside(path).map_err(failed)?;
    let mut out = BufWriter::with_capacity(GATHERED, new.file());
    write_to(&mut out, metadata, pieces)?.map_err(failed)?;
    out.flush().map_err(failed)?;
    drop(out);
    new.replace(path).map_err(failed)?;
    Ok(())
}

/// What a file would hold.
pub(crate) fn to_bytes(metadata: (String, String), pieces: Vec<Piece<'_>>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // A vector takes everything.
    write_to(&mut bytes, metadata, pieces)?.map_err(telegrad_rpc::Error::other)?;
    Ok(bytes)
}

fn write_to(
    out: &mut impl Write,
    metadata: (String, String),
    mut pieces: Vec<Piece<'_>>,
) -> Result<io::Result<()>> {
    // Wide elements first, so that all are aligned.
    pieces.sort_by(|a, b| b.dtype.cmp(&a.dtype).then_with(|| a.name.cmp(&b.name)));
    let header = header(metadata, &pieces).map_err(telegrad_rpc::Error::other)?;
    let length = (header.len() as u64).to_le_bytes();
    if let Err(error) = out.write_all(&length).and_then(|()| out.write_all(&header)) {
        return Ok(Err(error));
    }
    for piece in &pieces {
        if let Err(error) = piece.write(out)? {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

fn header(metadata: (String, String), pieces: &[Piece<'_>]) -> Result<Vec<u8>, safetensors::SafeTensorError> {
    let mut offset = 0;
    let mut infos = Vec::new();
    for piece in pieces {
        let end = offset + piece.size();
        let info = TensorInfo {
            dtype: piece.dtype,
            shape: piece.shape.clone(),
            data_offsets: (offset, end),
        };
        infos.push((piece.name.clone(), info));
        offset = end;
    }
    let metadata = Metadata::new(Some(HashMap::from([metadata])), infos)?;
    let mut header = serde_json::to_vec(&metadata)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(header)
}
