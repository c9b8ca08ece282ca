//! The thread pool of a worker.
//!
//! One pool runs requests, callbacks, and the roles that always need a thread (polling sockets, reading a bulk lane). A
//! thread in a role runs the request that it has received, so an unloaded worker needs no thread wake-up per request. The
//! role passes to another thread: at once under load, otherwise when the request is slow (see [`held_role`]).
//!
//! At most `limit` functions run at a time. A function that waits inside a call does not count, and a queued function
//! starts in its place. So nested calls of any depth or pattern always find a thread (S21).

mod held_role;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use telegrad_net::{Role, Roles, Turn};

use self::held_role::{HeldRole, HeldRoles};
use crate::error::Error;

/// Time after which an idle thread ends. Long enough for the pauses of a training loop.
const LINGER: Duration = Duration::from_secs(10);

/// Stack size of a pool thread. Only touched pages cost memory, and a tensor library may recurse deeply.
const STACK: usize = 8 << 20;

/// A closure that a pool thread runs.
pub(super) type Task = Box<dyn FnOnce() + Send>;

/// A handle to the pool; the threads share it.
#[derive(Clone)]
pub(crate) struct Executor(Arc<Pool>);

struct Pool {
    /// The worker's name, for thread names and logs.
    name: String,
    limit: usize,
    state: Mutex<State>,
    held: HeldRoles,
}

#[derive(Default)]
struct State {
    /// Functions that wait while `limit` others run.
    queue: VecDeque<Task>,
    /// Functions that run and do not wait inside a call.
    running: usize,
    /// Functions that wait inside a call.
    blocked: usize,
    /// Idle threads, the last to stop on top: its caches are warmest.
    idle: Vec<Arc<IdleThread>>,
    threads: usize,
    closed: bool,
    /// Tasks refused after the close, to be dropped outside the lock.
    refused: Vec<Task>,
}

/// Capacity that the empty queue keeps.
const MIN_QUEUE_CAPACITY: usize = 1024;

impl State {
    /// Releases the memory of an empty queue after a burst.
    fn shrink_queue(&mut self) {
        if self.queue.is_empty() && self.queue.capacity() > 2 * MIN_QUEUE_CAPACITY {
            self.queue.shrink_to(MIN_QUEUE_CAPACITY);
        }
    }
}

/// An idle thread, and the slot through which it receives work.
struct IdleThread {
    work: Mutex<Option<Work>>,
    ready: Condvar,
}

enum Work {
    /// A function, counted against the limit.
    Task(Task),
    /// Internal work that may block, not counted.
    Blocking(Task),
    Role(Box<dyn Role>),
    /// Watching roles whose threads are busy.
    Watch,
}

thread_local! {
    static THREAD: RefCell<Thread> = const { RefCell::new(Thread { role: None, task: None, held: None }) };
}

/// The state of a pool thread.
struct Thread {
    /// Set during a turn of a role; collects the tasks that the role spawns.
    role: Option<(Executor, Vec<Task>)>,
    /// Set while the thread runs a task that counts as running.
    task: Option<Executor>,
    /// The role to resume after the task, unless another thread takes it.
    held: Option<Arc<HeldRole>>,
}

/// Counts of threads and functions, for status queries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) threads: usize,
    pub(crate) idle: usize,
    pub(crate) running: usize,
    pub(crate) blocked: usize,
    pub(crate) queued: usize,
}

impl Executor {
    /// Makes a pool that runs at most `limit` functions at a time. Threads start on demand.
    pub(crate) fn new(name: &str, limit: usize) -> Self {
        Self(Arc::new(Pool {
            name: name.into(),
            limit: limit.max(1),
            state: Mutex::default(),
            held: HeldRoles::default(),
        }))
    }

    /// Schedules a function. From a thread in a role, it runs after the role's turn.
    pub(crate) fn spawn(&self, task: Task) {
        let mut task = Some(task);
        THREAD.with_borrow_mut(|thread| {
            if let Some((executor, tasks)) = &mut thread.role
                && Arc::ptr_eq(&executor.0, &self.0)
            {
                tasks.extend(task.take());
            }
        });
        if let Some(task) = task {
            self.with_state(|state| self.enqueue(state, task));
        }
    }

    /// Schedules internal work that may block, regardless of the limit.
    pub(crate) fn spawn_blocking(&self, task: Task) {
        let refused = self.with_state(|state| {
            if state.closed {
                return Err(Work::Blocking(task));
            }
            self.dispatch(state, Work::Blocking(task))
        });
        // Dropped outside the lock: no thread could be started.
        drop(refused);
    }

