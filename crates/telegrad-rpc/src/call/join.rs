//! Several results at once.

use std::pin::Pin;
use std::task::{Context, Poll};

use telegrad_wire::Wire;

use super::RpcFuture;
use crate::error::Result;

/// The results of several calls, in the order of the calls.
#[must_use = "dropping it cancels the calls"]
#[derive(Debug)]
pub struct JoinAll<T> {
    /// Those without a result yet.
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
    /// Waits for all of them.
    ///
    /// # Errors
    /// The error of the first call, in their order, that failed. The others that still run are cancelled.
    pub fn wait(self) -> Result<Vec<T>> {
        self.each().collect()
    }

    /// Waits for all of them, and keeps each one's own result.
    pub fn wait_each(self) -> Vec<Result<T>> {
        self.each().collect()
    }

    /// The results in order; those that polling has brought already are there.
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

// Nothing in it is pinned.
impl<T> Unpin for JoinAll<T> {}
