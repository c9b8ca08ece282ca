//! References to values that live on other workers (S26 to S33).
//!
//! A value stays with its owner, the worker that made it; an [`RRef`] is a typed handle to it that can
//! be cloned, sent to anybody, called on and fetched. When the last reference anywhere is dropped the
//! value is freed.
//!
//! Read it in this order: `protocol` decides who has to tell whom what, and nothing else; `references`
//! carries that out for one worker; `handle` is one reference, `value` what it refers to, `claim` what
//! keeps it in place for a request.

mod handle;
mod info;
mod local_value;
mod fetch;
mod protocol;
mod references;
mod claim;
mod value;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use telegrad_wire::{Decoder, Encoder, Layouts, TypeLayout, TypeNumber, Wire, WireError};

pub(crate) use claim::Claim;
pub(crate) use fetch::{FETCH, check_expected};
pub(crate) use handle::Handle;
pub(crate) use info::references;
pub use info::{ReferenceInfo, ReferenceState};
pub use local_value::{LocalValue, LocalValueMut};
pub(crate) use protocol::{ForkId, Handover, Life, RefId};
pub(crate) use references::{References, hand_over};
pub(crate) use value::{Entered, Value};

use crate::block_on::block_on;
use crate::call::RpcFuture;
use crate::error::{Error, Result};
use crate::executor::Executor;
use crate::function::{Access, Method, assert_is_function};
use crate::options::CallOptions;
use crate::recording;
use crate::registry::{Kept, Registration, Registry};
use crate::worker::{Request, Worker};
use crate::worker_info::{To, WorkerInfo};
use crate::world::World;

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
    options: CallOptions,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for RRef<T> {
    fn clone(&self) -> Self {
        Self::new_options(self.handle.clone(), self.options)
    }
}

impl<T> RRef<T> {
    pub(crate) fn from_handle(handle: Arc<Handle>) -> Self {
        Self::new_options(handle, CallOptions::default())
    }

    fn new_options(handle: Arc<Handle>, options: CallOptions) -> Self {
        let of = PhantomData;
        Self { handle, options, of }
    }

    /// The same reference for calls with this time limit. Zero: no limit.
    #[must_use]
    pub fn with_timeout(&self, limit: Duration) -> Self {
        let options = CallOptions {
            timeout: Some(limit),
            ..self.options
        };
        Self::new_options(self.handle.clone(), options)
    }

    /// The worker that has the value.
    pub fn owner(&self) -> WorkerInfo {
        self.handle.owner.info.clone()
    }

    /// The name of the worker that has the value.
    pub fn owner_name(&self) -> &str {
        &self.handle.owner.name
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
            to: To::Rank(self.handle.owner.info.rank),
            function,
            options: self.options,
            object: Some(&self.handle),
            expects: None,
        }
    }

    /// The worker that holds this reference, if the reference is of any use.
    fn worker(&self) -> Result<Arc<Worker>> {
        let worker = self.handle.worker()?;
        self.handle.check()?;
        Ok(worker)
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
        Self::keep(world, Kept::wire(value))
    }

    /// Keeps a value on this worker that cannot travel: a model, a file, a connection. References to
    /// it can go anywhere and its methods can be called from there, but it cannot be fetched.
    ///
    /// # Errors
    /// When the world has been shut down.
    pub fn hold(world: &World, value: T) -> Result<Self> {
        Self::keep(world, Kept::new(value))
    }

    fn keep(world: &World, kept: Kept) -> Result<Self> {
        let worker = world.worker();
        if worker.is_closed() {
            return Err(Error::ShutDown);
        }
        worker.references.own(worker, kept).map(Self::from_handle)
    }

    /// The value, for shared use, on its owner. Waits until it is there, and until nobody uses it
    /// exclusively.
    ///
    /// # Errors
    /// [`Error::NotOwner`] elsewhere; whatever making the value failed with; [`Error::Timeout`] at the
    /// time limit.
    pub fn local_value(&self) -> Result<LocalValue<T>> {
        let entered = self.enter(Access::Shared, "local_value")?;
        let local = match entered {
            Entered::Shared(guard) => LocalValue::new(guard),
            Entered::Exclusive(_) => None,
        };
        local.ok_or_else(|| self.other_type())
    }

    /// The value, for exclusive use, on its owner. Waits until it is there, and until nobody else
    /// uses it.
    ///
    /// # Errors
    /// As [`local_value`](Self::local_value).
    pub fn local_value_mut(&self) -> Result<LocalValueMut<T>> {
        let entered = self.enter(Access::Exclusive, "local_value_mut")?;
        let local = match entered {
            Entered::Exclusive(guard) => LocalValueMut::new(guard),
            Entered::Shared(_) => None,
        };
        local.ok_or_else(|| self.other_type())
    }

    fn enter(&self, access: Access, function: &str) -> Result<Entered> {
        let worker = self.worker()?;
        if !self.is_owner() {
            return Err(Error::NotOwner {
                what: self.handle.type_name.to_string(),
                owner: self.owner_name().into(),
                here: worker.name().into(),
            });
        }
        let slot = worker
            .references
            .slot(&worker, self.handle.reference)
            .ok_or(Error::ShutDown)?;
        if let Some(Ok(value)) = slot.get()
            && let Some(entered) = value.try_enter(access)
        {
            return Ok(entered);
        }
        Executor::may_wait()?;
        let started = Instant::now();
        let (limit, deadline) = worker.limit(self.options, started);
        let _waits = recording::waits(&worker, 0, || format!("wait in {function}").into());
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
            ..self.request(verb, Registry::get().entry(&fetch::fetch)?)
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
        let made = worker.create(request, std::any::type_name::<F::Value>(), &args);
        made.map(RRef::from_handle)
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
        Ok(Self::from_handle(handle))
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

/// A reference to a value of any type, inside something that is passed on as it is.
#[derive(Clone)]
pub(crate) struct AnyReference(pub(crate) Arc<Handle>);

impl Wire for AnyReference {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.reference(self.0.clone());
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, WireError> {
        let handle = decoder.reference()?.downcast::<Handle>();
        let foreign = |_| WireError::mismatch("a reference", "something else in its place");
        handle.map(Self).map_err(foreign)
    }
}

impl fmt::Debug for AnyReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyReference({})", self.0.reference)
    }
}