    /// Runs `wait`, during which this thread's function does not count as running.
    pub(crate) fn blocking<R>(wait: impl FnOnce() -> R) -> R {
        let Some(executor) = THREAD.with_borrow_mut(|thread| thread.task.take()) else {
            return wait();
        };
        executor.pass_on_held_role();
        executor.pause();
        let result = wait();
        executor.resume();
        THREAD.with_borrow_mut(|thread| thread.task = Some(executor));
        result
    }

    /// Whether this thread may block. A thread in a role may not.
    pub(crate) fn may_block() -> bool {
        THREAD.with_borrow(|thread| thread.role.is_none())
    }

    /// Checks that this thread may wait for another worker.
    ///
    /// # Errors
    /// [`Error::WaitInInline`] in a role and inside a subscriber: this thread may be the one that receives the awaited
    /// message (S24, S63).
    pub(crate) fn may_wait() -> Result<(), Error> {
        if Self::may_block() && !telegrad_trace::is_in_subscriber() {
            Ok(())
        } else {
            Err(Error::WaitInInline)
        }
    }

    /// Drops queued tasks and ends idle threads. Running functions continue.
    pub(crate) fn close(&self) {
        let (queue, idle) = {
            let mut state = self.0.state.lock();
            state.closed = true;
            (std::mem::take(&mut state.queue), std::mem::take(&mut state.idle))
        };
        self.0.held.wake();
        for idle_thread in idle {
            let _work = idle_thread.work.lock();
            idle_thread.ready.notify_one();
        }
        drop(queue);
    }

    pub(crate) fn load(&self) -> Load {
        let state = self.0.state.lock();
        Load {
            threads: state.threads,
            idle: state.idle.len(),
            running: state.running,
            blocked: state.blocked,
            queued: state.queue.len(),
        }
    }

