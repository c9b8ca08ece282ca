//! Answering all callers of a round at once (S50).

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
/// The last caller of a round completes it, and the next one begins. A parameter server keeps a `Round`: each trainer hands in a
/// gradient, one function makes a step with all of them, and every trainer gets the new parameters. Callers wait in async
/// functions, so they hold no thread.
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
///     // A statement of its own: the server is not locked while this waits.
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
/// let options = Options { init_method: "mem://round?rank=0&world_size=1".into(), ..Options::default() };
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
/// - A caller is known by its name, which is that of its worker unless [`join_as`](Self::join_as) gives another. One that
///   comes twice in a round is refused ([`RoundError::Twice`]); its first value stays.
/// - A caller that is cancelled, times out or is lost while it waits takes its value back (S16). The round waits for
///   another one then, which may be the same caller again, or for [`set_callers`](Self::set_callers) to ask for fewer.
/// - An error or a panic of the combining function is the error of every caller of that round. The next round begins.
/// - Dropping the `Round` fails the callers that wait in it ([`RoundError::Dropped`]).
pub struct Round<T, R = T> {
    shared: Arc<Mutex<State<T, R>>>,
}

struct State<T, R> {
    /// How many values complete a round.
    callers: usize,
    /// The callers that wait.
    seats: Vec<Seat<T, R>>,
    is_dropped: bool,
}

/// A caller that waits, and its value.
struct Seat<T, R> {
    name: String,
    value: T,
    answer: Arc<Answer<R>>,
}

/// What a caller waits for.
struct Answer<R>(Mutex<Waiting<R>>);

enum Waiting<R> {
    For(Waker),
    Answered(Result<R>),
}

impl<T: Send + 'static, R: Clone + Send + 'static> Round<T, R> {
    /// Rounds of this many callers; of one where it is zero.
    pub fn new(callers: usize) -> Self {
        let state = State {
            callers: callers.max(1),
            seats: Vec::new(),
            is_dropped: false,
        };
        Self {
            shared: Arc::new(Mutex::new(state)),
        }
    }

    /// Hands in a value for the worker that made the current call; returns the round's result.
    ///
    /// Outside of calls the caller is this process.
    ///
    /// `combine` gets the values of all callers in the order of their names, so that sums of floats come out the same every time. It
    /// runs once a round: each caller brings one, and the last caller's runs, on its thread and as part of its call.
    ///
    /// The future does not borrow the round. Get it in a statement of its own and await it in the next one: in
    /// `server.local_value()?.round.join(…).await` the server stays locked while the future waits, and a
    /// `combine` that needs it for itself waits for ever.
    ///
    /// # Errors
    /// See [`RoundError`], and the errors of `combine`.
    pub fn join<F>(&self, value: T, combine: F) -> impl Future<Output = Result<R>> + Send + use<T, R, F>
    where
        F: FnOnce(Vec<T>) -> Result<R> + Send,
    {
        let shared = self.shared.clone();
        async move {
            // Within its first poll, which is within the call that it is awaited in.
            let name = caller().map_or_else(|| "this process".to_owned(), |worker| worker.name);
            take_part(shared, name, value, combine).await
        }
    }

    /// Like [`join`](Self::join), under a name of the caller's own: for several callers on one worker.
    pub fn join_as<F>(
        &self,
        name: &str,
        value: T,
        combine: F,
    ) -> impl Future<Output = Result<R>> + Send + use<T, R, F>
    where
        F: FnOnce(Vec<T>) -> Result<R> + Send,
    {
        take_part(self.shared.clone(), name.to_owned(), value, combine)
    }

