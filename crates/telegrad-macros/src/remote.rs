//! `#[remote]`.

mod arguments;
mod checks;
mod signature;

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::{Attribute, Error, ImplItem, ImplItemFn, Item, ItemFn, ItemImpl, LitStr, Signature};

use crate::crate_path;
use arguments::Arguments;

/// Expands to the unchanged item, followed by its registrations or by an error.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = Arguments::parse(arguments).and_then(|arguments| match syn::parse2(item.clone())? {
        Item::Fn(function) => of_function(&arguments, &function),
        Item::Impl(block) => of_impl(&arguments, block),
        other => Err(Error::new_spanned(
            &other,
            "`#[remote]` applies to a function or to an `impl` block with functions",
        )),
    });
    expanded.unwrap_or_else(|error| {
        let error = error.into_compile_error();
        // Keeps the item, so that its uses do not cause further errors.
        let item = without_inner_attributes(item);
        quote!(#item #error)
    })
}

fn of_function(arguments: &Arguments, function: &ItemFn) -> syn::Result<TokenStream> {
    if let Some(skip) = arguments.skip {
        return Err(Error::new(
            skip,
            "`skip` is for functions inside a `#[remote]` impl block",
        ));
    }
    checks::free_function(&function.sig)?;
    let ident = &function.sig.ident;
    let name = match &arguments.name {
        Some(name) => name.to_token_stream(),
        None => path_of(&ident.unraw().to_string()),
    };
    let callee = ident.to_token_stream();
    let registration = registration(&name, &function.sig, arguments, &callee, &function.attrs)?;
    Ok(quote!(#function #registration))
}

fn of_impl(arguments: &Arguments, mut block: ItemImpl) -> syn::Result<TokenStream> {
    if let Some(skip) = arguments.skip {
        return Err(Error::new(
            skip,
            "`skip` is for single functions; an impl block without `#[remote]` is skipped",
        ));
    }
    checks::impl_block(&block)?;
    let self_type = block.self_ty.clone();
    let mut registrations = TokenStream::new();
    let mut errors: Option<Error> = None;
    for item in &mut block.items {
        let ImplItem::Fn(method) = item else { continue };
        match of_method(arguments, &self_type, method) {
            Ok(registration) => registrations.extend(registration),
            Err(error) => match &mut errors {
                Some(errors) => errors.combine(error),
                None => errors = Some(error),
            },
        }
    }
    match errors {
        Some(errors) => Err(errors),
        None => Ok(quote!(#block #registrations)),
    }
}

/// Removes the method's `#[remote(…)]` attribute, if any.
fn of_method(
    of_block: &Arguments,
    self_type: &syn::Type,
    method: &mut ImplItemFn,
) -> syn::Result<TokenStream> {
    let arguments = Arguments::take_from(&mut method.attrs)?;
    if arguments.skip.is_some() {
        return Ok(TokenStream::new());
    }
    checks::method(&method.sig)?;
    let ident = &method.sig.ident;
    let name = match (&arguments.name, &of_block.name) {
        (Some(name), _) => name.to_token_stream(),
        (None, Some(prefix)) => {
            LitStr::new(&format!("{}::{}", prefix.value(), ident.unraw()), prefix.span()).to_token_stream()
        }
        (None, None) => path_of(&format!("{}::{}", signature::text(self_type), ident.unraw())),
    };
    let arguments = Arguments {
        inline: arguments.inline || of_block.inline,
        ..arguments
    };
    registration(
        &name,
        &method.sig,
        &arguments,
        &quote!(<#self_type>::#ident),
        &method.attrs,
    )
}

/// The default name of an item in the module that uses the macro.
fn path_of(within_module: &str) -> TokenStream {
    quote!(::core::concat!(::core::module_path!(), "::", #within_module))
}

fn registration(
    name: &TokenStream,
    sig: &Signature,
    arguments: &Arguments,
    callee: &TokenStream,
    attributes: &[Attribute],
) -> syn::Result<TokenStream> {
    let path = crate_path::for_remote()?;
    let signature = signature::of(sig);
    let parameters = signature::parameters(sig);
    let inline = arguments.inline;
    let class = arguments.class.clone().unwrap_or_else(|| format_ident!("User"));
    let invoke = match &arguments.answered_by {
        None => quote!(#path::invoke(#callee, #path::sending!(#callee), invocation)),
        Some(answering) => quote! {
            match invocation.form {
                #path::OutputForm::Message => #path::invoke(#answering, #path::sending!(#answering), invocation),
                #path::OutputForm::Value => #path::invoke(#callee, #path::sending!(#callee), invocation),
            }
        },
    };
    // An item under `cfg` is registered under the same condition.
    let conditions = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"));
    Ok(quote! {
        #(#conditions)*
        #[allow(deprecated)]
        const _: () = {
            #path::inventory::submit! {
                #path::Registration {
                    name: #name,
                    signature: #signature,
                    parameters: &[#(#parameters),*],
                    inline: #inline,
                    class: #path::Class::#class,
                    type_id: || #path::type_id_of(&#callee),
                    access: || #path::access_of(#callee),
                    describe: |layouts| #path::describe(#callee, #path::sending!(#callee), layouts),
                    invoke: |invocation| #invoke,
                }
            }
        };
    })
}

/// Removes the attributes that a successful expansion would remove.
fn without_inner_attributes(item: TokenStream) -> TokenStream {
    let Ok(Item::Impl(mut block)) = syn::parse2::<Item>(item.clone()) else {
        return item;
    };
    for item in &mut block.items {
        if let ImplItem::Fn(method) = item {
            method.attrs.retain(|attribute| !arguments::is_remote(attribute));
        }
    }
    block.into_token_stream()
}
