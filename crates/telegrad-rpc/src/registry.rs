//! The functions of this program that others may call.
//!
//! `#[remote]` leaves a [`Registration`] in the program for each of them; they are collected when
//! the program starts. A caller finds the entry of the function it passes by the function's own
//! type, a callee by the name in the request. Names travel, code never does.

use std::any::{Any, TypeId};
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use rustc_hash::FxHashMap;
use telegrad_wire::{
    Catalogue, Decoder, Encoder, Layouts, Payload, Signature, TypeLayout, TypeNumber, Wire, WireError,
};

use crate::class::Class;
use crate::error::{Error, RemoteErrorKind};
use crate::function::{Access, Callable, Ran, Receiver};
use crate::recording;

/// One remote function, as `#[remote]` leaves it.
pub struct Registration {
    /// Its name on the wire.
    pub name: &'static str,
    /// Its parameter and return types as written, for people.
    pub signature: &'static str,
    /// The names of its parameters, for people.
    pub parameters: &'static [&'static str],
    /// It takes microseconds and never waits, so the thread that reads a request may run it.
    pub inline: bool,
    /// Its class.
    pub class: Class,
    /// The type of the function item, by which the caller finds this.
    pub type_id: fn() -> TypeId,
    /// How it uses the value that it is called on.
    pub access: fn() -> Access,
    /// Describes what it takes and gives, for comparing programs.
    pub describe: fn(&mut Layouts) -> Signature,
    /// Decodes arguments, runs the function, encodes the result.
    pub invoke: fn(Invocation<'_>) -> Step,
}

inventory::collect!(Registration);

/// What a registered function is run with.
#[derive(Debug)]
pub struct Invocation<'a> {
    /// At the start of the arguments.
    pub args: Decoder<'a>,
    /// What a method runs on.
    pub receiver: Option<Receiver<'a>>,
    /// What becomes of the function's value.
    pub want: Want,
}

/// What becomes of a function's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// It is sent.
    Message,
    /// It stays here, for references to it.
    Value,
}

/// A function's value, as wanted.
pub enum Output {
    /// To be sent.
    Message(Payload),
    /// To be kept.
    Value(Kept),
}

/// A value that stays where it was made.
pub struct Kept {
    /// The value.
    pub value: Box<dyn Any + Send + Sync>,
    /// Its type, for people.
    pub type_name: &'static str,
    /// How to send it; nothing when it cannot travel.
    pub(crate) encode: Option<Encode>,
    /// Its layout; nothing when it cannot travel.
    pub(crate) layout: Option<fn() -> TypeLayout>,
    /// Whether encoding it takes next to nothing.
    pub is_quick: fn(&(dyn Any + Send + Sync)) -> bool,
}

/// Encodes a value of a certain type.
pub(crate) type Encode = fn(&(dyn Any + Send + Sync)) -> Result<Payload, Trouble>;

impl Kept {
    /// A value that stays, and never leaves.
    pub(crate) fn new<T: Any + Send + Sync>(value: T) -> Self {
        Self {
            value: Box::new(value),
            type_name: std::any::type_name::<T>(),
            encode: None,
            layout: None,
            is_quick: |_| false,
        }
    }

    /// A value that stays, and can be fetched.
    pub(crate) fn wire<T: Wire + Any + Send + Sync>(value: T) -> Self {
        Self {
            encode: Some(encode_any::<T>),
            layout: Some(TypeLayout::of::<T>),
            is_quick: is_quick::<T>,
            ..Self::new(value)
        }
    }
}

/// Whether a value is encoded in no time: it is small, or a tensor whose bytes can go as they are.
fn is_quick<T: Any>(value: &(dyn Any + Send + Sync)) -> bool {
    /// A few numbers.
    const SMALL: usize = 64;
    #[cfg(feature = "candle")]
    if let Some(tensor) = value.downcast_ref::<candle_core::Tensor>() {
        return tensor.is_contiguous() && tensor.device().is_cpu();
    }
    value.is::<telegrad_wire::RawTensor>() || !std::mem::needs_drop::<T>() && size_of::<T>() <= SMALL
}

fn encode<T: Wire>(value: &T) -> Result<Payload, Trouble> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder
        .finish()
        .map_err(|error| Trouble::Around(RemoteErrorKind::BadResult, error.to_string()))
}

fn encode_any<T: Wire + Any>(value: &(dyn Any + Send + Sync)) -> Result<Payload, Trouble> {
    match value.downcast_ref::<T>() {
        Some(value) => encode(value),
        None => Err(cannot_travel(std::any::type_name::<T>())),
    }
}

