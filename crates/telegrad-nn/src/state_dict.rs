//! Parameters as a map and as a file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use candle_core::{Device, Tensor, safetensors};
use telegrad_autograd::Param;

use crate::{Error, Module, Result};

/// The present values of a module's parameters by name, without gradients.
pub fn state_dict(module: &dyn Module) -> BTreeMap<String, Tensor> {
    let params = module.named_parameters().into_iter();
    params.map(|(name, param)| (name, param.value())).collect()
}

/// Sets a module's parameters. Either all are set or, when anything does not fit, none. Floats of
/// another size are converted.
///
/// # Errors
/// When a name is missing or unknown, or a shape differs.
pub fn load_state_dict(module: &dyn Module, state: &BTreeMap<String, Tensor>) -> Result<()> {
    let params = module.named_parameters();
    let missing = params.iter().map(|(name, _)| name);
    let missing: Vec<_> = missing
        .filter(|name| !state.contains_key(*name))
        .cloned()
        .collect();
    if !missing.is_empty() {
        return Err(Error::Missing(missing));
    }
    let known: BTreeMap<&str, &Param> = params
        .iter()
        .map(|(name, param)| (name.as_str(), param))
        .collect();
    let unknown = state.keys().filter(|name| !known.contains_key(name.as_str()));
    let unknown: Vec<_> = unknown.cloned().collect();
    if !unknown.is_empty() {
        return Err(Error::Unknown(unknown));
    }
    let mut values = Vec::with_capacity(params.len());
    for (name, param) in &params {
        values.push(fitted(name, param, &state[name])?);
    }
    for ((_, param), value) in params.iter().zip(&values) {
        param.set(value)?;
    }
    Ok(())
}

/// Writes a module's parameters to a safetensors file. A file of that name is replaced only when the
/// new one is complete.
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
    let path = path.as_ref();
    let tensors = state_dict(module).into_iter().collect();
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Beside the old one, which it replaces when all of it is on the disk.
    let unfinished = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(|error| file(path, &error))?;
    safetensors::save(&tensors, unfinished.path()).map_err(|error| file(path, &error))?;
    unfinished
        .as_file()
        .sync_all()
        .map_err(|error| file(path, &error))?;
    unfinished
        .persist(path)
        .map_err(|error| file(path, &error.error))?;
    Ok(())
}

/// Reads a module's parameters from a safetensors file, as [`load_state_dict`] does.
///
/// # Errors
/// Also when the file cannot be read.
pub fn load(module: &dyn Module, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let tensors = safetensors::load(path, &Device::Cpu).map_err(|error| file(path, &error))?;
    load_state_dict(module, &tensors.into_iter().collect())
}

/// The value in the element type and on the device of the parameter.
fn fitted(name: &str, param: &Param, value: &Tensor) -> Result<Tensor> {
    let floats = value.dtype().is_float() == param.dtype().is_float();
    if value.shape() != &param.shape() || !floats {
        return Err(Error::Misfit {
            name: name.to_owned(),
            expected: format!("{:?} {:?}", param.dtype(), param.shape().dims()),
            found: format!("{:?} {:?}", value.dtype(), value.dims()),
        });
    }
    let value = value.to_dtype(param.dtype())?;
    Ok(value.to_device(param.tensor().device())?)
}

fn file(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::File {
        path: path.display().to_string(),
        why: error.to_string(),
    }
}
