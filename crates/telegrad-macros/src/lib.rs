//! The macros of Telegrad: `#[derive(Wire)]` and `#[remote]`.
//!
//! This is a crate of its own because Rust requires that of procedural macros. Users import them from `telegrad`. The crate
//! depends on no other Telegrad crate; only the generated code refers to them.

mod crate_path;
mod remote;
mod setters;
mod wire;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `Wire` for a struct or an enum, so that its values can be sent between workers.
///
/// | type | encoding |
/// |---|---|
/// | struct, tuple struct | array of the fields in order |
/// | newtype struct | as its field |
/// | unit struct | nil |
/// | unit variant | its name |
/// | other variants | a map of one from the name to the payload: the field of a variant `V(T)`, else an array of the fields |
///
/// The names of the type, its fields and its variants, their order and their types are part of the signature of every
/// function with the type. A call fails if the callee has another layout of it.
///
/// Every type parameter gets the bound `Wire`. Types that borrow cannot derive it, because received values are owned.
#[proc_macro_derive(Wire)]
pub fn derive_wire(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    wire::expand(&input)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

/// Adds a chainable setter for each public field of a struct, with the field's name and documentation.
///
/// A setter takes the type of its field. `String`, `OsString` and `Option` take any value that converts into them, so
/// that `rank(1)` and `rank(None)` both work. For option structs of Telegrad's own crates.
#[doc(hidden)]
#[proc_macro_derive(Setters)]
pub fn derive_setters(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    setters::expand(&input)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

/// Registers a function, or all functions of an `impl` block, for calls from other workers.
///
/// The item itself is unchanged and can be called locally. The function's name on the wire is its path, `my_crate::my_module::add` or `my_crate::my_module::Net::forward`.
///
/// Arguments, which can be combined:
///
/// - `#[remote(name = "add")]` gives the function another name on the wire; on an `impl` block it
///   replaces the part before `::method`.
/// - `#[remote(inline)]` runs the function on the thread that read the request, for functions that neither block nor
///   compute for long.
/// - `#[remote(skip)]`, inside an `impl` block only, leaves a function unregistered.
///
/// Only concrete functions with owned arguments can be remote, because values are sent and code is not.
///
/// # Async functions
///
/// An `async fn` holds no thread while it waits, so any number of them can wait on one worker. No runtime is needed for calls,
/// channels and locks of any async library, `telegrad::sleep`, `telegrad::timeout` and `telegrad::Round`. Timers and I/O of
/// tokio need tokio's runtime, and fail with an error without it: `Handle::spawn` the future on a runtime of the program and
/// await the handle.
///
/// A method cannot be async, because its object would be locked while it waits. Write an async function that takes an `RRef`
/// of the object, and use its `local_value` between the waits.
#[proc_macro_attribute]
pub fn remote(arguments: TokenStream, item: TokenStream) -> TokenStream {
    remote::expand(arguments.into(), item.into()).into()
}
