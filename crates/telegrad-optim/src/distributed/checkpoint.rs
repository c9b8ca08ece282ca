//! Distributed optimisers in files.

use std::path::Path;

use candle_core::{Device, Tensor};
use safetensors::Dtype;
use serde::{Deserialize, Serialize};
use telegrad_rpc::{Error, Result};

use super::{DistributedOptimizer, Progress};
use crate::check::Check;
use crate::checkpoint::file::{self, FileTensor, TensorData, damaged};
use crate::checkpoint::{VERSION, open_with};
use crate::local::LocalOptimizer;
use crate::{OptimError, RemoteAlgorithm};

/// The metadata key of the header.
const KEY: &str = "telegrad-distributed-optim";

/// The header of a file; the states of the owners are its tensors.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u64,
    progress: Progress,
    owners: Vec<String>,
}

impl<A: RemoteAlgorithm> DistributedOptimizer<A> {
    /// Saves the optimiser, with the values of the parameters, to a file on this worker.
    ///
    /// The file is replaced atomically. It does not contain the schedule and the clipping. A concurrent step may be saved
    /// for some owners and not for others.
    ///
    /// # Errors
    /// When a call to an owner fails, or the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let states = self
            .owners
            .call(|owner| owner.rpc_async(LocalOptimizer::save, (true,)))?;
        let header = Header {
            version: VERSION,
            progress: self.progress.lock().clone(),
            owners: self.owners(),
        };
        let header = serde_json::to_string(&header).map_err(Error::other)?;
        let states = states
            .iter()
            .map(Tensor::to_vec1::<u8>)
            .collect::<candle_core::Result<Vec<_>>>()?;
        let tensors = file_tensors(&self.owners(), &states);
        file::write(path.as_ref(), (KEY.into(), header), tensors)
    }

    /// Resumes from a file, with parameters on the same workers in the same order.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or belongs to other workers, other parameters or another algorithm.
    /// When a call to an owner fails. The optimiser is then unchanged, unless an owner was lost in the last phase.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let bytes = file::read(path)?;
        let (header, tensors): (Header, _) = open_with(path, &bytes, KEY)?;
        let Header { progress, owners, .. } = header;
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        let (expected, found) = (sorted(self.owners()), sorted(owners));
        if found != expected {
            let (path, expected, found) = (path.into(), expected.join(", "), found.join(", "));
            return Err(OptimError::OtherOwners {
                path,
                expected,
                found,
            }
            .into());
        }
        for lr in &progress.lrs {
            let checked = Check(A::NAME).not_negative([("lr", *lr)]);
            checked.map_err(|error| damaged(path, error))?;
        }
        let groups = self.progress.lock().lrs.len();
        if progress.lrs.len() != groups {
            let why = format!(
                "it has the learning rates of {} groups, not {groups}",
                progress.lrs.len()
            );
            return Err(damaged(path, why).into());
        }
        let mut states = Vec::with_capacity(self.owners.0.len());
        for owner in &self.owners.0 {
            let state = tensors.tensor(owner.owner_name());
            let data = state.map_err(|error| damaged(path, error))?.data().to_vec();
            let length = data.len();
            states.push(Tensor::from_vec(data, length, &Device::Cpu)?);
        }
        let mut states = states.into_iter();
        let staged = self.owners.call(|owner| {
            let state = states.next().ok_or(Error::ShutDown)?;
            owner.rpc_async(LocalOptimizer::stage, (path.display().to_string(), state, true))
        });
        // Two phases, so that all owners load the file or none does.
        if let Err(error) = staged {
            let _ = self
                .owners
                .call(|owner| owner.rpc_async(LocalOptimizer::unstage, ()));
            return Err(error);
        }
        self.owners
            .call(|owner| owner.rpc_async(LocalOptimizer::commit, ()))?;
        *self.progress.lock() = progress;
        Ok(())
    }
}

/// Returns the owners' states as tensors of a file.
fn file_tensors<'a>(owners: &[String], states: &'a [Vec<u8>]) -> Vec<FileTensor<'a>> {
    let tensor = |(owner, state): (&String, &'a Vec<u8>)| {
        FileTensor::new(owner.clone(), Dtype::U8, &[state.len()], TensorData::Bytes(state))
    };
    owners.iter().zip(states).map(tensor).collect()
}
