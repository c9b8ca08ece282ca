//! Validation of remote functions.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Error, FnArg, Generics, ItemImpl, Receiver, ReceiverKind, ReturnType, Safety, Signature, Type,
    TypeImplTrait, TypePath, TypeReference,
};

/// The size of the largest tuple that is `Wire`.
const MAX_ARGUMENTS: usize = 12;

/// Checks a function outside an impl block.
pub(super) fn free_function(sig: &Signature) -> syn::Result<()> {
    if let Some(receiver) = sig.receiver() {
        return Err(Error::new_spanned(
            receiver,
            "a method is registered with its impl block: put `#[remote]` on the `impl`",
        ));
    }
    function(sig, "")
}

/// Checks a function inside an impl block.
pub(super) fn method(sig: &Signature) -> syn::Result<()> {
    const OR_SKIP: &str = "; or leave it out with `#[remote(skip)]`";
    if let Some(receiver) = sig.receiver() {
        check_receiver(receiver, OR_SKIP)?;
    }
    function(sig, OR_SKIP)
}

/// Checks an impl block without its functions.
pub(super) fn impl_block(block: &ItemImpl) -> syn::Result<()> {
    if let Some((of_trait, _)) = &block.trait_ {
        return Err(Error::new_spanned(
            of_trait,
            "a trait impl cannot be remote: write an `impl` block of the type itself whose functions call the trait's",
        ));
    }
    match block.generics.params.first() {
        Some(parameter) => Err(Error::new_spanned(
            parameter,
            "a generic impl cannot be remote: code is not sent, so the other worker needs one concrete function; write an `impl` block for one concrete type",
        )),
        None => Ok(()),
    }
}

fn check_receiver(receiver: &Receiver, or_skip: &str) -> syn::Result<()> {
    let text = match receiver.kind {
        ReceiverKind::Reference(..) => return Ok(()),
        ReceiverKind::Value => {
            "a remote method cannot take `self` by value: the object stays with its owner, and other references to it may exist; take `&self` or `&mut self`"
        }
        _ => "a remote method takes `&self` or `&mut self`",
    };
    Err(Error::new_spanned(receiver, format!("{text}{or_skip}")))
}

/// Checks a function. `or_skip` completes the advice where the function can be skipped.
fn function(sig: &Signature, or_skip: &str) -> syn::Result<()> {
    let fail = |at: &dyn ToTokens, text: &str| Err(Error::new_spanned(at, format!("{text}{or_skip}")));
    if let Safety::Unsafe(token) = &sig.safety {
        return fail(
            token,
            "an unsafe function cannot be remote: a caller on another worker cannot uphold its contract",
        );
    }
    if let Some(abi) = &sig.abi {
        return fail(
            abi,
            "a remote function uses Rust's own calling convention: remove `extern`",
        );
    }
    if let Some(variadic) = &sig.variadic {
        return fail(variadic, "a remote function has a fixed number of arguments");
    }
    // References come first: a lifetime parameter is there because of one.
    for argument in arguments(sig) {
        check_argument(argument, or_skip)?;
    }
    if let ReturnType::Type(_, output) = &sig.output
        && let Some((at, true)) = first_borrow(output)
    {
        return fail(
            &at,
            "a remote function cannot return a reference: values are sent, so return an owned one",
        );
    }
    check_generics(&sig.generics, or_skip)?;
    match arguments(sig).nth(MAX_ARGUMENTS) {
        Some(one_too_many) => fail(
            one_too_many,
            "a remote function has at most 12 arguments: put some of them into a struct that derives `Wire`",
        ),
        None => Ok(()),
    }
}

fn check_generics(generics: &Generics, or_skip: &str) -> syn::Result<()> {
    let Some(parameter) = generics.params.first() else {
        return Ok(());
    };
    Err(Error::new_spanned(
        parameter,
        format!(
            "a generic function cannot be remote: code is not sent, so the other worker needs one concrete function; write one for each type that you need{or_skip}"
        ),
    ))
}

/// The types of the arguments, without a receiver.
fn arguments(sig: &Signature) -> impl Iterator<Item = &Type> {
    sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(&*typed.ty),
        FnArg::Receiver(_) => None,
    })
}

fn check_argument(ty: &Type, or_skip: &str) -> syn::Result<()> {
    match first_borrow(ty) {
        Some((at, true)) => {
            let instead = owned_form(ty).map_or(String::new(), |owned| format!(": take `{owned}`"));
            Err(Error::new_spanned(
                at,
                format!("a remote function takes owned arguments, because values are sent{instead}{or_skip}"),
            ))
        }
        Some((at, false)) => Err(Error::new_spanned(
            &at,
            format!(
                "`impl Trait` makes the function generic, and code is not sent: name one concrete type{or_skip}"
            ),
        )),
        None => Ok(()),
    }
}

