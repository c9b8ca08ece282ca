//! Optimisers in files.
//!
//! A file is in the safetensors format. Slots are tensors named `state.<group>.<parameter>.<slot>`, values
//! of parameters `param.<group>.<parameter>`. Everything else is JSON in the metadata: [`Header`].

use std::path::Path;

use candle_core::{DType, Tensor, Var};
use safetensors::{Dtype, SafeTensors};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use telegrad_autograd::Param;
use telegrad_rpc::Result;

use crate::element::sealed::Kept;
use crate::stored::{Stored, with_stored};
use crate::{Algorithm, OptimError, Optimizer, State};

pub(crate) mod file;

use file::{Content, Piece, damaged};

/// Of the files that this crate writes. A later number is for files that it cannot read.
pub(crate) const VERSION: u64 = 1;

/// Where the metadata has the header.
const KEY: &str = "telegrad-optim";

/// What a file says about the optimiser.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u64,
    algorithm: String,
    /// Whether the values of the parameters are in the file.
    values: bool,
    groups: Vec<GroupHeader>,
}

#[derive(Serialize, Deserialize)]
struct GroupHeader {
    options: serde_json::Value,
    params: Vec<ParamHeader>,
}

#[derive(Serialize, Deserialize)]
struct ParamHeader {
    /// For people: parameters are told apart by their order.
    name: String,
    dtype: String,
    shape: Vec<usize>,
    /// How many steps it has had; 0 if there is no state.
    step: u64,
}

/// What is read before it is known that the rest can be.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

