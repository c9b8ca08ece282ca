//! Optimisers in files.
//!
//! A file has the safetensors format. Slots are tensors named `state.<group>.<parameter>.<slot>`, values of parameters
//! `param.<group>.<parameter>`. The rest is JSON in the metadata: [`Header`].

use std::path::Path;

use candle_core::{DType, Tensor, Var};
use safetensors::{Dtype, SafeTensors};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use telegrad_autograd::Param;
use telegrad_rpc::Result;

use crate::element::sealed::StateElement;
use crate::param_element::{ParamElement, with_param_element};
use crate::{Algorithm, OptimError, Optimizer, State};

pub(crate) mod file;

use file::{FileTensor, TensorData, damaged};

/// The format version that this crate writes, and the latest that it reads.
pub(crate) const VERSION: u64 = 1;

/// The metadata key of the header.
const KEY: &str = "telegrad-optim";

/// The header of a file.
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
    /// For readers of the file; parameters are matched by order.
    name: String,
    dtype: String,
    shape: Vec<usize>,
    /// The number of steps; 0 if there is no state.
    step: u64,
}

/// The part of a header that is read first.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

impl<A: Algorithm> Optimizer<A> {
    /// Saves options, step counts and slots to a file, which is replaced atomically.
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

    /// Loads options, step counts and slots from a file: the optimiser continues like the saved one. Parameters are
    /// matched by group and position.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or belongs to another algorithm or other parameters. The optimiser is
    /// then unchanged.
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
        let (header, tensors) = self.tensors(values)?;
        file::write(path, (KEY.into(), header), tensors)
    }

    /// Returns the bytes that [`save`](Self::save) or [`save_with_params`](Self::save_with_params) would write.
    pub(crate) fn to_bytes(&self, values: bool) -> Result<Vec<u8>> {
        let (header, tensors) = self.tensors(values)?;
        file::to_bytes((KEY.into(), header), tensors)
    }

    /// Returns the header and the tensors of a file.
    fn tensors(&self, values: bool) -> Result<(String, Vec<FileTensor<'_>>)> {
        let mut tensors = Vec::new();
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
                    tensors.push(FileTensor::new(
                        slot_name(number, index, slot),
                        dtype,
                        shape,
                        TensorData::Bytes(bytes),
                    ));
                }
                if values {
                    let (name, dtype) = (value_name(number, index), file_dtype(param.dtype()));
                    tensors.push(FileTensor::new(
                        name,
                        dtype,
                        shape,
                        TensorData::Tensor(value.clone()),
                    ));
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
        Ok((header, tensors))
    }

    fn load_as(&mut self, path: &Path, values: bool) -> Result<()> {
        let bytes = file::read(path)?;
        let loaded = self.read_bytes(path, &bytes, values)?;
        self.take(loaded)
    }

    /// Reads a state that fits this optimiser. The path is for errors.
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
        // Validate everything first, so that the file is loaded completely or not at all.
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
                let location = ParamLocation {
                    path,
                    tensors: &tensors,
                    param,
                    group: number,
                    index,
                };
                states.push(location.state(&options, saved.step)?);
                if values {
                    loaded.values.push((param.clone(), location.value()?));
                }
            }
            loaded.groups.push((options, states));
        }
        Ok(loaded)
    }

    /// Replaces options, states and values by loaded ones.
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

/// The validated contents of a file.
pub(crate) struct Loaded<A> {
    groups: Vec<(A, Vec<Option<State>>)>,
    values: Vec<(Param, Tensor)>,
}

/// The location of a parameter's tensors in a file.
struct ParamLocation<'a> {
    path: &'a Path,
    tensors: &'a SafeTensors<'a>,
    param: &'a Param,
    group: usize,
    index: usize,
}

impl ParamLocation<'_> {
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

    /// Reads the value, as a variable.
    fn value(&self) -> Result<Tensor> {
        fn variable<T: ParamElement>(elements: Vec<T>, like: &Tensor) -> candle_core::Result<Tensor> {
            Ok(Var::from_vec(elements, like.shape(), like.device())?.into_inner())
        }
        let like = self.param.value();
        let (name, dtype) = (value_name(self.group, self.index), file_dtype(like.dtype()));
        let value =
            with_param_element!(like.dtype(), T => variable::<T>(self.elements(&name, dtype)?, &like)?);
        value.ok_or_else(|| damaged(self.path, format!("`{name}` cannot be a parameter")).into())
    }

    /// Reads a tensor that has the parameter's shape.
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

/// Reads the header and the tensors of a file.
fn open<'a>(path: &Path, bytes: &'a [u8]) -> Result<(Header, SafeTensors<'a>), OptimError> {
    open_with(path, bytes, KEY)
}

/// Reads the header under a key of the metadata, and the tensors of a file.
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

/// The element type of a parameter in the file format.
fn file_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        // Optimisers refuse parameters of other types.
        _ => Dtype::F32,
    }
}

/// The element type of a parameter's slots in the file format.
fn slot_dtype(dtype: DType) -> Dtype {
    if dtype == DType::F64 {
        Dtype::F64
    } else {
        Dtype::F32
    }
}
