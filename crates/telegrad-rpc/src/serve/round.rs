//! Rounds: one result for several callers (S50).

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::context::caller;
use crate::error::{Error, Result};
use crate::exec::panic_text;

/// Collects a `T` from each caller of a round, and answers all of them with one `R`.
///
/// The last caller completes a round, and the next round begins. In a parameter server, for example, each trainer
/// contributes a gradient, one function makes a step with all of them, and every trainer receives the new parameters.
/// Callers wait in async functions, so they occupy no thread.
///
/// ```
/// use telegrad_rpc::{Options, RRef, Result, Round, World, init_with, join_all, remote};
///
/// struct Server {
///     sum: u64,
///     round: Round<u64>,
/// }
///
/// #[remote]
/// async fn add(server: RRef<Server>, name: String, number: u64) -> Result<u64> {
///     // A separate statement, so that the server is not locked during the await.
///     let added = server.local_value()?.round.join_as(&name, number, {
///         let server = server.clone();
///         move |numbers| {
///             let mut server = server.local_value_mut()?;
///             server.sum += numbers.iter().sum::<u64>();
///             Ok(server.sum)
///         }
///     });
///     added.await
/// }
///
/// let options = Options::default().init_method("mem://round?rank=0&world_size=1");
/// let world = init_with("alone", options)?;
/// let server = RRef::hold(&world, Server { sum: 0, round: Round::new(3) })?;
/// let calls = [("a", 1), ("b", 2), ("c", 3)]
///     .map(|(name, number)| world.rpc_async("alone", add, (server.clone(), name.into(), number)));
/// let calls: Result<Vec<_>> = calls.into_iter().collect();
/// assert_eq!(join_all(calls?).wait()?, [6, 6, 6]);
/// # drop(server);
/// world.shutdown()?;
/// # Ok::<(), telegrad_rpc::Error>(())
/// ```
///
/// # Callers
/// - A caller's name is its worker's, unless [`join_as`](Self::join_as) gives another. A second join under the same name
///   fails ([`RoundError::Twice`]); the first value stays.
/// - A caller that is cancelled, times out or is lost while it waits withdraws its value (S16). The round then waits for
///   another caller, perhaps the same one, or for [`set_callers`](Self::set_callers) with a lower number.
/// - An error or panic of the combining function fails all callers of the round. The next round begins.
/// - Dropping the `Round` fails its waiting callers ([`RoundError::Dropped`]).
pub struct Round<T, R = T> {
    shared: Arc<Mutex<State<T, R>>>,
}

struct State<T, R> {
    /// Number of values that complete a round.
    callers: usize,
    /// The callers that wait in the current round.
    participants: Vec<Participant<T, R>>,
    is_dropped: bool,
}

/// A waiting caller and its value.
struct Participant<T, R> {
    name: String,
    value: T,
    answer: Arc<Answer<R>>,
}

/// The answer that a caller waits for.
struct Answer<R>(Mutex<AnswerState<R>>);

enum AnswerState<R> {
    Waiting(Waker),
    Answered(Result<R>),
}

impl<T: Send + 'static, R: Clone + Send + 'static> Round<T, R> {
    /// Makes rounds of this many callers, at least one.
    pub fn new(callers: usize) -> Self {
        let state = State {
            callers: callers.max(1),
            participants: Vec::new(),
            is_dropped: false,
        };
        Self {
            shared: Arc::new(Mutex::new(state)),
        }
    }

    /// Contributes a value for the worker that made the current call; returns the round's result.
    ///
    /// Outside of calls, the caller is named "this process".
    ///
    /// Each caller passes a `combine`. The last caller's runs, once per round, as part of its call. It receives the values
    /// of all callers in the order of their names, so that sums of floats are reproducible.
    ///
    /// The future does not borrow the round. Create it in one statement and await it in the next. In
    /// `server.local_value()?.round.join(…).await`, the server stays locked during the await, and a `combine` that locks it
    /// exclusively deadlocks.
    ///
    /// # Errors
    /// See [`RoundError`], and the errors of `combine`.
    pub fn join<F>(&self, value: T, combine: F) -> impl Future<Output = Result<R>> + Send + use<T, R, F>
    where
        F: FnOnce(Vec<T>) -> Result<R> + Send,
    {
        let shared = self.shared.clone();
        async move {
            // Read during the first poll, which happens inside the awaiting call.
            let name = caller().map_or_else(|| "this process".to_owned(), |worker| worker.name);
            participate(shared, name, value, combine).await
        }
    }