impl<A: Algorithm> Optimizer<A> {
    /// Writes options, step counts and slots to a file, which holds either all of it or what it held
    /// before.
    ///
    /// # Errors
    /// [`OptimError::File`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_as(path.as_ref(), false)
    }

    /// As [`save`](Self::save), with the values of the parameters.
    ///
    /// # Errors
    /// As `save`, and when candle cannot read a value.
    pub fn save_with_params(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_as(path.as_ref(), true)
    }

    /// Takes options, step counts and slots from a file, and goes on as the optimiser that was saved
    /// would have. Parameters are those of the same place in the same group.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or is of another algorithm or of other parameters. The
    /// optimiser is then as before.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.load_as(path.as_ref(), false)
    }

    /// As [`load`](Self::load), with the values of the parameters.
    ///
    /// # Errors
    /// As `load`, and [`OptimError::NoValues`] when the file was saved without them.
    pub fn load_with_params(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.load_as(path.as_ref(), true)
    }

    fn save_as(&self, path: &Path, values: bool) -> Result<()> {
        let (header, pieces) = self.pieces(values)?;
        file::write(path, (KEY.into(), header), pieces)
    }

    /// What [`save`](Self::save) or [`save_with_params`](Self::save_with_params) would write.
    pub(crate) fn to_bytes(&self, values: bool) -> Result<Vec<u8>> {
        let (header, pieces) = self.pieces(values)?;
        file::to_bytes((KEY.into(), header), pieces)
    }

    /// The header, and the tensors.
    fn pieces(&self, values: bool) -> Result<(String, Vec<Piece<'_>>)> {
        let mut pieces = Vec::new();
        let mut groups = Vec::new();
        for (number, (group, states)) in self.groups.iter().zip(&self.states).enumerate() {
            let mut params = Vec::new();
            for (index, (param, state)) in group.params.iter().zip(states).enumerate() {
                let value = param.value();
                let shape = value.dims();
                params.push(ParamHeader {
                    name: param.name().into(),
                    dtype: param.dtype().as_str().into(),
                    shape: shape.to_vec(),
                    step: state.as_ref().map_or(0, State::step),
                });
                for (slot, bytes) in state.iter().flat_map(State::bytes) {
                    let dtype = slot_dtype(param.dtype());
                    pieces.push(Piece::new(
                        slot_name(number, index, slot),
                        dtype,
                        shape,
                        Content::Bytes(bytes),
                    ));
                }
                if values {
                    let (name, dtype) = (value_name(number, index), file_dtype(param.dtype()));
                    pieces.push(Piece::new(name, dtype, shape, Content::Tensor(value.clone())));
                }
            }
            let options = serde_json::to_value(&group.options).map_err(telegrad_rpc::Error::other)?;
            groups.push(GroupHeader { options, params });
        }
        let header = Header {
            version: VERSION,
            algorithm: A::NAME.into(),
            values,
            groups,
        };
        let header = serde_json::to_string(&header).map_err(telegrad_rpc::Error::other)?;
        Ok((header, pieces))
    }

    fn load_as(&mut self, path: &Path, values: bool) -> Result<()> {
        let bytes = file::read(path)?;
        let loaded = self.read_bytes(path, &bytes, values)?;
        self.take(loaded)
    }

    /// What a file holds, if it is one of this optimiser. The path is for errors.
    pub(crate) fn read_bytes(&self, path: &Path, bytes: &[u8], values: bool) -> Result<Loaded<A>> {
        let (header, tensors) = open(path, bytes)?;
        if header.algorithm != A::NAME {
            let (expected, found) = (A::NAME, header.algorithm);
            return Err(OptimError::OtherAlgorithm {
                path: path.into(),
                expected,
                found,
            }
            .into());
        }
        same(
            path,
            "the number of groups",
            &self.groups.len(),
            &header.groups.len(),
        )?;
        if values && !header.values {
            return Err(OptimError::NoValues { path: path.into() }.into());
        }
        // All first, so that it is loaded whole or not at all.
        let mut loaded = Loaded {
            groups: Vec::new(),
            values: Vec::new(),
        };
        for (number, (group, saved)) in self.groups.iter().zip(header.groups).enumerate() {
            let what = format!("the number of parameters of group {number}");
            same(path, &what, &group.params.len(), &saved.params.len())?;
            let options: A = serde_json::from_value(saved.options).map_err(|error| damaged(path, error))?;
            options.check().map_err(|error| damaged(path, error))?;
            let mut states = Vec::new();
            for (index, (param, saved)) in group.params.iter().zip(saved.params).enumerate() {
                let label = crate::optimizer::label(param, number, index);
                same(
                    path,
                    &format!("the shape of {label}"),
                    param.shape().dims(),
                    saved.shape.as_slice(),
                )?;
                same(
                    path,
                    &format!("the element type of {label}"),
                    param.dtype().as_str(),
                    &saved.dtype,
                )?;
                let place = Place {
                    path,
                    tensors: &tensors,
                    param,
                    group: number,
                    index,
                };
                states.push(place.state(&options, saved.step)?);
                if values {
                    loaded.values.push((param.clone(), place.value()?));
                }
            }
            loaded.groups.push((options, states));
        }
        Ok(loaded)
    }

    /// Goes on from there.
    pub(crate) fn take(&mut self, loaded: Loaded<A>) -> Result<()> {
        let groups = self.groups.iter_mut().zip(&mut self.states);
        for ((group, states), (options, loaded)) in groups.zip(loaded.groups) {
            group.options = options;
            *states = loaded;
        }
        for (param, value) in loaded.values {
            param.set(&value)?;
        }
        Ok(())
    }
}

/// What a file holds, before anything has been changed.
pub(crate) struct Loaded<A> {
    groups: Vec<(A, Vec<Option<State>>)>,
    values: Vec<(Param, Tensor)>,
}

/// A parameter and where a file has what is its.
struct Place<'a> {
    path: &'a Path,
    tensors: &'a SafeTensors<'a>,
    param: &'a Param,
    group: usize,
    index: usize,
}

