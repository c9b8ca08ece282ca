//! [`RRef`]: the references that user code holds.

mod control;
mod listing;
mod local_value;

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use telegrad_wire::{Decoder, Encoder, Layouts, TypeLayout, TypeNumber, Wire, WireError};

pub use local_value::{LocalValue, LocalValueMut};

use crate::call::{Request, RpcFuture};
use crate::error::{Error, Result};
use crate::exec::{Executor, block_on};
use crate::function::{Access, FreeFn, LocalOnly, Method, Registration, Registry, assert_is_function};
use crate::observe::recording;
use crate::reference::{AnyReference, Handle, ValueGuard, fetch};
use crate::types::{ReferenceInfo, ReferenceState, To, WorkerInfo};
use crate::worker::{CallOptions, Worker, World};

/// A reference to a value of type `T` that lives on some worker of the world, its owner.
///
/// [`World::remote`] makes one: the function runs on the owner, and its value stays there. It can be
/// used at once, before the value is there: what is asked of it is done when it is. It can be cloned,
/// and sent to any worker, in arguments and results, inside whatever structure. The value is freed
/// soon after the last reference to it, wherever that is, has been dropped.
///
/// ```
/// use telegrad_rpc::{Options, RRef, init_with, remote};
///
/// struct Counter(u64);
///
/// #[remote]
/// impl Counter {
///     fn new() -> telegrad_rpc::Result<Self> {
///         Ok(Self(0))
///     }
///
///     fn add(&mut self, n: u64) -> u64 {
///         self.0 += n;
///         self.0
///     }
/// }
///
/// # let options = Options { init_method: "mem://docs-rref?rank=0&world_size=1".into(), ..Options::default() };
/// # let world = init_with("ps", options)?;
/// let counter: RRef<Counter> = world.remote("ps", Counter::new, ())?;
/// assert_eq!(counter.rpc_sync(Counter::add, (2,))?, 2);
/// assert_eq!(counter.rpc_sync(Counter::add, (3,))?, 5);
/// # drop(counter);
/// # world.shutdown()?;
/// # Ok::<(), telegrad_rpc::Error>(())
/// ```
pub struct RRef<T> {
    handle: Arc<Handle>,
    worker: Weak<Worker>,
    options: CallOptions,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for RRef<T> {
    fn clone(&self) -> Self {
        self.with_options(self.options)
    }
}

impl<T> RRef<T> {
    fn new_on(worker: Weak<Worker>, handle: Arc<Handle>) -> Self {
        Self {
            handle,
            worker,
            options: CallOptions::default(),
            of: PhantomData,
        }
    }

    fn with_options(&self, options: CallOptions) -> Self {
        Self {
            handle: self.handle.clone(),
            worker: self.worker.clone(),
            options,
            of: PhantomData,
        }
    }

    /// The same reference for calls with this time limit. Zero: no limit.
    #[must_use]
    pub fn with_timeout(&self, limit: Duration) -> Self {
        self.with_options(CallOptions {
            timeout: Some(limit),
            ..self.options
        })
    }

    /// The worker that has the value.
    pub fn owner(&self) -> WorkerInfo {
        self.handle.owner.info()
    }

    /// The name of the worker that has the value.
    pub fn owner_name(&self) -> &str {
        &self.handle.owner.identity.name
    }

    /// Whether the value is on this worker.
    pub fn is_owner(&self) -> bool {
        self.handle.is_here()
    }

    /// Whether the owner is known to know of this reference. The reference can be used before.
    pub fn confirmed_by_owner(&self) -> bool {
        self.handle.state() == ReferenceState::Confirmed
    }

    fn request(&self, verb: &'static str, function: &'static Registration) -> Request<'_> {
        Request {
            verb,
            to: To::Rank(self.handle.owner.identity.rank),
            function,
            options: self.options,
            object: Some(&self.handle),
            expects: None,
        }
    }

    /// Returns the worker that holds this reference.
    ///
    /// # Errors
    /// When the worker has ended, or the value is lost.
    fn worker(&self) -> Result<Arc<Worker>> {
        if self.handle.is_refused() {
            // It has no worker, and an error of its own.
            self.handle.check()?;
        }
        let worker = self.worker.upgrade().filter(|worker| !worker.is_closed());
        let worker = worker.ok_or(Error::ShutDown)?;
        self.handle.check()?;
        Ok(worker)
    }
}

