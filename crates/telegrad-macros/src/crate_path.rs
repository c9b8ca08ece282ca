//! Where the generated code finds the rest of Telegrad.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};

/// A crate that can answer, and whether it does so in a module `__private`.
type Candidate = (&'static str, bool);

/// Best first.
const FOR_REMOTE: &[Candidate] = &[("telegrad", true), ("telegrad-rpc", true)];
const FOR_WIRE: &[Candidate] = &[
    ("telegrad", true),
    ("telegrad-rpc", true),
    ("telegrad-wire", false),
];

/// The path under which `Wire` and the types of its methods can be reached.
pub(crate) fn for_wire() -> syn::Result<TokenStream> {
    find(FOR_WIRE)
}

/// The path under which `Registration`, what fills it in, and `inventory` can be reached.
pub(crate) fn for_remote() -> syn::Result<TokenStream> {
    find(FOR_REMOTE)
}

fn find(candidates: &[Candidate]) -> syn::Result<TokenStream> {
    let found = |&(package, private): &Candidate| Some((package, private, crate_name(package).ok()?));
    // The crate being compiled comes before its dependencies: Telegrad's own crates name later ones
    // among their dev-dependencies, which their library cannot see.
    let itself = candidates
        .iter()
        .filter_map(found)
        .find(|(.., it)| *it == FoundCrate::Itself);
    let Some((package, private, it)) = itself.or_else(|| candidates.iter().find_map(found)) else {
        return Err(syn::Error::new(
            Span::call_site(),
            "this macro needs the crate `telegrad`: add it to the dependencies in Cargo.toml",
        ));
    };
    let root = match it {
        // Every Telegrad library declares itself under its own name.
        FoundCrate::Itself => format_ident!("{}", package.replace('-', "_")),
        FoundCrate::Name(name) => format_ident!("{name}"),
    };
    Ok(if private {
        quote!(::#root::__private)
    } else {
        quote!(::#root)
    })
}