    /// Changes how many callers a round has, at least one. It holds at once: a round to which that many have come is complete.
    pub fn set_callers(&self, callers: usize) {
        let mut state = self.shared.lock();
        state.callers = callers.max(1);
        let waker = state.to_complete();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// How many callers a round has.
    pub fn callers(&self) -> usize {
        self.shared.lock().callers
    }

    /// The names of the callers that wait in the current round, in the order in which they came.
    pub fn waiting(&self) -> Vec<String> {
        self.shared.lock().names()
    }
}

impl<T, R> Drop for Round<T, R> {
    fn drop(&mut self) {
        let (seats, waiting) = {
            let mut state = self.shared.lock();
            state.is_dropped = true;
            let waiting = state.names();
            (std::mem::take(&mut state.seats), waiting)
        };
        for seat in seats {
            let waiting = waiting.clone();
            seat.answer.give(Err(RoundError::Dropped { waiting }.into()));
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

/// Why a caller is not in a round; behind [`Error::Other`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoundError {
    /// The caller waits in this round already.
    #[error(
        "`{name}` is in this round already, which {} of {callers} callers have come to: it hands in one value a round, and several \
         callers on one worker give names of their own to `join_as`",
        .waiting.len()
    )]
    Twice {
        /// The caller.
        name: String,
        /// The callers that wait in the round.
        waiting: Vec<String>,
        /// How many callers it takes.
        callers: usize,
    },
    /// The round is gone.
    #[error("the round was dropped while these callers waited in it: {}", .waiting.join(", "))]
    Dropped {
        /// The callers that waited in the round.
        waiting: Vec<String>,
    },
    /// The combining function panicked.
    #[error("the function that combines the values of a round panicked: {message}")]
    Panicked {
        /// What the panic said.
        message: String,
    },
}

impl From<RoundError> for Error {
    fn from(error: RoundError) -> Self {
        Self::other(error)
    }
}

/// A caller's part in a round.
async fn take_part<T, R: Clone>(
    shared: Arc<Mutex<State<T, R>>>,
    name: String,
    value: T,
    combine: impl FnOnce(Vec<T>) -> Result<R>,
) -> Result<R> {
    let answer = Arc::new(Answer::new());
    shared.lock().seat(Seat {
        name,
        value,
        answer: answer.clone(),
    })?;
    let _part = Part {
        shared: &shared,
        answer: &answer,
    };
    let mut combine = Some(combine);
    poll_fn(|cx| {
        let polled = answer.poll(cx);
        if polled.is_ready() {
            return polled;
        }
        let Some(seats) = shared.lock().complete(&answer) else {
            return Poll::Pending;
        };
        // A caller is in one round, so it combines once.
        if let Some(combine) = combine.take() {
            complete(seats, combine);
        }
        answer.poll(cx)
    })
    .await
}

impl<T, R> State<T, R> {
    fn names(&self) -> Vec<String> {
        self.seats.iter().map(|seat| seat.name.clone()).collect()
    }

    /// Adds a caller to the current round.
    fn seat(&mut self, seat: Seat<T, R>) -> Result<(), RoundError> {
        let waiting = self.names();
        if self.is_dropped {
            return Err(RoundError::Dropped { waiting });
        }
        if waiting.contains(&seat.name) {
            return Err(RoundError::Twice {
                name: seat.name,
                waiting,
                callers: self.callers,
            });
        }
        self.seats.push(seat);
        Ok(())
    }

    /// Takes the seats of a complete round that this caller is in; the next round begins.
    fn complete(&mut self, answer: &Arc<Answer<R>>) -> Option<Vec<Seat<T, R>>> {
        let is_here = self.seats.iter().any(|seat| Arc::ptr_eq(&seat.answer, answer));
        (is_here && self.seats.len() >= self.callers).then(|| std::mem::take(&mut self.seats))
    }

    /// The waker of a caller that can complete the round, if enough have come.
    fn to_complete(&self) -> Option<Waker> {
        let last = self.seats.last().filter(|_| self.seats.len() >= self.callers)?;
        last.answer.waker()
    }
}

/// Combines the values of a round, and answers all of its callers.
fn complete<T, R: Clone>(mut seats: Vec<Seat<T, R>>, combine: impl FnOnce(Vec<T>) -> Result<R>) {
    seats.sort_by(|a, b| a.name.cmp(&b.name));
    let (answers, values): (Vec<_>, Vec<T>) = seats.into_iter().map(|seat| (seat.answer, seat.value)).unzip();
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
            answers.for_each(|(answer, result)| answer.give(Ok(result)));
        }
        Err(error) => {
            let error = Arc::new(error);
            for answer in answers {
                answer.give(Err(Error::Shared(error.clone())));
            }
        }
    }
}

impl<R> Answer<R> {
    fn new() -> Self {
        Self(Mutex::new(Waiting::For(Waker::noop().clone())))
    }

    /// Gives the answer, and wakes its caller.
    fn give(&self, answer: Result<R>) {
        let before = std::mem::replace(&mut *self.0.lock(), Waiting::Answered(answer));
        if let Waiting::For(waker) = before {
            waker.wake();
        }
    }

    /// Takes the answer, or registers the waker.
    fn poll(&self, cx: &Context<'_>) -> Poll<Result<R>> {
        let waiting = Waiting::For(cx.waker().clone());
        // The waker before is dropped without the lock.
        let before = std::mem::replace(&mut *self.0.lock(), waiting);
        match before {
            Waiting::For(_) => Poll::Pending,
            Waiting::Answered(answer) => Poll::Ready(answer),
        }
    }

    fn waker(&self) -> Option<Waker> {
        match &*self.0.lock() {
            Waiting::For(waker) => Some(waker.clone()),
            Waiting::Answered(_) => None,
        }
    }
}

/// A caller's place in a round; withdraws its value when it is dropped early.
struct Part<'a, T, R> {
    shared: &'a Mutex<State<T, R>>,
    answer: &'a Arc<Answer<R>>,
}

impl<T, R> Drop for Part<'_, T, R> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let at = state
            .seats
            .iter()
            .position(|seat| Arc::ptr_eq(&seat.answer, self.answer));
        let seat = at.map(|at| state.seats.remove(at));
        // This caller may be the one that was to complete the round.
        let waker = state.to_complete();
        drop(state);
        drop(seat);
        waker.into_iter().for_each(Waker::wake);
    }
}
