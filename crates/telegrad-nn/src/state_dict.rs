//! Parameters as a map and as a file.
//!
//! A file has the safetensors format, with one tensor for each parameter under its name and no metadata. candle's
//! `VarMap` and torch can read it, and their files can be loaded.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::{Device, Tensor, safetensors};
use telegrad_autograd::{Param, Replacement};

use crate::error::in_file;
use crate::{Error, Module, NnError, Result};

/// Copies a module's parameters by name, without gradients.
///
/// The names are those of [`Module::named_parameters`]: torch's for layers of this crate, those of the `VarMap` for a
/// [`VarMapModule`](crate::VarMapModule).
///
/// # Errors
/// When candle cannot copy one.
pub fn state_dict(module: &dyn Module) -> Result<BTreeMap<String, Tensor>> {
    values_of(&module.named_parameters())
}

/// Sets all parameters of a module or, on an error, none. Floats of another size are converted.
///
/// # Errors
/// When names are missing or unknown, or a shape differs.
pub fn load_state_dict(module: &dyn Module, state: &BTreeMap<String, Tensor>) -> Result<()> {
    set(&module.named_parameters(), state)
}

/// Saves a module's parameters to a safetensors file, which is replaced atomically.
///
/// ```
/// use telegrad_nn::{Linear, Rng, load, save};
///
/// let dir = tempfile::tempdir().unwrap();
/// let path = dir.path().join("model.safetensors");
/// let mut rng = Rng::new(0);
/// let (a, b) = (Linear::new(2, 3, &mut rng)?, Linear::new(2, 3, &mut rng)?);
/// save(&a, &path)?;
/// load(&b, &path)?;
/// assert_eq!(a.weight().value().to_vec2::<f32>()?, b.weight().value().to_vec2::<f32>()?);
/// # Ok::<(), telegrad_nn::Error>(())
/// ```
///
/// # Errors
/// When the file cannot be written.
pub fn save(module: &dyn Module, path: impl AsRef<Path>) -> Result<()> {
    write(&state_dict(module)?, path.as_ref())
}

/// Reads a module's parameters from a safetensors file, as [`load_state_dict`] does.
///
/// # Errors
/// [`NnError::File`] when the file cannot be read, [`NnError::Load`] when it does not fit the module.
pub fn load(module: &dyn Module, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    load_state_dict(module, &read(path)?).map_err(|error| in_file(error, path))
}

/// Copies the values of parameters.
pub(crate) fn values_of(params: &[(String, Param)]) -> Result<BTreeMap<String, Tensor>> {
    let values = params.iter();
    values
        .map(|(name, param)| Ok((name.clone(), param.snapshot()?)))
        .collect()
}

/// Sets all parameters or, on an error, none.
pub(crate) fn set(params: &[(String, Param)], state: &BTreeMap<String, Tensor>) -> Result<()> {
    let names = params.iter().map(|(name, _)| name);
    let missing: Vec<_> = names.filter(|name| !state.contains_key(*name)).cloned().collect();
    let known: BTreeMap<&str, &Param> = params
        .iter()
        .map(|(name, param)| (name.as_str(), param))
        .collect();
    let unknown = state.keys().filter(|name| !known.contains_key(name.as_str()));
    let unknown: Vec<_> = unknown.cloned().collect();
    if !(missing.is_empty() && unknown.is_empty()) {
        return Err(NnError::Names { missing, unknown }.into());
    }
    let mut values = Vec::with_capacity(params.len());
    for (name, param) in params {
        values.push(converted(name, param, &state[name])?);
    }
    for ((_, param), value) in params.iter().zip(&values) {
        param.set(value)?;
    }
    Ok(())
}

/// Writes values to a file, which is replaced atomically.
pub(crate) fn write(state: &BTreeMap<String, Tensor>, path: &Path) -> Result<()> {
    let new = Replacement::beside(path).map_err(|error| file(path, &error))?;
    let tensors = state.iter().map(|(name, value)| (name.as_str(), value.clone()));
    safetensors::save(&tensors.collect(), new.path()).map_err(|error| file(path, &error))?;
    new.replace(path).map_err(|error| file(path, &error))
}

/// Reads the values of a file.
pub(crate) fn read(path: &Path) -> Result<BTreeMap<String, Tensor>> {
    let tensors = safetensors::load(path, &Device::Cpu).map_err(|error| file(path, &error))?;
    Ok(tensors.into_iter().collect())
}

/// Converts a value to the element type and the device of its parameter.
fn converted(name: &str, param: &Param, value: &Tensor) -> Result<Tensor> {
    let floats = value.dtype().is_float() == param.dtype().is_float();
    if value.shape() != &param.shape() || !floats {
        return Err(NnError::Misfit {
            name: name.to_owned(),
            expected: format!("{:?} {:?}", param.dtype(), param.shape().dims()),
            found: format!("{:?} {:?}", value.dtype(), value.dims()),
        }
        .into());
    }
    let value = value.to_dtype(param.dtype())?;
    Ok(value.to_device(param.tensor().device())?)
}

fn file(path: &Path, error: &dyn std::fmt::Display) -> Error {
    NnError::File {
        path: path.display().to_string(),
        why: error.to_string(),
    }
    .into()
}
