//! The layout of a type, for the comparison of signatures.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Fields};

use super::method_of;

/// An expression for the type's `Layout`, where `layouts` is in scope.
pub(super) fn of(path: &TokenStream, input: &DeriveInput) -> TokenStream {
    let name = input.ident.unraw().to_string();
    match &input.data {
        Data::Struct(data) => {
            let fields = of_fields(path, &data.fields);
            quote!(#path::Layout::of_struct(#name, #fields))
        }
        Data::Enum(data) => {
            let names = data
                .variants
                .iter()
                .map(|variant| variant.ident.unraw().to_string());
            let fields = data
                .variants
                .iter()
                .map(|variant| of_fields(path, &variant.fields));
            quote!(#path::Layout::of_enum(#name, [#((#names, #fields)),*]))
        }
        // Rejected before expansion.
        Data::Union(_) => TokenStream::new(),
    }
}

fn of_fields(path: &TokenStream, fields: &Fields) -> TokenStream {
    let layout = fields.iter().map(|field| method_of(path, field, "layout"));
    match fields {
        Fields::Unit => quote!(#path::Fields::Unit),
        Fields::Unnamed(_) => quote!(#path::Fields::unnamed([#(#layout(layouts)),*])),
        Fields::Named(named) => {
            let names = named.named.iter().map(|field| field.ident.as_ref());
            let names = names.map(|name| name.map(|name| name.unraw().to_string()));
            quote!(#path::Fields::named([#((#names, #layout(layouts))),*]))
        }
    }
}