/// The error that a value of this type can only be referred to.
pub(crate) fn cannot_travel(type_name: &str) -> Trouble {
    let text = format!("a `{type_name}` cannot travel, only be referred to where it is");
    Trouble::Around(RemoteErrorKind::BadResult, text)
}

/// The rest of an async function.
pub(crate) type Run = Pin<Box<dyn Future<Output = Result<Output, Trouble>> + Send>>;

/// How far a run got.
pub enum Step {
    /// It is over.
    Done(Result<Output, Trouble>),
    /// An async function; this is the rest of it.
    Pending(Run),
}

/// Why there is no result.
#[derive(Debug)]
pub enum Trouble {
    /// The function returned an error.
    User(telegrad_wire::BoxError),
    /// Something around it did not work.
    Around(RemoteErrorKind, String),
    /// What it was called on had failed before.
    Earlier(crate::RemoteError),
}

/// All registered functions.
pub(crate) struct Registry {
    by_name: FxHashMap<&'static str, &'static Registration>,
    by_type: FxHashMap<TypeId, &'static Registration>,
    catalogue: Arc<Catalogue>,
    digest: u64,
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::collect);

impl Registry {
    pub(crate) fn get() -> &'static Self {
        &REGISTRY
    }

    fn collect() -> Self {
        let mut by_name = FxHashMap::default();
        let mut by_type = FxHashMap::default();
        for registration in inventory::iter::<Registration> {
            if let Some(other) = by_name.insert(registration.name, registration) {
                tracing::error!(
                    name = registration.name,
                    first = other.signature,
                    second = registration.signature,
                    "two remote functions have the same name; only one of them can be called"
                );
            }
            by_type.insert((registration.type_id)(), registration);
        }
        // In the order of their names: the order of registration is the linker's, and the catalogue's hash would differ.
        let mut functions: Vec<_> = by_name.values().copied().collect();
        functions.sort_unstable_by_key(|function: &&Registration| function.name);
        let described = functions.into_iter().map(|function: &Registration| {
            let describe = function.describe;
            (function.name, move |layouts: &mut Layouts| {
                Some(describe(layouts))
            })
        });
        let catalogue = Arc::new(Catalogue::new(described));
        Self {
            by_name,
            by_type,
            digest: catalogue.digest(),
            catalogue,
        }
    }

    /// The entry of a function.
    ///
    /// # Errors
    /// When it is not marked with `#[remote]`.
    pub(crate) fn of<F: 'static>(&self) -> Result<&'static Registration, Error> {
        let found = self.by_type.get(&TypeId::of::<F>()).copied();
        found.ok_or(Error::NotRemote {
            function: std::any::type_name::<F>(),
        })
    }

    /// The entry of a function of this crate.
    pub(crate) fn entry<F: 'static>(&self, _: &F) -> Result<&'static Registration, Error> {
        self.of::<F>()
    }

    /// The function of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&'static Registration> {
        self.by_name.get(name).copied()
    }

    /// Equal for programs with the same functions and signatures (S9).
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// The functions with their signatures.
    pub(crate) fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }
}

/// The type of a function item.
pub fn type_id_of<F: 'static>(_: &F) -> TypeId {
    TypeId::of::<F>()
}

/// How a function uses the value that it is called on.
pub fn access_of<M, F: Callable<M>>(_: F) -> Access {
    F::ACCESS
}

/// A function's value, for [`sending!`](crate::__private::sending): the compiler finds the method of [`Travels`], on the
/// type itself, before that of [`Stays`], on the reference.
#[derive(Debug)]
pub struct ValueOf<T>(PhantomData<fn() -> T>);

/// The value of a function.
pub fn value_of<M, F: Callable<M>>(_: F) -> ValueOf<F::Value> {
    ValueOf(PhantomData)
}

/// What can be done with values that travel.
#[derive(Debug)]
pub struct Sending<T> {
    encode: fn(&T) -> Result<Payload, Trouble>,
    keep: fn(T) -> Kept,
    describe: fn(&mut Layouts) -> TypeNumber,
}

/// Values that can travel.
pub trait Travels<T> {
    /// How.
    fn sending(&self) -> Option<Sending<T>>;
}

impl<T: Wire + Send + Sync> Travels<T> for ValueOf<T> {
    fn sending(&self) -> Option<Sending<T>> {
        Some(Sending {
            encode,
            keep: Kept::wire,
            describe: T::layout,
        })
    }
}

/// Values that stay where they are made.
pub trait Stays<T> {
    /// Not at all.
    fn sending(&self) -> Option<Sending<T>>;
}