impl World {
    /// Runs `function` on worker `to` and leaves its value there; returns at once with a reference to
    /// it. The function's time limit is the world's: when it is reached, and when the function fails,
    /// that shows when the reference is used.
    ///
    /// # Errors
    /// When the worker cannot be asked.
    pub fn remote<'a, M, F>(
        &self,
        to: impl Into<To<'a>>,
        _function: F,
        args: F::Args,
    ) -> Result<RRef<F::Value>>
    where
        F: FreeFn<M>,
    {
        const { assert_is_function::<F>() };
        let request = self.request::<F>(to.into(), "remote")?;
        let type_name = std::any::type_name::<F::Value>();
        let handle = self.worker().create(request, type_name, &args)?;
        Ok(RRef::new_on(Arc::downgrade(self.worker()), handle))
    }

    /// The references that this worker knows of, for people to look at: to its own values, with all who
    /// hold them, and its own to values elsewhere.
    pub fn references(&self) -> Vec<ReferenceInfo> {
        listing::references(self.worker())
    }
}

impl<T: Send + Sync + 'static> RRef<T> {
    /// Keeps a value on this worker, for references to it.
    ///
    /// What cannot travel is kept with [`hold`](Self::hold).
    ///
    /// # Errors
    /// When the world has been shut down.
    pub fn new(world: &World, value: T) -> Result<Self>
    where
        T: Wire,
    {
        Self::keep(world, LocalOnly::wire(value))
    }

    /// Keeps a value on this worker that cannot travel: a model, a file, a connection. References to
    /// it can go anywhere and its methods can be called from there, but it cannot be fetched.
    ///
    /// # Errors
    /// When the world has been shut down.
    pub fn hold(world: &World, value: T) -> Result<Self> {
        Self::keep(world, LocalOnly::new(value))
    }

    fn keep(world: &World, value: LocalOnly) -> Result<Self> {
        let worker = world.worker();
        if worker.is_closed() {
            return Err(Error::ShutDown);
        }
        let handle = worker.references.own(value)?;
        Ok(Self::new_on(Arc::downgrade(worker), handle))
    }

    /// The value, for shared use, on its owner. Waits until it is there, and until no
    /// other user has it exclusively.
    ///
    /// # Errors
    /// [`Error::NotOwner`] elsewhere; whatever making the value failed with; [`Error::Timeout`] at the
    /// time limit.
    pub fn local_value(&self) -> Result<LocalValue<T>> {
        let guard = self.enter(Access::Shared, "local_value")?;
        let local = match guard {
            ValueGuard::Shared(guard) => LocalValue::new(guard),
            ValueGuard::Exclusive(_) => None,
        };
        local.ok_or_else(|| self.other_type())
    }

    /// The value, for exclusive use, on its owner. Waits until it is there, and until no
    /// other user has it.
    ///
    /// # Errors
    /// As [`local_value`](Self::local_value).
    pub fn local_value_mut(&self) -> Result<LocalValueMut<T>> {
        let guard = self.enter(Access::Exclusive, "local_value_mut")?;
        let local = match guard {
            ValueGuard::Exclusive(guard) => LocalValueMut::new(guard),
            ValueGuard::Shared(_) => None,
        };
        local.ok_or_else(|| self.other_type())
    }

    fn enter(&self, access: Access, function: &str) -> Result<ValueGuard> {
        let worker = self.worker()?;
        if !self.is_owner() {
            return Err(Error::NotOwner {
                what: self.handle.type_name.to_string(),
                owner: self.owner_name().into(),
                here: worker.name().into(),
            });
        }
        let slot = worker.references.slot(self.handle.reference);
        let slot = slot.ok_or(Error::ShutDown)?;
        if let Some(Ok(value)) = slot.get()
            && let Some(guard) = value.try_enter(access)
        {
            return Ok(guard);
        }
        Executor::may_wait()?;
        let started = Instant::now();
        let (limit, deadline) = worker.limit(self.options, started);
        let _waits = recording::waits(&worker.recorder, 0, || format!("wait in {function}").into());
        let entering = async {
            match slot.wait().await {
                Ok(value) => Ok(value.enter(access).await),
                Err(error) => Err(Error::from(error.clone())),
            }
        };
        block_on(entering, deadline).unwrap_or_else(|| {
            Err(Error::Timeout {
                function: function.into(),
                worker: worker.name().into(),
                limit: limit.unwrap_or_default(),
                elapsed: started.elapsed(),
            })
        })
    }

    fn other_type(&self) -> Error {
        // References are made with their values, and their types are checked when they arrive.
        Error::other(format!("the value is not a `{}`", std::any::type_name::<T>()))
    }

    /// Fetches the value: a copy of it. Waits until it is there.
    ///
    /// # Errors
    /// Whatever making the value failed with; [`Error::OwnerLost`]; [`Error::Timeout`] at the time limit.
    pub fn to_here(&self) -> Result<T>
    where
        T: Wire,
    {
        Executor::may_wait()?;
        self.fetch("to_here")?.wait()
    }

    /// Fetches the value; returns at once with a future of it.
    ///
    /// # Errors
    /// When the owner cannot be asked. What happens later is the future's.
    pub fn to_here_async(&self) -> Result<RpcFuture<T>>
    where
        T: Wire,
    {
        self.fetch("to_here_async")
    }

    fn fetch(&self, verb: &'static str) -> Result<RpcFuture<T>>
    where
        T: Wire,
    {
        let request = Request {
            expects: Some(TypeLayout::of::<T>),
            ..self.request(verb, Registry::get().entry(&fetch)?)
        };
        self.worker()?.rpc(request, &())
    }

    /// Runs a method of the value, on its owner, and waits for what it gives.
    ///
    /// `&self` methods run side by side, `&mut self` methods alone. A method that waits for another
    /// call on the same value, which needs it to end first, waits until its time limit.
    ///
    /// # Errors
    /// As [`to_here`](Self::to_here), and the method's own error as [`Error::Remote`].
    pub fn rpc_sync<M, F>(&self, _method: F, args: F::Args) -> Result<F::Value>
    where
        F: Method<M, Object = T, Value: Wire>,
    {
        const { assert_is_function::<F>() };
        Executor::may_wait()?;
        let request = self.request("rpc_sync", Registry::get().of::<F>()?);
        let future = self.worker()?.rpc(request, &args)?;
        // They have been sent, and may be large.
        drop(args);
        future.wait()
    }

    /// Runs a method of the value, on its owner; returns at once with a future of what it gives.
    ///
    /// # Errors
    /// When the owner cannot be asked. What happens later is the future's.
    pub fn rpc_async<M, F>(&self, _method: F, args: F::Args) -> Result<RpcFuture<F::Value>>
    where
        F: Method<M, Object = T, Value: Wire>,
    {
        const { assert_is_function::<F>() };
        let request = self.request("rpc_async", Registry::get().of::<F>()?);
        self.worker()?.rpc(request, &args)
    }

    /// Runs a method of the value, on its owner, and leaves what it gives there; returns at once with a
    /// reference to that.
    ///
    /// # Errors
    /// When the owner cannot be asked. What happens later shows when the new reference is used.
    pub fn remote<M, F>(&self, _method: F, args: F::Args) -> Result<RRef<F::Value>>
    where
        F: Method<M, Object = T>,
    {
        const { assert_is_function::<F>() };
        let worker = self.worker()?;
        let request = self.request("remote", Registry::get().of::<F>()?);
        let handle = worker.create(request, std::any::type_name::<F::Value>(), &args)?;
        Ok(RRef::new_on(Arc::downgrade(&worker), handle))
    }
}