impl Place<'_> {
    fn state<A: Algorithm>(&self, options: &A, step: u64) -> Result<Option<State>> {
        if step == 0 {
            return Ok(None);
        }
        let names = options.slots();
        let slots = match slot_dtype(self.param.dtype()) {
            Dtype::F64 => f64::wrap(self.slots(names, Dtype::F64)?),
            _ => f32::wrap(self.slots(names, Dtype::F32)?),
        };
        Ok(Some(State::of_slots(step, names, slots)))
    }

    fn slots<T: bytemuck::Pod>(&self, names: &[&str], dtype: Dtype) -> Result<Vec<Vec<T>>> {
        let slot = |name: &&str| self.elements(&slot_name(self.group, self.index, name), dtype);
        names.iter().map(slot).collect()
    }

    /// A variable, which the parameter takes as it is.
    fn value(&self) -> Result<Tensor> {
        fn variable<T: Stored>(elements: Vec<T>, like: &Tensor) -> candle_core::Result<Tensor> {
            Ok(Var::from_vec(elements, like.shape(), like.device())?.into_inner())
        }
        let like = self.param.value();
        let (name, dtype) = (value_name(self.group, self.index), file_dtype(like.dtype()));
        let value = with_stored!(like.dtype(), T => variable::<T>(self.elements(&name, dtype)?, &like)?);
        value.ok_or_else(|| damaged(self.path, format!("`{name}` cannot be a parameter")).into())
    }

    /// A tensor of the file, which must be of the parameter's shape.
    fn elements<T: bytemuck::Pod>(&self, name: &str, dtype: Dtype) -> Result<Vec<T>> {
        let view = self
            .tensors
            .tensor(name)
            .map_err(|error| damaged(self.path, error))?;
        let shape = self.param.shape();
        if view.dtype() != dtype || view.shape() != shape.dims() {
            let (found, shape) = (view.dtype(), shape.dims());
            let why = format!(
                "`{name}` is a {found:?} of shape {:?}, not a {dtype:?} of shape {shape:?}",
                view.shape()
            );
            return Err(damaged(self.path, why).into());
        }
        Ok(bytemuck::pod_collect_to_vec(view.data()))
    }
}

/// The header and the tensors of a file.
fn open<'a>(path: &Path, bytes: &'a [u8]) -> Result<(Header, SafeTensors<'a>), OptimError> {
    open_with(path, bytes, KEY)
}

/// The tensors of a file, and the header that its metadata has under a key.
pub(crate) fn open_with<'a, H: DeserializeOwned>(
    path: &Path,
    bytes: &'a [u8],
    key: &str,
) -> Result<(H, SafeTensors<'a>), OptimError> {
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| damaged(path, error))?;
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| damaged(path, error))?;
    let header = metadata
        .metadata()
        .as_ref()
        .and_then(|metadata| metadata.get(key));
    let header = header.ok_or_else(|| damaged(path, format!("its metadata has no `{key}`")))?;
    let Versioned { version: found } = serde_json::from_str(header).map_err(|error| damaged(path, error))?;
    if found > VERSION {
        return Err(OptimError::Version {
            path: path.into(),
            found,
            known: VERSION,
        });
    }
    let header = serde_json::from_str(header).map_err(|error| damaged(path, error))?;
    Ok((header, tensors))
}

fn same<T: std::fmt::Debug + PartialEq + ?Sized>(
    path: &Path,
    what: &str,
    expected: &T,
    found: &T,
) -> Result<(), OptimError> {
    if expected == found {
        return Ok(());
    }
    Err(OptimError::OtherParameters {
        path: path.into(),
        what: what.into(),
        expected: format!("{expected:?}"),
        found: format!("{found:?}"),
    })
}

fn slot_name(group: usize, index: usize, slot: &str) -> String {
    format!("state.{group}.{index}.{slot}")
}

fn value_name(group: usize, index: usize) -> String {
    format!("param.{group}.{index}")
}

/// The element type of a parameter, in the words of the format.
fn file_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        // Parameters of other types are not taken.
        _ => Dtype::F32,
    }
}

/// That of the slots of such a parameter.
fn slot_dtype(dtype: DType) -> Dtype {
    if dtype == DType::F64 {
        Dtype::F64
    } else {
        Dtype::F32
    }
}