impl<T> Stays<T> for &ValueOf<T> {
    fn sending(&self) -> Option<Sending<T>> {
        None
    }
}

/// Whether and how a function's value travels.
#[doc(hidden)]
#[macro_export]
macro_rules! __sending {
    ($function:expr) => {{
        #[allow(unused_imports, reason = "one of the two is used")]
        use $crate::__private::{Stays as _, Travels as _};
        (&$crate::__private::value_of($function)).sending()
    }};
}

/// Describes a function: the body of [`Registration::describe`].
pub fn describe<M, F: Callable<M>>(
    _: F,
    sending: Option<Sending<F::Value>>,
    layouts: &mut Layouts,
) -> Signature {
    Signature {
        is_method: F::ACCESS != Access::None,
        arguments: F::Args::layout(layouts),
        value: sending.map(|sending| (sending.describe)(layouts)),
    }
}

/// Runs a function: the body of [`Registration::invoke`].
pub fn invoke<M, F: Callable<M>>(
    function: F,
    sending: Option<Sending<F::Value>>,
    invocation: Invocation<'_>,
) -> Step {
    let Invocation {
        mut args,
        receiver,
        want,
    } = invocation;
    let finish = move |value| output(value, want, sending);
    let bad = |e: WireError| {
        Step::Done(Err(Trouble::Around(
            RemoteErrorKind::of_arguments(&e),
            e.to_string(),
        )))
    };
    let values = match F::Args::decode(&mut args) {
        Ok(values) => values,
        Err(error) => return bad(error),
    };
    if let Err(error) = args.finish() {
        return bad(error);
    }
    let is_recorded = recording::decoded();
    match function.run(values, receiver) {
        Ran::Now(result) => {
            if is_recorded {
                recording::has_result();
            }
            Step::Done(result.map_err(Trouble::User).and_then(finish))
        }
        Ran::Later(future) => Step::Pending(Box::pin(async move {
            let result = future.await;
            if is_recorded {
                recording::has_result();
            }
            result.map_err(Trouble::User).and_then(finish)
        })),
        Ran::NoObject => {
            let message = "a method needs an object of its type to run on".to_owned();
            Step::Done(Err(Trouble::Around(RemoteErrorKind::BadArguments, message)))
        }
    }
}

/// A value, as wanted.
fn output<T: Any + Send + Sync>(
    value: T,
    want: Want,
    sending: Option<Sending<T>>,
) -> Result<Output, Trouble> {
    match (want, sending) {
        (Want::Message, Some(sending)) => (sending.encode)(&value).map(Output::Message),
        (Want::Message, None) => Err(cannot_travel(std::any::type_name::<T>())),
        (Want::Value, Some(sending)) => Ok(Output::Value((sending.keep)(value))),
        (Want::Value, None) => Ok(Output::Value(Kept::new(value))),
    }
}

/// Makes a function of another crate callable, under a name of your choice.
///
/// ```
/// telegrad_rpc::register!(std::cmp::min::<i64>, name = "min");
/// ```
#[macro_export]
macro_rules! register {
    ($function:expr, name = $name:literal $(,)?) => {
        $crate::__private::inventory::submit! {
            $crate::__private::Registration {
                name: $name,
                // Neither types nor names are at hand as text.
                signature: "",
                parameters: &[],
                inline: false,
                class: $crate::__private::Class::User,
                type_id: || $crate::__private::type_id_of(&$function),
                access: || $crate::__private::access_of($function),
                describe: |layouts| {
                    $crate::__private::describe($function, $crate::__private::sending!($function), layouts)
                },
                invoke: |invocation| {
                    $crate::__private::invoke($function, $crate::__private::sending!($function), invocation)
                },
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_quick(value: impl Wire + Any + Send + Sync) -> bool {
        let kept = Kept::wire(value);
        (kept.is_quick)(&*kept.value)
    }

    #[test]
    fn what_is_small_is_encoded_in_no_time() {
        assert!(is_quick(1_u64) && is_quick((1_i32, 2.0_f64)) && is_quick([0_u8; 32]));
        assert!(!is_quick([0_u8; 4096]) && !is_quick(vec![1_u8]) && !is_quick(String::new()));
    }

    #[cfg(feature = "candle")]
    #[test]
    fn a_tensor_is_encoded_in_no_time_if_its_bytes_can_go_as_they_are() {
        use candle_core::{DType, Device, Tensor};
        let tensor = Tensor::zeros((2, 3), DType::F32, &Device::Cpu).unwrap();
        assert!(is_quick(tensor.clone()));
        assert!(!is_quick(tensor.t().unwrap()));
    }
}