/// On the wire a reference is an index; what it refers to travels beside the body.
impl<T: 'static> Wire for RRef<T> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.reference(self.handle.clone());
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        let wanted = std::any::type_name::<T>();
        let AnyReference(handle) = AnyReference::decode(decoder)?;
        // A peer in another language does not know how Rust names its types.
        if handle.type_name != wanted && !handle.type_name.is_empty() {
            return Err(WireError::mismatch(
                format!("a reference to a `{wanted}`"),
                format!("a reference to a `{}`", handle.type_name),
            ));
        }
        Ok(Self::new_on(worker_of(&handle), handle))
    }

    /// By the name of the type that decoding compares: the value need not travel, so it may have no layout.
    fn layout(layouts: &mut Layouts) -> TypeNumber {
        layouts.named(format!("RRef<{}>", std::any::type_name::<T>()))
    }
}

impl<T> fmt::Debug for RRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, what) = (self.handle.reference, &self.handle.type_name);
        write!(f, "RRef<{what}>({id} on `{}`)", self.owner_name())
    }
}

/// Returns the worker that holds a reference which has arrived.
fn worker_of(handle: &Handle) -> Weak<Worker> {
    let host = handle.references().and_then(|references| references.host());
    let worker = host.and_then(|host| (host as Arc<dyn Any + Send + Sync>).downcast::<Worker>().ok());
    worker.map_or_else(Weak::new, |worker| Arc::downgrade(&worker))
}
