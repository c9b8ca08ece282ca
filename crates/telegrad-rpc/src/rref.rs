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
use crate::worker::{CallLimit, CallOptions, Worker, World};

/// A reference to a value of type `T` that lives on one worker, its owner.
///
/// [`World::remote`] returns one: the function runs on the owner, and its value stays there. The reference can be used before
/// the value exists; calls on it then wait at the owner. References can be cloned, and sent to any worker in arguments and
/// results, inside any structure. The value is freed soon after its last reference, on any worker, is dropped.
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
/// # let options = Options::default().init_method("mem://docs-rref?rank=0&world_size=1");
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

    /// The same reference for calls with this time limit; `None` for no limit.
    #[must_use]
    pub fn with_timeout(&self, limit: impl Into<Option<Duration>>) -> Self {
        self.with_options(CallOptions {
            limit: CallLimit::Own(limit.into()),
            ..self.options
        })
    }

    /// Returns the worker that has the value.
    pub fn owner(&self) -> WorkerInfo {
        self.handle.owner.info()
    }

    /// Returns the name of the worker that has the value.
    pub fn owner_name(&self) -> &str {
        &self.handle.owner.identity.name
    }

    /// Whether the value is on this worker.
    pub fn is_owner(&self) -> bool {
        self.handle.is_here()
    }

    /// Whether the owner has confirmed this reference. The reference can be used before.
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
            // A refused reference has no worker, and an error of its own.
            self.handle.check()?;
        }
        let worker = self.worker.upgrade().filter(|worker| !worker.is_closed());
        let worker = worker.ok_or(Error::ShutDown)?;
        self.handle.check()?;
        Ok(worker)
    }
}

impl World {
    /// Runs `function` on worker `to` and keeps its value there; returns a reference to it at once.
    ///
    /// The time limit of the function is that of this handle. A timeout or an error of the function is the error of using the
    /// reference.
    ///
    /// # Errors
    /// When the request cannot be sent.
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

    /// Lists the references that this worker knows: its own values with their holders, and its references to values elsewhere.
    pub fn references(&self) -> Vec<ReferenceInfo> {
        listing::references(self.worker())
    }
}

impl<T: Send + Sync + 'static> RRef<T> {
    /// Keeps a value on this worker; returns a reference to it.
    ///
    /// For a value that does not implement `Wire`, use [`hold`](Self::hold).
    ///
    /// # Errors
    /// When the world has been shut down.
    pub fn new(world: &World, value: T) -> Result<Self>
    where
        T: Wire,
    {
        Self::keep(world, LocalOnly::wire(value))
    }

    /// Keeps a value on this worker that cannot be sent: a model, a file, a connection.
    ///
    /// References to it can be sent to any worker, which can call its methods. The value cannot be fetched.
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

    /// Locks the value for shared use, on its owner. Waits until the value exists and is not locked exclusively.
    ///
    /// # Errors
    /// [`Error::NotOwner`] on another worker; the error of creating the value; [`Error::Timeout`] at the time limit.
    pub fn local_value(&self) -> Result<LocalValue<T>> {
        let guard = self.enter(Access::Shared, "local_value")?;
        let local = match guard {
            ValueGuard::Shared(guard) => LocalValue::new(guard),
            ValueGuard::Exclusive(_) => None,
        };
        local.ok_or_else(|| self.other_type())
    }

    /// Locks the value for exclusive use, on its owner. Waits until the value exists and is not locked.
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
        let _wait = recording::wait_scope(&worker.recorder, 0, || format!("wait in {function}").into());
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
        // Unreachable: references are made with their values, and decoding checks their types.
        Error::other(format!("the value is not a `{}`", std::any::type_name::<T>()))
    }

    /// Fetches a copy of the value. Waits until the value exists.
    ///
    /// # Errors
    /// The error of creating the value; [`Error::OwnerLost`]; [`Error::Timeout`] at the time limit.
    pub fn to_here(&self) -> Result<T>
    where
        T: Wire,
    {
        Executor::may_wait()?;
        self.fetch("to_here")?.wait()
    }

    /// Fetches a copy of the value; returns a future of it at once.
    ///
    /// # Errors
    /// When the request cannot be sent. Later errors are those of the future.
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

    /// Runs a method of the value on its owner, and waits for the result.
    ///
    /// `&self` methods run concurrently, `&mut self` methods exclusively. A method that waits for a call on the same value which its
    /// own lock excludes is blocked until its time limit.
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
        // The arguments are sent, and may be large.
        drop(args);
        future.wait()
    }

    /// Runs a method of the value on its owner; returns a future of the result at once.
    ///
    /// # Errors
    /// When the request cannot be sent. Later errors are those of the future.
    pub fn rpc_async<M, F>(&self, _method: F, args: F::Args) -> Result<RpcFuture<F::Value>>
    where
        F: Method<M, Object = T, Value: Wire>,
    {
        const { assert_is_function::<F>() };
        let request = self.request("rpc_async", Registry::get().of::<F>()?);
        self.worker()?.rpc(request, &args)
    }

    /// Runs a method of the value on its owner, and keeps the result there; returns a reference to it at once.
    ///
    /// # Errors
    /// When the request cannot be sent. Later errors are those of using the new reference.
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

/// On the wire a reference is an index into the references in the section of the message.
impl<T: 'static> Wire for RRef<T> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.reference(self.handle.clone());
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        let wanted = std::any::type_name::<T>();
        let AnyReference(handle) = AnyReference::decode(decoder)?;
        // A peer in another language sends no Rust type name.
        if handle.type_name != wanted && !handle.type_name.is_empty() {
            return Err(WireError::mismatch(
                format!("a reference to a `{wanted}`"),
                format!("a reference to a `{}`", handle.type_name),
            ));
        }
        Ok(Self::new_on(worker_of(&handle), handle))
    }

    /// The layout is the type name that decoding compares: the value may have no layout.
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

/// Returns the worker that holds a received reference.
fn worker_of(handle: &Handle) -> Weak<Worker> {
    let host = handle.references().and_then(|references| references.host());
    let worker = host.and_then(|host| (host as Arc<dyn Any + Send + Sync>).downcast::<Worker>().ok());
    worker.map_or_else(Weak::new, |worker| Arc::downgrade(&worker))
}
