//! `#[derive(Wire)]`.

mod layout;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Error, Field, Fields, Generics, Ident, Variant, parse_quote};

use crate::crate_path;

/// The `impl Wire` of one type.
pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    if let Some(lifetime) = input.generics.lifetimes().next() {
        return Err(Error::new(
            lifetime.span(),
            "a type that borrows cannot be `Wire`: values from another worker are owned; \
             use `String`, `Vec<T>` or `Arc<T>` instead of references",
        ));
    }
    let path = crate_path::for_wire()?;
    let layout = layout::of(&path, input);
    let (encode, decode) = match &input.data {
        Data::Struct(data) => of_struct(&path, &input.ident, &data.fields),
        Data::Enum(data) => of_enum(&path, &input.ident, data),
        Data::Union(data) => {
            return Err(Error::new(
                data.union_token.span,
                "a union cannot be `Wire`: its bytes do not determine the active field; use an enum",
            ));
        }
    };
    let name = &input.ident;
    let generics = bounded(&path, input.generics.clone());
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        #[allow(deprecated)]
        impl #impl_generics #path::Wire for #name #type_generics #where_clause {
            fn encode(&self, encoder: &mut #path::Encoder) {
                #encode
            }

            fn decode(
                decoder: &mut #path::Decoder<'_>,
            ) -> ::core::result::Result<Self, #path::WireError> {
                decoder.nested(|decoder| #decode)
            }

            fn layout(layouts: &mut #path::Layouts) -> #path::TypeNumber {
                layouts.define::<Self>(|layouts| #layout)
            }
        }
    })
}

/// The generics with `T: Wire` for every type parameter.
fn bounded(path: &TokenStream, mut generics: Generics) -> Generics {
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(#path::Wire));
    }
    generics
}

fn of_struct(path: &TokenStream, name: &Ident, fields: &Fields) -> (TokenStream, TokenStream) {
    let shown = name.unraw().to_string();
    if let Fields::Unit = fields {
        return (
            quote!(encoder.nil()),
            quote!({
                decoder
                    .nil()
                    .map_err(|error| error.at(::core::concat!("struct `", #shown, "`")))?;
                ::core::result::Result::Ok(Self)
            }),
        );
    }
    let values = fields.members().map(|member| quote!(&self.#member));
    let encode = encode_fields(path, fields, values);
    let decode = decode_fields(path, fields, &format!("struct `{shown}`"), &shown, &quote!(Self));
    (encode, decode)
}

fn of_enum(path: &TokenStream, name: &Ident, data: &DataEnum) -> (TokenStream, TokenStream) {
    let shown = name.unraw().to_string();
    let known = data
        .variants
        .iter()
        .map(|variant| variant.ident.unraw().to_string());
    let unknown = quote! {
        (variant, payload) => ::core::result::Result::Err(
            #path::WireError::unknown_variant(#shown, &[#(#known),*], variant, payload)
        )
    };
    let decode_arms = data
        .variants
        .iter()
        .map(|variant| decode_variant(path, &shown, variant));
    let decode = quote!({
        match decoder.variant(::core::concat!("enum `", #shown, "`"))? {
            #(#decode_arms)*
            #unknown
        }
    });
    if data.variants.is_empty() {
        // No value exists, so encoding is unreachable and every input is an error.
        return (quote!(match *self {}), decode);
    }
    let encode_arms = data.variants.iter().map(|variant| encode_variant(path, variant));
    (quote!(match self { #(#encode_arms)* }), decode)
}

fn encode_variant(path: &TokenStream, variant: &Variant) -> TokenStream {
    let (ident, shown) = (&variant.ident, variant.ident.unraw().to_string());
    if let Fields::Unit = variant.fields {
        return quote!(Self::#ident => encoder.str(#shown),);
    }
    let bindings: Vec<_> = (0..variant.fields.len())
        .map(|i| format_ident!("field_{i}"))
        .collect();
    let members = variant.fields.members();
    let payload = encode_fields(
        path,
        &variant.fields,
        bindings.iter().map(ToTokens::to_token_stream),
    );
    quote! {
        Self::#ident { #(#members: #bindings),* } => {
            encoder.map_len(1);
            encoder.str(#shown);
            #payload
        }
    }
}

fn decode_variant(path: &TokenStream, of: &str, variant: &Variant) -> TokenStream {
    let (ident, shown) = (&variant.ident, variant.ident.unraw().to_string());
    if let Fields::Unit = variant.fields {
        return quote!((#shown, false) => ::core::result::Result::Ok(Self::#ident),);
    }
    let full = format!("{of}::{shown}");
    let payload = decode_fields(
        path,
        &variant.fields,
        &format!("variant `{full}`"),
        &full,
        &quote!(Self::#ident),
    );
    // A function of its own: in unoptimised code, one function would need the stack of all variants together at every level
    // of a recursive enum.
    quote! {
        (#shown, true) => {
            let read = |decoder: &mut #path::Decoder<'_>| #payload;
            read(decoder)
        }
    }
}

/// Whether the fields are a single unnamed one, which is encoded without an array.
fn is_newtype(fields: &Fields) -> bool {
    matches!(fields, Fields::Unnamed(unnamed) if unnamed.unnamed.len() == 1)
}

fn encode_fields(
    path: &TokenStream,
    fields: &Fields,
    values: impl Iterator<Item = TokenStream>,
) -> TokenStream {
    let start = (!is_newtype(fields)).then(|| {
        let count = fields.len();
        quote!(encoder.array_len(#count);)
    });
    let encode = fields.iter().map(|field| method_of(path, field, "encode"));
    quote! {
        #start
        #(#encode(#values, encoder);)*
    }
}

/// `what` names the type in errors about the number of fields, `of` in errors about single fields.
fn decode_fields(
    path: &TokenStream,
    fields: &Fields,
    what: &str,
    of: &str,
    constructor: &TokenStream,
) -> TokenStream {
    let start = (!is_newtype(fields)).then(|| {
        let count = fields.len();
        quote!(decoder.array_of(#count, #what)?;)
    });
    let members = fields.members();
    let values = fields
        .iter()
        .enumerate()
        .map(|(i, field)| decode_field(path, i, field, of));
    quote!({
        #start
        ::core::result::Result::Ok(#constructor { #(#members: #values),* })
    })
}

fn decode_field(path: &TokenStream, index: usize, field: &Field, of: &str) -> TokenStream {
    let step = match &field.ident {
        Some(name) => format!("field `{}` of `{of}`", name.unraw()),
        None => format!("field {index} of `{of}`"),
    };
    let decode = method_of(path, field, "decode");
    quote!(#decode(decoder).map_err(|error| error.at(#step))?)
}

/// A method of `Wire` for the field's type, with the span of the type for errors.
fn method_of(path: &TokenStream, field: &Field, method: &str) -> TokenStream {
    let (ty, method) = (&field.ty, format_ident!("{method}"));
    let span = Span::call_site().located_at(ty.span());
    quote_spanned!(span=> <#ty as #path::Wire>::#method)
}