    /// Like [`join`](Self::join), under the given name. For several callers on one worker.
    pub fn join_as<F>(
        &self,
        name: &str,
        value: T,
        combine: F,
    ) -> impl Future<Output = Result<R>> + Send + use<T, R, F>
    where
        F: FnOnce(Vec<T>) -> Result<R> + Send,
    {
        participate(self.shared.clone(), name.to_owned(), value, combine)
    }

    /// Changes the number of callers in a round, at least one. Takes effect in the current round, and may complete it.
    pub fn set_callers(&self, callers: usize) {
        let mut state = self.shared.lock();
        state.callers = callers.max(1);
        let waker = state.completing_waker();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Returns the number of callers in a round.
    pub fn callers(&self) -> usize {
        self.shared.lock().callers
    }

    /// Returns the names of the callers that wait in the current round, in order of arrival.
    pub fn waiting(&self) -> Vec<String> {
        self.shared.lock().names()
    }
}

impl<T, R> Drop for Round<T, R> {
    fn drop(&mut self) {
        let (participants, waiting) = {
            let mut state = self.shared.lock();
            state.is_dropped = true;
            let waiting = state.names();
            (std::mem::take(&mut state.participants), waiting)
        };
        for participant in participants {
            let waiting = waiting.clone();
            participant
                .answer
                .set(Err(RoundError::Dropped { waiting }.into()));
        }
    }
}

impl<T, R> fmt::Debug for Round<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("Round")
            .field("callers", &state.callers)
            .field("waiting", &state.names())
            .finish()
    }
}

/// The error of a caller in a round, wrapped in [`Error::Other`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoundError {
    /// The caller waits in this round already.
    #[error(
        "`{name}` is in this round already, with {} of {callers} callers: each name joins once per round; give several callers \
         on one worker different names with `join_as`",
        .waiting.len()
    )]
    Twice {
        /// The caller.
        name: String,
        /// The callers that wait in the round.
        waiting: Vec<String>,
        /// The number of callers in a round.
        callers: usize,
    },
    /// The round was dropped.
    #[error("the round was dropped while these callers waited in it: {}", .waiting.join(", "))]
    Dropped {
        /// The callers that waited in the round.
        waiting: Vec<String>,
    },
    /// The combining function panicked.
    #[error("the function that combines the values of a round panicked: {message}")]
    Panicked {
        /// The message of the panic.
        message: String,
    },
}

impl From<RoundError> for Error {
    fn from(error: RoundError) -> Self {
        Self::other(error)
    }
}

/// Joins a round and waits for its result.
async fn participate<T, R: Clone>(
    shared: Arc<Mutex<State<T, R>>>,
    name: String,
    value: T,
    combine: impl FnOnce(Vec<T>) -> Result<R>,
) -> Result<R> {
    let answer = Arc::new(Answer::new());
    shared.lock().add(Participant {
        name,
        value,
        answer: answer.clone(),
    })?;
    let _guard = ParticipantGuard {
        shared: &shared,
        answer: &answer,
    };
    let mut combine = Some(combine);
    poll_fn(|cx| {
        let polled = answer.poll(cx);
        if polled.is_ready() {
            return polled;
        }
        let Some(participants) = shared.lock().complete(&answer) else {
            return Poll::Pending;
        };
        // A caller is in one round, so it combines at most once.
        if let Some(combine) = combine.take() {
            complete(participants, combine);
        }
        answer.poll(cx)
    })
    .await
}

impl<T, R> State<T, R> {
    fn names(&self) -> Vec<String> {
        self.participants
            .iter()
            .map(|participant| participant.name.clone())
            .collect()
    }

