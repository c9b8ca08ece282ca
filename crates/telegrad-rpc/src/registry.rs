//! The functions of this program that others may call.
//!
//! `#[remote]` leaves a [`Registration`] in the program for each of them; they are collected when
//! the program starts. A caller finds the entry of the function it passes by the function's own
//! type, a callee by the name in the request. Names travel, code never does.

use std::any::TypeId;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use telegrad_wire::{Decoder, Encoder, Payload, Wire, WireError};

use crate::error::{Error, RemoteErrorKind};
use crate::function::{Callable, Ran};
use crate::object::Object;

/// One remote function, as `#[remote]` leaves it.
pub struct Registration {
    /// Its name on the wire.
    pub name: &'static str,
    /// Its parameter and return types, for people and for comparing programs.
    pub signature: &'static str,
    /// It takes microseconds and never waits, so the thread that reads a request may run it.
    pub inline: bool,
    /// The type of the function item, by which the caller finds this.
    pub type_id: fn() -> TypeId,
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
    pub object: Option<&'a Object>,
}

/// How far a run got.
pub enum Step {
    /// It is over.
    Done(Result<Payload, Trouble>),
    /// An async function; this is the rest of it.
    Pending(Pin<Box<dyn Future<Output = Result<Payload, Trouble>> + Send>>),
}

/// Why there is no result.
#[derive(Debug)]
pub enum Trouble {
    /// The function returned an error.
    User(telegrad_wire::BoxError),
    /// Something around it did not work.
    Around(RemoteErrorKind, String),
}

/// All registered functions.
pub(crate) struct Registry {
    by_name: FxHashMap<&'static str, &'static Registration>,
    by_type: FxHashMap<TypeId, &'static Registration>,
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
        let mut names: Vec<_> = by_name.values().map(|r| (r.name, r.signature)).collect();
        names.sort_unstable();
        let mut hasher = DefaultHasher::new();
        names.hash(&mut hasher);
        Self {
            by_name,
            by_type,
            digest: hasher.finish(),
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

    /// The function of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&'static Registration> {
        self.by_name.get(name).copied()
    }

    /// Equal for programs with the same functions. The hash is the same in every process of one
    /// build; between builds a difference only costs the exchange of the lists.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Name and signature of each function.
    pub(crate) fn list(&self) -> Vec<(String, String)> {
        let entry = |r: &&'static Registration| (r.name.to_owned(), r.signature.to_owned());
        let mut list: Vec<_> = self.by_name.values().map(entry).collect();
        list.sort_unstable();
        list
    }
}

/// The type of a function item.
pub fn type_id_of<F: 'static>(_: &F) -> TypeId {
    TypeId::of::<F>()
}

/// A function whose kind the compiler has found. [`invoke!`](crate::__private::invoke) asks it to
/// run, and gets the implementation with or without encoding, depending on whether the value is
/// `Wire`: the method on the value itself is found before the one on the reference.
#[derive(Debug)]
pub struct Probe<F, M>(F, std::marker::PhantomData<fn() -> M>);

/// Finds a function's kind.
pub fn probe<M, F: Callable<M>>(function: F) -> Probe<F, M> {
    Probe(function, std::marker::PhantomData)
}

/// Functions whose value can travel.
pub trait InvokeWire {
    /// Runs the function and encodes what it gives.
    fn invoke(&self, invocation: Invocation<'_>) -> Step;
}

impl<M, F> InvokeWire for Probe<F, M>
where
    F: Callable<M, Value: Wire>,
{
    fn invoke(&self, invocation: Invocation<'_>) -> Step {
        run(self.0, invocation, |value| {
            let mut encoder = Encoder::new();
            value.encode(&mut encoder);
            let bad = |e: WireError| Trouble::Around(RemoteErrorKind::BadResult, e.to_string());
            encoder.finish().map_err(bad)
        })
    }
}

/// Functions whose value stays where it is made.
pub trait InvokeLocal {
    /// Says that the value cannot travel.
    fn invoke(&self, invocation: Invocation<'_>) -> Step;
}

impl<M, F> InvokeLocal for &Probe<F, M>
where
    F: Callable<M>,
{
    fn invoke(&self, invocation: Invocation<'_>) -> Step {
        run(self.0, invocation, |_| {
            let what = std::any::type_name::<F::Value>();
            let message = format!("a `{what}` cannot travel, only be referred to where it is");
            Err(Trouble::Around(RemoteErrorKind::BadResult, message))
        })
    }
}

fn run<M, F: Callable<M>>(
    function: F,
    invocation: Invocation<'_>,
    encode: fn(F::Value) -> Result<Payload, Trouble>,
) -> Step {
    let Invocation { mut args, object } = invocation;
    let bad = |e: WireError| Step::Done(Err(Trouble::Around(RemoteErrorKind::BadArguments, e.to_string())));
    let values = match F::Args::decode(&mut args) {
        Ok(values) => values,
        Err(error) => return bad(error),
    };
    if let Err(error) = args.finish() {
        return bad(error);
    }
    match function.run(values, object) {
        Ran::Now(result) => Step::Done(result.map_err(Trouble::User).and_then(encode)),
        Ran::Later(future) => Step::Pending(Box::pin(async move {
            future.await.map_err(Trouble::User).and_then(encode)
        })),
        Ran::NoObject => {
            let message = "a method needs an object of its type to run on".to_owned();
            Step::Done(Err(Trouble::Around(RemoteErrorKind::BadArguments, message)))
        }
    }
}

/// Runs a registered function: the body of [`Registration::invoke`].
#[doc(hidden)]
#[macro_export]
macro_rules! __invoke {
    ($function:expr, $invocation:expr) => {{
        #[allow(unused_imports, reason = "one of the two is used")]
        use $crate::__private::{InvokeLocal as _, InvokeWire as _};
        (&$crate::__private::probe($function)).invoke($invocation)
    }};
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
                // Its types are not at hand as text, and the name is chosen to mean one thing.
                signature: "",
                inline: false,
                type_id: || $crate::__private::type_id_of(&$function),
                invoke: |invocation| $crate::__private::invoke!($function, invocation),
            }
        }
    };
}