    /// Runs `change` under the lock, then drops refused tasks: their destructors may spawn tasks.
    fn with_state<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.0.state.lock();
        let result = change(&mut state);
        let refused = std::mem::take(&mut state.refused);
        drop(state);
        drop(refused);
        result
    }

    fn enqueue(&self, state: &mut State, task: Task) {
        if state.closed {
            return state.refused.push(task);
        }
        if state.running >= self.0.limit {
            return state.queue.push_back(task);
        }
        state.running += 1;
        if let Err(Work::Task(task)) = self.dispatch(state, Work::Task(task)) {
            // No thread could be started: the next one that finishes takes the task.
            state.running -= 1;
            state.queue.push_back(task);
        }
    }

    /// Passes `work` to an idle or new thread; returns it if no thread can be started.
    fn dispatch(&self, state: &mut State, work: Work) -> Result<(), Work> {
        if let Some(idle_thread) = state.idle.pop() {
            *idle_thread.work.lock() = Some(work);
            idle_thread.ready.notify_one();
            return Ok(());
        }
        let slot = Arc::new(Mutex::new(Some(work)));
        let (executor, first) = (self.clone(), slot.clone());
        let name = format!("telegrad {}", self.0.name);
        let started = std::thread::Builder::new()
            .name(name)
            .stack_size(STACK)
            .spawn(move || {
                let work = first.lock().take();
                executor.run_thread(work);
            });
        match started {
            Ok(_) => {
                state.threads += 1;
                Ok(())
            }
            Err(error) => {
                tracing::error!(worker = self.0.name, %error, "cannot start a thread");
                match slot.lock().take() {
                    Some(work) => Err(work),
                    None => Ok(()),
                }
            }
        }
    }

    /// Runs a pool thread.
    fn run_thread(&self, mut work: Option<Work>) {
        while let Some(next) = work.take() {
            let task = match next {
                Work::Task(task) => Some(task),
                Work::Role(role) => self.run_role(role),
                Work::Watch => self.watch().and_then(|role| self.run_role(role)),
                Work::Blocking(task) => {
                    self.catch_panic(task);
                    None
                }
            };
            if let Some(task) = task {
                self.run_all(task);
            }
            work = self.wait_for_work();
        }
    }

    /// Runs a role until it ends, or until another thread takes it and a task of its last turn runs here.
    fn run_role(&self, mut role: Box<dyn Role>) -> Option<Task> {
        let mut came_back: Option<Instant> = None;
        loop {
            let (turn, mut tasks) = self.run_turn(&mut *role);
            if let Some(since) = came_back.take()
                && !tasks.is_empty()
            {
                self.note_pause(since.elapsed());
            }
            if tasks.is_empty() {
                match turn {
                    Turn::Again => continue,
                    Turn::Done => return None,
                }
            }
            if turn == Turn::Again
                && tasks.len() == 1
                && let Some(task) = tasks.pop()
            {
                match self.run_holding(role, task) {
                    Ok(None) => return None,
                    Ok(Some(back)) => {
                        role = back;
                        came_back = Some(Instant::now());
                        continue;
                    }
                    Err((back, task)) => {
                        role = back;
                        tasks.push(task);
                    }
                }
            }
            let mut tasks = tasks.into_iter();
            let mut state = self.0.state.lock();
            let mut first = None;
            let mut kept = Some(role);
            if turn == Turn::Done {
                kept = None;
            } else if state.running < self.0.limit && !state.closed {
                // The first task runs here, so another thread has to take the role.
                match kept
                    .take()
                    .map(|role| self.dispatch(&mut state, Work::Role(role)))
                {
                    Some(Err(Work::Role(back))) => kept = Some(back),
                    _ => {
                        state.running += 1;
                        first = tasks.next();
                    }
                }
            }
            drop(state);
            self.with_state(|state| tasks.for_each(|task| self.enqueue(state, task)));
            match kept {
                Some(kept) => role = kept,
                None => return first,
            }
        }
    }

    /// Runs one turn of a role; returns the tasks that it spawned.
    fn run_turn(&self, role: &mut dyn Role) -> (Turn, Vec<Task>) {
        THREAD.with_borrow_mut(|thread| thread.role = Some((self.clone(), Vec::new())));
        // A role serves several peers, so it continues after a panic.
        let turn = catch_unwind(AssertUnwindSafe(|| role.turn())).unwrap_or_else(|_| {
            tracing::error!(worker = self.0.name, "a role of the pool panicked");
            Turn::Again
        });
        let tasks = THREAD.with_borrow_mut(|thread| thread.role.take());
        (turn, tasks.map(|(_, tasks)| tasks).unwrap_or_default())
    }

    /// Runs a task that already counts as running, then queued ones.
    fn run_all(&self, mut task: Task) {
        loop {
            THREAD.with_borrow_mut(|thread| thread.task = Some(self.clone()));
            self.catch_panic(task);
            THREAD.with_borrow_mut(|thread| thread.task = None);
            let mut state = self.0.state.lock();
            // A function that resumes after a wait may exceed the limit; then this thread takes no more.
            let next = if state.running <= self.0.limit {
                state.queue.pop_front()
            } else {
                None
            };
            match next {
                Some(next) => task = next,
                None => {
                    state.running -= 1;
                    state.shrink_queue();
                    return;
                }
            }
        }
    }

    /// Runs a task and catches its panic, to keep the pool's counts right. User functions are caught where they are called.
    fn catch_panic(&self, task: Task) {
        if catch_unwind(AssertUnwindSafe(task)).is_err() {
            tracing::error!(worker = self.0.name, "a task of the pool panicked");
        }
    }

    /// Waits for work; returns `None` after [`LINGER`] and on close.
    fn wait_for_work(&self) -> Option<Work> {
        let idle_thread = Arc::new(IdleThread {
            work: Mutex::new(None),
            ready: Condvar::new(),
        });
        {
            let mut state = self.0.state.lock();
            if state.closed {
                state.threads -= 1;
                return None;
            }
            state.idle.push(idle_thread.clone());
        }
        let mut work = idle_thread.work.lock();
        if work.is_none() {
            idle_thread.ready.wait_for(&mut work, LINGER);
        }
        if let Some(work) = work.take() {
            return Some(work);
        }
        drop(work);
        // Work may still arrive until this thread is off the list.
        let mut state = self.0.state.lock();
        state.idle.retain(|other| !Arc::ptr_eq(other, &idle_thread));
        let late = idle_thread.work.lock().take();
        if late.is_none() {
            state.threads -= 1;
        }
        late
    }

    /// Counts one more function as running, within the limit.
    fn try_start_function(&self) -> bool {
        let mut state = self.0.state.lock();
        let may = state.running < self.0.limit && !state.closed;
        state.running += usize::from(may);
        may
    }

    /// Counts one function less and starts a queued one.
    fn end_function(&self) {
        self.with_state(|state| {
            state.running -= 1;
            self.start_queued(state);
        });
    }

    fn start_queued(&self, state: &mut State) {
        if state.running < self.0.limit
            && let Some(task) = state.queue.pop_front()
        {
            self.enqueue(state, task);
        }
    }

    fn pause(&self) {
        self.with_state(|state| {
            state.running -= 1;
            state.blocked += 1;
            self.start_queued(state);
        });
    }

    fn resume(&self) {
        let mut state = self.0.state.lock();
        state.running += 1;
        state.blocked -= 1;
    }
}

impl Roles for Executor {
    fn start(&self, role: Box<dyn Role>) {
        // If no thread can be started, the role is dropped outside the lock. That closes its sockets, so calls fail instead
        // of hanging.
        let refused = self.with_state(|state| self.dispatch(state, Work::Role(role)));
        drop(refused);
    }

    fn give_way(&self, wait: &mut dyn FnMut()) {
        Self::blocking(wait);
    }
}
