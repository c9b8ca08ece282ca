//! `#[derive(Setters)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, GenericArgument, PathArguments, Type};

/// Returns an `impl` block with one chainable setter for each public field.
pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "setters are for structs"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(&input.ident, "setters are for named fields"));
    };
    let public = fields
        .named
        .iter()
        .filter(|field| matches!(field.vis, syn::Visibility::Public(_)));
    let setters: Vec<_> = public.map(setter).collect();
    let (name, (generics, arguments, conditions)) = (&input.ident, input.generics.split_for_impl());
    Ok(quote! {
        /// Chainable setters, one for each field.
        impl #generics #name #arguments #conditions {
            #(#setters)*
        }
    })
}

fn setter(field: &Field) -> TokenStream {
    let (name, ty) = (&field.ident, &field.ty);
    let docs = field
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("doc"));
    let docs: Vec<&Attribute> = docs.collect();
    let (parameter, value) = match ty {
        _ if is_named(ty, &["String", "OsString"]) => (quote!(impl Into<#ty>), quote!(#name.into())),
        _ => match inside_option(ty) {
            // A function's name becomes a function pointer only where that is the type of the parameter.
            Some(inner @ Type::FnPtr(_)) => (quote!(#inner), quote!(Some(#name))),
            Some(_) => (quote!(impl Into<#ty>), quote!(#name.into())),
            None => (quote!(#ty), quote!(#name)),
        },
    };
    quote! {
        #(#docs)*
        #[must_use]
        pub fn #name(mut self, #name: #parameter) -> Self {
            self.#name = #value;
            self
        }
    }
}

fn is_named(ty: &Type, names: &[&str]) -> bool {
    let Type::Path(path) = ty else { return false };
    let last = path.path.segments.last();
    last.is_some_and(|segment| names.iter().any(|name| segment.ident == name))
}

/// The type inside of an `Option`.
fn inside_option(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    match arguments.args.first()? {
        GenericArgument::Type(inner) => Some(inner),
        _ => None,
    }
}
