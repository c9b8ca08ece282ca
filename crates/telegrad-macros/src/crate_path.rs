//! The path of the Telegrad crate in generated code.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};

/// A crate that provides the items, and whether they are in its module `__private`.
type Candidate = (&'static str, bool);

/// In order of preference.
const FOR_REMOTE: &[Candidate] = &[("telegrad", true), ("telegrad-rpc", true)];
const FOR_WIRE: &[Candidate] = &[
    ("telegrad", true),
    ("telegrad-rpc", true),
    ("telegrad-wire", false),
];

/// The path of `Wire` and the types of its methods.
pub(crate) fn for_wire() -> syn::Result<TokenStream> {
    find(FOR_WIRE)
}

/// The path of `Registration`, its constructors and `inventory`.
pub(crate) fn for_remote() -> syn::Result<TokenStream> {
    find(FOR_REMOTE)
}

fn find(candidates: &[Candidate]) -> syn::Result<TokenStream> {
    let found = |&(package, private): &Candidate| Some((package, private, crate_name(package).ok()?));
    // The compiled crate itself takes precedence: Telegrad's own crates have later ones as dev-dependencies, which their
    // libraries cannot use.
    let current = candidates
        .iter()
        .filter_map(found)
        .find(|(.., found)| *found == FoundCrate::Itself);
    let Some((package, private, found)) = current.or_else(|| candidates.iter().find_map(found)) else {
        return Err(syn::Error::new(
            Span::call_site(),
            "this macro needs the crate `telegrad`: add it to the dependencies in Cargo.toml",
        ));
    };
    let root = match found {
        // Every Telegrad library has `extern crate self` under its own name.
        FoundCrate::Itself => format_ident!("{}", package.replace('-', "_")),
        FoundCrate::Name(name) => format_ident!("{name}"),
    };
    Ok(if private {
        quote!(::#root::__private)
    } else {
        quote!(::#root)
    })
}
