//! The results of several calls.

use std::pin::Pin;
use std::task::{Context, Poll};

use telegrad_wire::Wire;

use super::RpcFuture;
use crate::error::Result;

/// The future results of several calls, in the order of the calls.
#[must_use = "dropping it cancels the calls"]
#[derive(Debug)]
pub struct JoinAll<T> {
    /// The calls without a result yet.
    futures: Vec<Option<RpcFuture<T>>>,
    values: Vec<Option<T>>,
}

/// Joins the results of several calls.
pub fn join_all<T: Wire>(futures: impl IntoIterator<Item = RpcFuture<T>>) -> JoinAll<T> {
    let futures: Vec<_> = futures.into_iter().map(Some).collect();
    let values = futures.iter().map(|_| None).collect();
    JoinAll { futures, values }
}

impl<T: Wire> JoinAll<T> {
    /// Waits for all results.
    ///
    /// # Errors
    /// The error of the first failed call, in call order. Calls still running are cancelled.
    pub fn wait(self) -> Result<Vec<T>> {
        self.each().collect()
    }

    /// Waits for all calls; returns the value or error of each.
    pub fn wait_each(self) -> Vec<Result<T>> {
        self.each().collect()
    }

    /// Returns the results in order, values taken by polling included.
    fn each(self) -> impl Iterator<Item = Result<T>> {
        let both = self.futures.into_iter().zip(self.values);
        both.filter_map(|(future, value)| value.map(Ok).or_else(|| future.map(RpcFuture::wait)))
    }
}

impl<T: Wire> Future for JoinAll<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { futures, values } = &mut *self;
        let mut waits = false;
        for (slot, value) in futures.iter_mut().zip(values.iter_mut()) {
            let Some(future) = slot else { continue };
            match Pin::new(future).poll(context) {
                Poll::Pending => waits = true,
                Poll::Ready(Ok(result)) => (*value, *slot) = (Some(result), None),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        if waits {
            Poll::Pending
        } else {
            Poll::Ready(Ok(values.drain(..).flatten().collect()))
        }
    }
}

// No field is structurally pinned.
impl<T> Unpin for JoinAll<T> {}