/// The owned type to write instead of a reference.
fn owned_form(ty: &Type) -> Option<String> {
    let Type::Reference(TypeReference { elem, .. }) = ty else {
        return None;
    };
    Some(match &**elem {
        Type::Path(TypePath {
            qself: None, path, ..
        }) if path.is_ident("str") => "String".into(),
        Type::Slice(slice) => format!("Vec<{}>", super::signature::text(&slice.elem)),
        other => super::signature::text(other),
    })
}

/// The first reference (`true`) or `impl Trait` (`false`) inside a type.
fn first_borrow(ty: &Type) -> Option<(TokenStream, bool)> {
    #[derive(Default)]
    struct Finder(Option<(TokenStream, bool)>);

    impl VisitMut for Finder {
        fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
            self.0.get_or_insert((reference.to_token_stream(), true));
        }

        fn visit_type_impl_trait_mut(&mut self, implementing: &mut TypeImplTrait) {
            self.0.get_or_insert((implementing.to_token_stream(), false));
        }
    }

    let mut finder = Finder::default();
    visit_mut::visit_type_mut(&mut finder, &mut ty.clone());
    finder.0
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn message(result: syn::Result<()>) -> String {
        result.map_or_else(|error| error.to_string(), |()| "accepted".into())
    }

    #[test]
    fn concrete_functions_with_owned_arguments_are_accepted() {
        for sig in [
            parse_quote!(fn add(a: Tensor, b: Option<Vec<u8>>) -> Result<Tensor>),
            parse_quote!(async fn nothing()),
            parse_quote!(fn twelve(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8, j: u8, k: u8, l: u8)),
        ] {
            assert_eq!(message(free_function(&sig)), "accepted");
        }
        for sig in [
            parse_quote!(fn get(&self, i: usize) -> f32),
            parse_quote!(fn set(&mut self, x: f32)),
        ] {
            assert_eq!(message(method(&sig)), "accepted");
        }
        assert_eq!(message(impl_block(&parse_quote!(impl Net {}))), "accepted");
    }

    #[test]
    fn invalid_functions_are_rejected_with_the_reason() {
        let cases: &[(Signature, &str)] = &[
            (parse_quote!(fn f<T>(x: T)), "a generic function cannot be remote"),
            (
                parse_quote!(fn f<const N: usize>(x: [u8; N])),
                "a generic function cannot be remote",
            ),
            (
                parse_quote!(fn f(x: impl Into<String>)),
                "`impl Trait` makes the function generic",
            ),
            (parse_quote!(unsafe fn f()), "an unsafe function cannot be remote"),
            (parse_quote!(extern "C" fn f()), "remove `extern`"),
            (parse_quote!(fn f(x: &str)), "take `String`"),
            (parse_quote!(fn f(x: &[f32])), "take `Vec<f32>`"),
            (parse_quote!(fn f(x: &mut Tensor)), "take `Tensor`"),
            (parse_quote!(fn f(x: Option<&str>)), "takes owned arguments"),
            (parse_quote!(fn f<'a>(x: &'a str)), "take `String`"),
            (
                parse_quote!(fn f() -> Result<&'static str>),
                "cannot return a reference",
            ),
            (parse_quote!(fn f(&self)), "put `#[remote]` on the `impl`"),
            (
                parse_quote!(fn f(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8, j: u8, k: u8, l: u8, m: u8)),
                "at most 12 arguments",
            ),
        ];
        for (sig, reason) in cases {
            let message = message(free_function(sig));
            assert!(message.contains(reason), "{message}");
            assert!(!message.contains("skip"), "{message}");
        }
    }

    #[test]
    fn a_method_takes_its_object_by_reference() {
        for (sig, reason) in [
            (parse_quote!(fn f(self)), "cannot take `self` by value"),
            (
                parse_quote!(fn f(self: Arc<Self>)),
                "takes `&self` or `&mut self`",
            ),
            (parse_quote!(fn f(&self) -> &str), "cannot return a reference"),
        ] {
            let message = message(method(&sig));
            assert!(message.contains(reason), "{message}");
            assert!(message.contains("#[remote(skip)]"), "{message}");
        }
    }

    #[test]
    fn trait_impls_and_generic_impls_are_rejected() {
        let trait_impl = message(impl_block(&parse_quote!(impl Clone for Net {})));
        assert!(
            trait_impl.contains("a trait impl cannot be remote"),
            "{trait_impl}"
        );
        let generic = message(impl_block(&parse_quote!(
            impl<T> Net<T> {}
        )));
        assert!(generic.contains("a generic impl cannot be remote"), "{generic}");
    }
}
