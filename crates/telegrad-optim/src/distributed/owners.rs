//! Calls to all owners of parameters.

use telegrad_rpc::{Error, RRef, Result, RpcFuture};
use telegrad_wire::Wire;

use crate::OptimError;
use crate::local::LocalOptimizer;

/// The part of a distributed optimiser on each owner of parameters.
pub(super) struct Owners(pub(super) Vec<RRef<LocalOptimizer>>);

impl Owners {
    /// The names of the workers.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().map(|owner| owner.owner_name().into()).collect()
    }

    /// Calls all owners at the same time.
    ///
    /// # Errors
    /// [`OptimError::Owners`] with the error of each owner that fails.
    pub(super) fn call<T: Wire>(
        &self,
        call: impl FnMut(&RRef<LocalOptimizer>) -> Result<RpcFuture<T>>,
    ) -> Result<Vec<T>> {
        let calls = self.0.iter().map(call).map(Some).collect();
        self.wait(calls, |_| Err(Error::ShutDown))
            .map_err(|failed| OptimError::Owners(failed).into())
    }

    /// Calls the owners on other workers, and runs `here` for the one on this worker meanwhile.
    ///
    /// # Errors
    /// The error of each owner that fails.
    pub(super) fn call_or_run<T: Wire>(
        &self,
        mut there: impl FnMut(&RRef<LocalOptimizer>) -> Result<RpcFuture<T>>,
        here: impl FnMut(&RRef<LocalOptimizer>) -> Result<T>,
    ) -> Result<Vec<T>, Vec<(String, Error)>> {
        let call = |owner: &RRef<LocalOptimizer>| (!owner.is_owner()).then(|| there(owner));
        self.wait(self.0.iter().map(call).collect(), here)
    }

    /// Runs `here` for the owners without a call, then waits for the calls.
    fn wait<T: Wire>(
        &self,
        calls: Vec<Option<Result<RpcFuture<T>>>>,
        mut here: impl FnMut(&RRef<LocalOptimizer>) -> Result<T>,
    ) -> Result<Vec<T>, Vec<(String, Error)>> {
        let mut done: Vec<_> = (self.0.iter().zip(&calls))
            .map(|(owner, call)| call.is_none().then(|| here(owner)))
            .collect();
        let (mut answers, mut failed) = (Vec::with_capacity(calls.len()), Vec::new());
        for ((owner, call), done) in self.0.iter().zip(calls).zip(&mut done) {
            let answer = match call {
                Some(call) => call.and_then(RpcFuture::wait),
                None => done.take().unwrap_or(Err(Error::ShutDown)),
            };
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => failed.push((owner.owner_name().to_owned(), error)),
            }
        }
        if failed.is_empty() {
            Ok(answers)
        } else {
            Err(failed)
        }
    }
}