    /// Adds a caller to the current round.
    fn add(&mut self, participant: Participant<T, R>) -> Result<(), RoundError> {
        let waiting = self.names();
        if self.is_dropped {
            return Err(RoundError::Dropped { waiting });
        }
        if waiting.contains(&participant.name) {
            return Err(RoundError::Twice {
                name: participant.name,
                waiting,
                callers: self.callers,
            });
        }
        self.participants.push(participant);
        Ok(())
    }

    /// Takes the callers of a complete round that includes this one; the next round begins.
    fn complete(&mut self, answer: &Arc<Answer<R>>) -> Option<Vec<Participant<T, R>>> {
        let is_here = self
            .participants
            .iter()
            .any(|participant| Arc::ptr_eq(&participant.answer, answer));
        (is_here && self.participants.len() >= self.callers).then(|| std::mem::take(&mut self.participants))
    }

    /// Returns the waker of a caller that can complete the round, if enough have joined.
    fn completing_waker(&self) -> Option<Waker> {
        let last = self
            .participants
            .last()
            .filter(|_| self.participants.len() >= self.callers)?;
        last.answer.waker()
    }
}

/// Combines the values of a round and answers all of its callers.
fn complete<T, R: Clone>(
    mut participants: Vec<Participant<T, R>>,
    combine: impl FnOnce(Vec<T>) -> Result<R>,
) {
    participants.sort_by(|a, b| a.name.cmp(&b.name));
    let (answers, values): (Vec<_>, Vec<T>) = participants
        .into_iter()
        .map(|participant| (participant.answer, participant.value))
        .unzip();
    let results = || -> Result<Vec<R>> {
        let result = combine(values)?;
        Ok(vec![result; answers.len()])
    };
    let results = catch_unwind(AssertUnwindSafe(results)).unwrap_or_else(|panic| {
        let message = panic_text(&*panic).to_owned();
        Err(RoundError::Panicked { message }.into())
    });
    match results {
        Ok(results) => {
            let answers = answers.iter().zip(results);
            answers.for_each(|(answer, result)| answer.set(Ok(result)));
        }
        Err(error) => {
            let error = Arc::new(error);
            for answer in answers {
                answer.set(Err(Error::Shared(error.clone())));
            }
        }
    }
}

impl<R> Answer<R> {
    fn new() -> Self {
        Self(Mutex::new(AnswerState::Waiting(Waker::noop().clone())))
    }

    /// Sets the answer and wakes the caller.
    fn set(&self, answer: Result<R>) {
        let before = std::mem::replace(&mut *self.0.lock(), AnswerState::Answered(answer));
        if let AnswerState::Waiting(waker) = before {
            waker.wake();
        }
    }

    /// Takes the answer, or registers the waker.
    fn poll(&self, cx: &Context<'_>) -> Poll<Result<R>> {
        let waiting = AnswerState::Waiting(cx.waker().clone());
        // The previous waker is dropped after the lock is released.
        let before = std::mem::replace(&mut *self.0.lock(), waiting);
        match before {
            AnswerState::Waiting(_) => Poll::Pending,
            AnswerState::Answered(answer) => Poll::Ready(answer),
        }
    }

    fn waker(&self) -> Option<Waker> {
        match &*self.0.lock() {
            AnswerState::Waiting(waker) => Some(waker.clone()),
            AnswerState::Answered(_) => None,
        }
    }
}

/// Withdraws a caller's value when its future is dropped early.
struct ParticipantGuard<'a, T, R> {
    shared: &'a Mutex<State<T, R>>,
    answer: &'a Arc<Answer<R>>,
}

impl<T, R> Drop for ParticipantGuard<'_, T, R> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let at = state
            .participants
            .iter()
            .position(|participant| Arc::ptr_eq(&participant.answer, self.answer));
        let participant = at.map(|at| state.participants.remove(at));
        // This caller may have been woken to complete the round: wake another.
        let waker = state.completing_waker();
        drop(state);
        drop(participant);
        waker.into_iter().for_each(Waker::wake);
    }
}
